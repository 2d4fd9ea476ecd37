"""Decodes a provider's messages stream to canonical events.

Blocks without a canonical form (of the provider's own tools) and citations are skipped; the
remaining blocks are numbered without gaps.

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.canonical.blocks import ReasoningBlock, TextBlock, ToolCall
from tollhouse.inference.formats.canonical.events import (
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    ReasoningDelta,
    ReasoningSignature,
    StreamStarted,
    TextDelta,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.canonical.reasoning import ANTHROPIC
from tollhouse.inference.formats.messages.canonical_response import parse_block
from tollhouse.inference.formats.messages.event_order import MessagesEventOrder, decode_event
from tollhouse.inference.formats.messages.usage import parse_input, parse_report, read_fields
from tollhouse.inference.formats.messages.wire import normalize_finish_reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.fields import Fields
    from tollhouse.inference.formats.messages.wire import ContentBlock, MessagesDelta, MessagesEvent


class MessagesStreamDecoder:
    """Implements `canonical.ports.StreamDecoder`."""

    def __init__(self) -> None:
        self._order = MessagesEventOrder()
        self._block = -1
        """The canonical number of the open or the last block."""
        self._open: _OpenBlock | None = None
        self._finished = False
        self._first_usage: Fields = {}
        self._last_usage: Fields = {}

    @property
    def done(self) -> bool:
        """Whether the dialect's terminal event arrived; nothing follows it."""
        return self._order.done

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._order.complete

    def feed(self, data: bytes) -> Sequence[CanonicalEvent]:
        """Consume the data of one provider event; return the canonical events.

        Raises:
            MalformedResponse: The event is not of the dialect, or is out of order.
            ErrorEvent: The provider reported an error.
        """
        if self.done or (event := decode_event(data)) is None:
            return ()
        self._order.accept(event)
        if event.type == "content_block_stop":
            return self._end_block()
        if event.type == "content_block_start" and event.content_block is not None:
            return self._start_block(event.content_block)
        if event.type == "content_block_delta" and event.delta is not None:
            return () if self._open is None else self._open.take(event.delta)
        if event.type == "message_start":
            return self._start(event)
        return self._delta(event) if event.type == "message_delta" else ()

    def _start(self, event: MessagesEvent) -> list[CanonicalEvent]:
        if event.message is None:
            return []
        self._first_usage = read_fields(event.message.usage)
        return [StreamStarted(event.message.id, parse_input(self._first_usage))]

    def _start_block(self, block: ContentBlock) -> list[CanonicalEvent]:
        opened = _OpenBlock(block, self._block + 1)
        if opened.kind is None:
            return []
        self._open = opened
        self._block += 1
        return opened.start()

    def _end_block(self) -> list[CanonicalEvent]:
        ended = [] if self._open is None else self._open.end()
        self._open = None
        return ended

    def _delta(self, event: MessagesEvent) -> list[CanonicalEvent]:
        self._last_usage |= read_fields(event.usage)
        events: list[CanonicalEvent] = []
        native = event.delta.stop_reason if event.delta else None
        if event.delta is not None and native is not None and not self._finished:
            self._finished = True
            sequence = event.delta.stop_sequence
            events.append(ChoiceFinished(0, normalize_finish_reason(native), native, sequence))
        usage = parse_report(self._first_usage, self._last_usage)
        return [*events, UsageReported(usage)] if usage is not None else events


class _OpenBlock:
    """A block that has not ended."""

    def __init__(self, first: ContentBlock, number: int) -> None:
        self.kind = _KINDS.get(first.type)
        self._first = first
        self._number = number
        self._has_arguments = False
        self._signature = first.signature

    def start(self) -> list[CanonicalEvent]:
        if self.kind is ToolCall:
            return [ToolCallStarted(0, self._number, self._first.id or "", self._first.name or "")]
        text = self._first.thinking if self.kind is ReasoningBlock else self._first.text
        return self._text_event(text)

    def take(self, delta: MessagesDelta) -> list[CanonicalEvent]:
        if delta.type == "signature_delta":
            self._signature = delta.signature
        if delta.type == "input_json_delta" and delta.partial_json:
            self._has_arguments = True
            return [ToolCallDelta(0, self._number, delta.partial_json)]
        if delta.type in {"text_delta", "thinking_delta"}:
            return self._text_event(delta.thinking if self.kind is ReasoningBlock else delta.text)
        return []

    def end(self) -> list[CanonicalEvent]:
        return [*self._rest(), BlockEnded(0, self._number)]

    def _text_event(self, text: str | None) -> list[CanonicalEvent]:
        if not text:
            return []
        if self.kind is ReasoningBlock:
            return [ReasoningDelta(0, self._number, text)]
        return [TextDelta(0, self._number, text)]

    def _rest(self) -> list[CanonicalEvent]:
        """Return content of the block's start, or that is known only at its end."""
        block = parse_block(self._first)
        if isinstance(block, ToolCall) and not self._has_arguments:
            return [ToolCallDelta(0, self._number, block.arguments)]
        if self.kind is not ReasoningBlock:
            return []
        encrypted = block.encrypted if isinstance(block, ReasoningBlock) else None
        proof = self._signature or None
        return [ReasoningSignature(0, self._number, proof, encrypted, format=ANTHROPIC)]


_KINDS = {
    "text": TextBlock,
    "tool_use": ToolCall,
    "thinking": ReasoningBlock,
    "redacted_thinking": ReasoningBlock,
}
"""The block types that have a canonical form."""
