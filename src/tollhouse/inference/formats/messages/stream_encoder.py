"""Encodes canonical events as a messages stream, always in a legal order.

    message_start (content_block_start content_block_delta* content_block_stop)*
    message_delta message_stop   |   error

One block is open at a time. The signature of reasoning is sent at the end of its block.

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.canonical.block_sequencer import BlockSequencer
from tollhouse.inference.formats.canonical.blocks import ReasoningBlock
from tollhouse.inference.formats.canonical.events import (
    BlockDelta,
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    RefusalDelta,
    StreamStarted,
    ToolCallDelta,
    ToolCallStarted,
)
from tollhouse.inference.formats.canonical.response_builder import ResponseBuilder
from tollhouse.inference.formats.messages.canonical_response import stop_reason
from tollhouse.inference.formats.messages.errors import error_event
from tollhouse.inference.formats.messages.passthrough_bodies import message_fields
from tollhouse.inference.formats.messages.reasoning import render_reasoning
from tollhouse.inference.formats.messages.usage import render_tokens, render_usage
from tollhouse.inference.formats.messages.wire import render_event
from tollhouse.inference.formats.stream_end import StreamEnd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class MessagesStreamEncoder:
    """Implements `canonical.ports.StreamEncoder`."""

    def __init__(self, identity: ReplyIdentity) -> None:
        self._identity = identity
        self._sequence = BlockSequencer()
        self._finished: ChoiceFinished | None = None
        self._refused = False
        self._started = False
        self._stream_end = StreamEnd("messages")
        self._index = -1
        """The index of the open or the last block."""
        self._open: str | None = None
        """The type of the open block."""
        self._reasoning_builders: dict[int, ResponseBuilder] = {}
        """The reasoning blocks that have not ended."""

    def write(self, event: CanonicalEvent) -> bytes:
        """Return what the client gets of an event; may be empty.

        Raises:
            formats.adapter.MalformedResponse: A finished response or ended block gets more output.
        """
        start = self._start(event.usage if isinstance(event, StreamStarted) else None)
        return start + b"".join(map(self._write, self._sequence.feed(event)))

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream: usage, and the terminal event."""
        self._stream_end.mark_written()
        start = self._start(None)
        rest = b"" if self._finished else self._finish()
        return (
            start
            + rest
            + render_event("message_delta", self._last(charge))
            + render_event("message_stop", {})
        )

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error, as the format's terminal event."""
        self._stream_end.mark_written()
        return error_event(error, self._identity.id)

    def _start(self, usage: Usage | None) -> bytes:
        if self._started:
            return b""
        self._started = True
        message = message_fields(self._identity, {})
        message |= {"content": (), "usage": render_tokens(usage or Usage())}
        return render_event("message_start", {"message": message})

    def _finish(self) -> bytes:
        """Close the open block of a response without a finish reason."""
        return b"".join(map(self._write, self._sequence.feed(ChoiceFinished(0, "error"))))

    def _last(self, charge: Charge) -> Mapping[str, object]:
        finished = self._finished or ChoiceFinished(0, "error")
        sequence = finished.stop_sequence
        reason = stop_reason(finished.finish_reason, sequence, refused=self._refused)
        return {
            "delta": {
                "stop_reason": reason,
                "stop_sequence": sequence if reason == "stop_sequence" else None,
                "stop_details": None,
                "container": None,
            },
            "usage": render_usage(charge),
        }

    def _write(self, event: CanonicalEvent) -> bytes:
        if isinstance(event, BlockEnded):
            return self._end_block(event.block)
        if isinstance(event, ChoiceFinished):
            self._finished = event
            return b""
        if isinstance(event, BlockDelta):
            return self._write_delta(event)
        return b""

    def _write_delta(self, event: BlockDelta) -> bytes:
        if isinstance(event, ToolCallStarted):
            return self._open_block(
                {"type": "tool_use", "id": event.id, "name": event.name, "input": {}}
            )
        if isinstance(event, ToolCallDelta):
            return self._tool_delta(event.arguments)
        if isinstance(event, ReasoningSignature):
            self._note(event)
            return b""
        if not event.text:
            # Clients must not send empty blocks back.
            return b""
        if isinstance(event, ReasoningDelta):
            self._note(event)
            return self._text("thinking", event.text)
        self._refused = self._refused or isinstance(event, RefusalDelta)
        return self._text("text", event.text)

    def _text(self, kind: str, text: str) -> bytes:
        opened = b"" if self._open == kind else self._open_block(_EMPTY[kind])
        return opened + self._delta(f"{kind}_delta", kind, text)

    def _tool_delta(self, arguments: str) -> bytes:
        if self._open != "tool_use" or not arguments:
            # Arguments without a call have no legal rendering.
            return b""
        return self._delta("input_json_delta", "partial_json", arguments)

    def _delta(self, kind: str, field: str, text: str) -> bytes:
        return render_event(
            "content_block_delta", {"index": self._index, "delta": {"type": kind, field: text}}
        )

    def _open_block(self, block: Mapping[str, object]) -> bytes:
        closed = self._stop_block()
        self._index += 1
        self._open = str(block["type"])
        return closed + render_event(
            "content_block_start", {"index": self._index, "content_block": block}
        )

    def _stop_block(self) -> bytes:
        if self._open is None:
            return b""
        self._open = None
        return render_event("content_block_stop", {"index": self._index})

    def _end_block(self, block: int) -> bytes:
        builder = self._reasoning_builders.pop(block, None)
        reasoning = None if builder is None else builder.block(0, block)
        proof = self._end_reasoning(reasoning) if isinstance(reasoning, ReasoningBlock) else b""
        return proof + self._stop_block()

    def _note(self, event: ReasoningDelta | ReasoningSignature) -> None:
        self._reasoning_builders.setdefault(event.block, ResponseBuilder()).add(event)

    def _end_reasoning(self, reasoning: ReasoningBlock) -> bytes:
        rendered = render_reasoning(reasoning)
        if rendered["type"] == "redacted_thinking":
            return self._open_block(rendered)
        opened = b"" if self._open == "thinking" else self._open_block(_EMPTY["thinking"])
        return opened + self._delta("signature_delta", "signature", str(rendered["signature"]))


_EMPTY: Mapping[str, Mapping[str, object]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}
