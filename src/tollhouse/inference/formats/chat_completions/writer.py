"""A chat stream, written from events in no one's format. Pure.

    chunk* (usage | error) [DONE]

Each choice begins with its role and ends with its `finish_reason`; what would come after that is
refused, so that no client sees an illegal stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.base import Unreadable
from tollhouse.inference.formats.chat_completions.errors import failed_chunk, failed_stream
from tollhouse.inference.formats.chat_completions.usage import asks_for_usage, render_usage
from tollhouse.inference.formats.chat_completions.wire import DONE, SILENT_CHOICE
from tollhouse.inference.formats.ending import Ending
from tollhouse.inference.formats.hub.events import (
    BlockEnded,
    Event,
    Finished,
    ReasoningDelta,
    ReasoningProof,
    RefusalDelta,
    Reported,
    Started,
    TextDelta,
    ToolDelta,
    ToolStarted,
)
from tollhouse.inference.formats.wire import on_one_line
from tollhouse.inference.sse import event as sse_event

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.fields import Fields
    from tollhouse.inference.formats.hub.events import Delta
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_SILENT: Final = (Started, Reported, BlockEnded)
_encode = msgspec.json.Encoder().encode


class ChatWriter:
    """Fulfils `formats.hub.ports.Writer`."""

    def __init__(self, request: Fields, identity: ReplyIdentity) -> None:
        """Start before the first chunk.

        Args:
            request: The client's fields, which say what its last chunk looks like.
            identity: The reply's.
        """
        self._request = request
        self._identity = identity
        self._choices: dict[int, _Choice] = {}
        self._ending = Ending("chat")

    def write(self, event: Event) -> bytes:
        """Return the chunk of an event; empty where the format says nothing of it.

        Raises:
            Unreadable: A choice goes on after its end.
        """
        if isinstance(event, _SILENT):
            return b""
        choice = self._choices.setdefault(event.choice, _Choice(event.choice))
        return self._chunk(
            [choice.finish(event) if isinstance(event, Finished) else choice.go(event)]
        )

    def end(self, charge: Charge) -> bytes:
        """Return the usage and `[DONE]`."""
        self._ending.come()
        choices = [] if asks_for_usage(self._request) else [SILENT_CHOICE]
        return self._chunk(choices, usage=render_usage(charge, is_byok=False)) + sse_event(DONE)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a stream that broke."""
        self._ending.come()
        return failed_stream(error, failed_chunk(self._identity))

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
        return sse_event(on_one_line(_encode(fields)))


class _Choice:
    """One choice: its role once, its tool calls numbered, nothing after its end."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._begun = False
        self._finished = False
        self._calls: dict[int, int] = {}
        """Block -> the number of the call."""
        self._details: dict[tuple[int, str], int] = {}
        """Block and kind -> the number of the detail."""

    def go(self, event: Delta) -> dict[str, object]:
        """Return the choice of a chunk that goes on."""
        logprobs = event.logprobs if isinstance(event, TextDelta) else None
        return self._choice(self._delta(event), logprobs=logprobs)

    def finish(self, event: Finished) -> dict[str, object]:
        """Return the choice of its last chunk."""
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
            raise Unreadable(message)
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", "content": "", **delta}
        return {
            "index": self._index,
            "delta": delta,
            "finish_reason": finish_reason,
            "logprobs": logprobs,
        }

    def _delta(self, event: Delta) -> dict[str, object]:
        if isinstance(event, TextDelta):
            return {"content": event.text}
        if isinstance(event, RefusalDelta):
            return {"refusal": event.text}
        if isinstance(event, ReasoningDelta):
            return self._thought(event)
        if isinstance(event, ReasoningProof):
            return {"reasoning_details": self._proof(event)}
        return {"tool_calls": [self._call(event)]}

    def _thought(self, event: ReasoningDelta) -> dict[str, object]:
        name = "summary" if event.is_summary else "text"
        detail = {"type": f"reasoning.{name}", name: event.text, "id": None, "format": None}
        index = self._detail(event.block, name)
        return {"reasoning": event.text, "reasoning_details": [{**detail, "index": index}]}

    def _proof(self, event: ReasoningProof) -> list[dict[str, object]]:
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

    def _call(self, event: ToolStarted | ToolDelta) -> dict[str, object]:
        index = self._calls.setdefault(event.block, len(self._calls))
        if isinstance(event, ToolDelta):
            return {"index": index, "function": {"arguments": event.arguments}}
        function = {"name": event.name, "arguments": ""}
        return {"index": index, "id": event.id, "type": "function", "function": function}
