"""A provider's messages stream, as the hub's events.

Blocks that the hub has no word for (what the provider's own tools did) and citations are passed
over; the blocks around them are numbered as if they had not been.

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.hub.events import (
    BlockEnded,
    Event,
    Finished,
    ReasoningDelta,
    ReasoningProof,
    Reported,
    Started,
    TextDelta,
    ToolDelta,
    ToolStarted,
)
from tollhouse.inference.formats.hub.parts import Reasoning, Text, ToolCall
from tollhouse.inference.formats.hub.reasoning import ANTHROPIC
from tollhouse.inference.formats.messages.order import Order, read_event
from tollhouse.inference.formats.messages.reply import read_block
from tollhouse.inference.formats.messages.usage import parse_input, parse_report, read_fields
from tollhouse.inference.formats.messages.wire import normal_finish_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.fields import Fields
    from tollhouse.inference.formats.messages.wire import ContentBlock, Delta, StreamEvent


class MessagesReader:
    """One stream's state; fulfils `hub.ports.Reader`."""

    def __init__(self) -> None:
        """Start before the first event."""
        self._order = Order()
        self._block = -1
        """The hub's number of the open block, or of the last."""
        self._open: _OpenBlock | None = None
        self._finished = False
        self._first_usage: Fields = {}
        self._last_usage: Fields = {}

    @property
    def done(self) -> bool:
        """Whether the dialect's own end came: nothing follows."""
        return self._order.done

    @property
    def complete(self) -> bool:
        """Whether a clean end of the body is an end of the reply, too."""
        return self._order.complete

    def feed(self, data: bytes) -> Sequence[Event]:
        """Take the data of one of the provider's events; return what it says.

        Raises:
            Unreadable: It is none of the dialect, or out of order.
            ErrorEvent: The provider says that it failed.
        """
        if self.done or (event := read_event(data)) is None:
            return ()
        self._order.take(event)
        if event.type == "content_block_stop":
            return self._end_block()
        if event.type == "content_block_start" and event.content_block is not None:
            return self._start_block(event.content_block)
        if event.type == "content_block_delta" and event.delta is not None:
            return () if self._open is None else self._open.take(event.delta)
        if event.type == "message_start":
            return self._start(event)
        return self._delta(event) if event.type == "message_delta" else ()

    def _start(self, event: StreamEvent) -> list[Event]:
        if event.message is None:
            return []
        self._first_usage = read_fields(event.message.usage)
        return [Started(event.message.id, parse_input(self._first_usage))]

    def _start_block(self, block: ContentBlock) -> list[Event]:
        opened = _OpenBlock(block, self._block + 1)
        if opened.kind is None:
            return []
        self._open = opened
        self._block += 1
        return opened.start()

    def _end_block(self) -> list[Event]:
        ended = [] if self._open is None else self._open.end()
        self._open = None
        return ended

    def _delta(self, event: StreamEvent) -> list[Event]:
        self._last_usage |= read_fields(event.usage)
        said: list[Event] = []
        native = event.delta.stop_reason if event.delta else None
        if event.delta is not None and native is not None and not self._finished:
            self._finished = True
            sequence = event.delta.stop_sequence
            said.append(Finished(0, normal_finish_reason(native), native, sequence))
        usage = parse_report(self._first_usage, self._last_usage)
        return [*said, Reported(usage)] if usage is not None else said


class _OpenBlock:
    """A block on its way."""

    def __init__(self, first: ContentBlock, number: int) -> None:
        self.kind = _KINDS.get(first.type)
        self._first = first
        self._number = number
        self._has_arguments = False
        self._signature = first.signature

    def start(self) -> list[Event]:
        if self.kind is ToolCall:
            return [ToolStarted(0, self._number, self._first.id or "", self._first.name or "")]
        said = self._first.thinking if self.kind is Reasoning else self._first.text
        return self._say(said)

    def take(self, delta: Delta) -> list[Event]:
        if delta.type == "signature_delta":
            self._signature = delta.signature
        if delta.type == "input_json_delta" and delta.partial_json:
            self._has_arguments = True
            return [ToolDelta(0, self._number, delta.partial_json)]
        if delta.type in {"text_delta", "thinking_delta"}:
            return self._say(delta.thinking if self.kind is Reasoning else delta.text)
        return []

    def end(self) -> list[Event]:
        return [*self._rest(), BlockEnded(0, self._number)]

    def _say(self, text: str | None) -> list[Event]:
        if not text:
            return []
        if self.kind is Reasoning:
            return [ReasoningDelta(0, self._number, text)]
        return [TextDelta(0, self._number, text)]

    def _rest(self) -> list[Event]:
        """Return what came with the block's start, or is known at its end only."""
        whole = read_block(self._first)
        if isinstance(whole, ToolCall) and not self._has_arguments:
            return [ToolDelta(0, self._number, whole.arguments)]
        if self.kind is not Reasoning:
            return []
        encrypted = whole.encrypted if isinstance(whole, Reasoning) else None
        proof = self._signature or None
        return [ReasoningProof(0, self._number, proof, encrypted, format=ANTHROPIC)]


_KINDS = {
    "text": Text,
    "tool_use": ToolCall,
    "thinking": Reasoning,
    "redacted_thinking": Reasoning,
}
"""What the hub has a word for."""
