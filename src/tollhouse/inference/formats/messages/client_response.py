"""Renders canonical responses and streams in the messages format, always in a legal order. Pure.

    message_start (content_block_start content_block_delta* content_block_stop)*
    message_delta message_stop   |   error

One block is open at a time. The signature of reasoning is sent at the end of its block.

Source: https://docs.anthropic.com/en/api/messages, "response", and
https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.accounting.types import Charge, Usage
from tollhouse.inference.formats.canonical.stream import (
    BlockSequencer,
    ResponseBuilder,
    arguments_object,
)
from tollhouse.inference.formats.canonical.translation import ClientFormat, StreamEncoder
from tollhouse.inference.formats.canonical.types import (
    Block,
    BlockDelta,
    BlockEnded,
    CanonicalEvent,
    CanonicalResponse,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    RefusalBlock,
    RefusalDelta,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
)
from tollhouse.inference.formats.event_template import EventTemplate
from tollhouse.inference.formats.messages.client_request import parse_canonical_request
from tollhouse.inference.formats.messages.wire import (
    STOP_REASONS,
    broken_off,
    error_event,
    message_fields,
    render_end,
    render_event,
    render_reasoning,
    render_tokens,
    render_usage,
)
from tollhouse.inference.formats.wire import encoder, raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.canonical.translation import TranslationSource
    from tollhouse.inference.formats.canonical.types import Choice
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


_SHOWN_TIERS: Final = {"default": "standard", "standard": "standard", "priority": "priority"}


def _stop(end: Choice | ChoiceFinished, *, refused: bool) -> dict[str, object]:
    """Return the fields that say why a choice ended; null for a failed one."""
    if refused:
        return {"stop_reason": "refusal", "stop_sequence": None}
    if end.finish_reason == "stop" and end.stop_sequence is not None:
        return {"stop_reason": "stop_sequence", "stop_sequence": end.stop_sequence}
    return {"stop_reason": STOP_REASONS.get(end.finish_reason), "stop_sequence": None}


def render_response(
    source: TranslationSource, reply: CanonicalResponse, identity: ReplyIdentity, charge: Charge
) -> bytes:
    """Return the client's body, with the first choice only."""
    del source
    choice = reply.choices[0]
    maker = identity.maker
    rendered = (_render_block(block, maker) for block in choice.blocks)
    blocks = [block for block in rendered if block is not None]
    refused = any(isinstance(block, RefusalBlock) for block in choice.blocks)
    usage = render_usage(charge, {"service_tier": _SHOWN_TIERS.get(reply.service_tier or "")})
    ours = {"content": blocks, **_stop(choice, refused=refused), "usage": usage}
    return encoder.encode(message_fields(identity, {}) | ours)


def _render_block(block: Block, maker: str) -> Mapping[str, object] | None:
    if isinstance(block, (TextBlock, RefusalBlock)):
        # Clients must not send empty text back.
        return {"type": "text", "text": block.text} if block.text else None
    if isinstance(block, ReasoningBlock):
        return render_reasoning(block, maker)
    if isinstance(block, ToolCall):
        return {
            "type": "tool_use",
            "id": block.id,
            "name": block.name,
            "input": arguments_object(block.arguments),
        }
    return None


# Streams


class MessagesStreamEncoder(StreamEncoder):
    """Encodes a stream block by block."""

    def __init__(self, source: TranslationSource, identity: ReplyIdentity) -> None:
        del source
        self._identity = identity
        self._sequence = BlockSequencer()
        self._finished: ChoiceFinished | None = None
        self._refused = False
        self._started = False
        self._index = -1
        """The index of the open or the last block."""
        self._open: str | None = None
        """The type of the open block."""
        self._template: EventTemplate | None = None
        """Of the deltas of the open block, if it is text or thinking."""
        self._reasoning_builders: dict[int, ResponseBuilder] = {}
        """The reasoning blocks that have not ended."""

    def write(self, event: CanonicalEvent) -> bytes:
        """Return what the client gets of an event; may be empty."""
        written = b"".join(map(self._write, self._sequence.feed(event)))
        if self._started:
            return written
        return self._start(event.usage if isinstance(event, StreamStarted) else None) + written

    def _end(self, charge: Charge) -> bytes:
        start = self._start(None)
        if self._finished is None:
            # A response without a finish reason has failed; its open block is closed.
            start += b"".join(map(self._write, self._sequence.feed(ChoiceFinished(0, "error"))))
        finished = self._finished or ChoiceFinished(0, "error")
        if finished.finish_reason == "error":
            return start + self._stop_block() + broken_off(self._identity)
        return start + render_end(_stop(finished, refused=self._refused), render_usage(charge))

    def _fail(self, error: TollhouseError) -> bytes:
        return error_event(error, self._identity.id)

    def _start(self, usage: Usage | None) -> bytes:
        if self._started:
            return b""
        self._started = True
        message = message_fields(self._identity, {})
        estimate = Usage(input_tokens=self._identity.input_tokens)
        message |= {"content": (), "usage": render_tokens(usage or estimate)}
        return render_event("message_start", {"message": message})

    def _write(self, event: CanonicalEvent) -> bytes:
        if isinstance(event, TextDelta):
            # Clients must not send empty blocks back.
            return self._text("text", event.text) if event.text else b""
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
        if self._template is not None:
            return self._template.fill((encoder.encode(text),))
        shown = self._delta(f"{kind}_delta", kind, text)
        self._template = EventTemplate.of(shown, {kind: raw(text)})
        return opened + shown

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
        self._template = None
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
        rendered = render_reasoning(reasoning, self._identity.maker)
        if rendered["type"] == "redacted_thinking":
            return self._open_block(rendered)
        opened = b"" if self._open == "thinking" else self._open_block(_EMPTY["thinking"])
        return opened + self._delta("signature_delta", "signature", str(rendered["signature"]))


_EMPTY: Mapping[str, Mapping[str, object]] = {
    "text": {"type": "text", "text": ""},
    "thinking": {"type": "thinking", "thinking": "", "signature": ""},
}

MESSAGES_CLIENT: Final = ClientFormat(
    parse_canonical_request, render_response, MessagesStreamEncoder
)
