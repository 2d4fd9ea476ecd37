"""Encodes canonical events as a chat stream. Pure.

    chunk* (usage | error) [DONE]

Each choice begins with its role and ends with its `finish_reason`; later events of the choice are
rejected, so that the stream is always legal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.events import (
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    RefusalDelta,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.chat_completions.errors import error_chunk, render_stream_error
from tollhouse.inference.formats.chat_completions.usage import asks_for_usage, render_usage
from tollhouse.inference.formats.chat_completions.wire import DONE, EMPTY_CHOICE
from tollhouse.inference.formats.raw_json import join_lines
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.inference.sse import event as sse_event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.events import BlockDelta
    from tollhouse.inference.formats.fields import Fields
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_EVENTS_WITHOUT_CHUNK: Final = (StreamStarted, UsageReported, BlockEnded)
_encode = msgspec.json.Encoder().encode


class ChatStreamEncoder:
    """Implements `formats.canonical.ports.StreamEncoder`."""

    def __init__(self, request: Fields, identity: ReplyIdentity) -> None:
        """Start before the first chunk.

        Args:
            request: The client's request fields, which determine the last chunk.
            identity: The response's.
        """
        self._request = request
        self._identity = identity
        self._choices: dict[int, _ChoiceEncoder] = {}
        self._stream_end = StreamEnd("chat")

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the chunk of an event; empty if the format has none for it.

        Raises:
            MalformedResponse: A finished choice received more output.
        """
        if isinstance(event, _EVENTS_WITHOUT_CHUNK):
            return b""
        choice = self._choices.setdefault(event.choice, _ChoiceEncoder(event.choice))
        return self._chunk(
            [choice.finish(event) if isinstance(event, ChoiceFinished) else choice.encode(event)]
        )

    def end(self, charge: Charge) -> bytes:
        """Return the usage chunk and `[DONE]`."""
        self._stream_end.mark_written()
        choices = [] if asks_for_usage(self._request) else [EMPTY_CHOICE]
        return self._chunk(choices, usage=render_usage(charge, is_byok=False)) + sse_event(DONE)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        self._stream_end.mark_written()
        return render_stream_error(error, error_chunk(self._identity))

    def _chunk(self, choices: Sequence[Mapping[str, object]], **more: object) -> bytes:
        identity = self._identity
        fields: dict[str, object] = {
            "id": identity.id,
            "object": "chat.completion.chunk",
            "created": identity.created,
            "model": identity.model,
            "provider": identity.provider,
            "choices": choices,
            **more,
        }
        return sse_event(join_lines(_encode(fields)))


class _ChoiceEncoder:
    """Encodes one choice: its role once, its tool calls numbered, nothing after its end."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._begun = False
        self._finished = False
        self._calls: dict[int, int] = {}
        """The number of the call by block."""
        self._details: dict[tuple[int, str], int] = {}
        """The number of the detail by block and kind."""

    def encode(self, event: BlockDelta) -> dict[str, object]:
        """Return the choice of a chunk with more output."""
        logprobs = event.logprobs if isinstance(event, TextDelta) else None
        return self._choice(self._delta(event), logprobs=logprobs)

    def finish(self, event: ChoiceFinished) -> dict[str, object]:
        """Return the choice of the last chunk."""
        choice = self._choice({}, finish_reason=event.finish_reason)
        self._finished = True
        return {**choice, "native_finish_reason": event.native_finish_reason}

    def _choice(
        self,
        delta: dict[str, object],
        *,
        finish_reason: str | None = None,
        logprobs: object = None,
    ) -> dict[str, object]:
        if self._finished:
            message = "a choice goes on after its end"
            raise MalformedResponse(message)
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", "content": "", **delta}
        return {
            "index": self._index,
            "delta": delta,
            "finish_reason": finish_reason,
            "logprobs": logprobs,
        }

    def _delta(self, event: BlockDelta) -> dict[str, object]:
        if isinstance(event, TextDelta):
            return {"content": event.text}
        if isinstance(event, RefusalDelta):
            return {"refusal": event.text}
        if isinstance(event, ReasoningDelta):
            return self._reasoning(event)
        if isinstance(event, ReasoningSignature):
            return {"reasoning_details": self._signature(event)}
        return {"tool_calls": [self._call(event)]}

    def _reasoning(self, event: ReasoningDelta) -> dict[str, object]:
        name = "summary" if event.is_summary else "text"
        detail = {"type": f"reasoning.{name}", name: event.text, "id": None, "format": None}
        index = self._detail(event.block, name)
        return {"reasoning": event.text, "reasoning_details": [{**detail, "index": index}]}

    def _signature(self, event: ReasoningSignature) -> list[dict[str, object]]:
        common = {"id": event.id, "format": event.format}
        details: list[dict[str, object]] = []
        if event.signature is not None:
            index = self._detail(event.block, "text")
            text = {"type": "reasoning.text", "text": "", "signature": event.signature}
            details.append({**text, **common, "index": index})
        if event.encrypted is not None:
            index = self._detail(event.block, "encrypted")
            data = {"type": "reasoning.encrypted", "data": event.encrypted}
            details.append({**data, **common, "index": index})
        return details

    def _detail(self, block: int, kind: str) -> int:
        return self._details.setdefault((block, kind), len(self._details))

    def _call(self, event: ToolCallStarted | ToolCallDelta) -> dict[str, object]:
        index = self._calls.setdefault(event.block, len(self._calls))
        if isinstance(event, ToolCallDelta):
            return {"index": index, "function": {"arguments": event.arguments}}
        function = {"name": event.name, "arguments": ""}
        return {"index": index, "id": event.id, "type": "function", "function": function}
