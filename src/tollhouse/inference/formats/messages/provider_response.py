"""Decodes a provider's messages and streams to the canonical form. Pure.

`block_order.py` puts the events in order. Blocks without a canonical form (of the provider's own
tools) and citations are skipped; the remaining blocks are numbered without gaps.

Source: https://docs.anthropic.com/en/docs/build-with-claude/streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.translation import StreamDecoder
from tollhouse.inference.formats.canonical.types import (
    ANTHROPIC,
    Block,
    BlockEnded,
    CanonicalEvent,
    CanonicalResponse,
    Choice,
    ChoiceFinished,
    ReasoningBlock,
    ReasoningDelta,
    ReasoningSignature,
    StreamStarted,
    TextBlock,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    ToolCallStarted,
    UsageReported,
)
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.messages.block_order import MessagesEventOrder, whole_call
from tollhouse.inference.formats.messages.wire import (
    ContentBlock,
    MessageObject,
    MessagesDelta,
    MessagesEvent,
    first_usage_of,
    message_decoder,
    read_fields,
    usage_of_stream,
)
from tollhouse.inference.formats.provider_errors import read_error
from tollhouse.inference.formats.usage import Counts, find_counts, later, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    fields_decoder,
    id_text,
    is_done,
    raw,
    replace_invalid_text,
    text_decoder,
    try_decode,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


# Decoding


_blocks = msgspec.json.Decoder(list[Fields])


def decode_message(body: bytes) -> tuple[Fields, MessageObject]:
    """Decode a complete response: its raw fields and its typed message.

    Raises `MalformedResponse`, or `ErrorEvent` for an error sent with a success status.
    """
    try:
        body = replace_invalid_text(body)
        fields = fields_decoder.decode(body)
        if fields.get("error", NULL) != NULL:
            raise read_error(body)
        if b"tool_use" in body and (content := try_decode(_blocks, fields.get("content", NULL))):
            ids: set[str] = set()
            fields["content"] = raw([whole_call(each, at, ids) for at, each in enumerate(content)])
            body = encoder.encode(fields)
        message = message_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        message = None
        fields = {}
    if message is None or message.content is None:
        raise MalformedResponse("the reply is not a message")
    return fields, message


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response; raises as `decode_message` does."""
    fields, message = decode_message(body)
    usage = read_fields(message.usage)
    tier = try_decode(text_decoder, usage.get("service_tier", NULL))
    parsed = (_parse_block(block) for block in message.content or ())
    blocks = tuple(block for block in parsed if block is not None)
    called = any(isinstance(block, ToolCall) for block in blocks)
    choice = Choice(
        blocks=blocks,
        finish_reason=normalize_finish_reason(message.stop_reason, called=called) or "stop",
        native_finish_reason=message.stop_reason,
        stop_sequence=message.stop_sequence,
    )
    return CanonicalResponse(
        choices=(choice,),
        usage=usage_of(find_counts(fields)),
        upstream_id=id_text(message.id),
        service_tier="default" if tier == "standard" else tier,
    )


def _parse_block(block: ContentBlock) -> Block | None:
    """Convert a block; None if it has no canonical form or is empty."""
    if block.type == "text":
        return TextBlock(block.text) if block.text else None
    if block.type == "tool_use":
        arguments = "{}" if block.input == NULL else bytes(block.input).decode()
        return ToolCall(block.id or "", block.name or "", arguments)
    if block.type == "thinking":
        signature = block.signature or None
        return ReasoningBlock(text=block.thinking or "", signature=signature, format=ANTHROPIC)
    if block.type == "redacted_thinking":
        return ReasoningBlock(encrypted=block.data or "", format=ANTHROPIC)
    return None


class MessagesStreamDecoder(StreamDecoder):
    """Decodes a stream of messages events."""

    def __init__(self) -> None:
        self._order = MessagesEventOrder()
        self._block = -1
        """The canonical number of the open or the last block."""
        self._open: _OpenBlock | None = None
        self._finished = False
        self._called = False
        self._first: Counts = {}
        self._last: Counts = {}

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._order.complete

    def _decode(self, data: bytes) -> Sequence[CanonicalEvent]:
        if is_done(data):
            return ()
        data = replace_invalid_text(data)
        told = self._order.accept(data)
        self.done = self._order.done
        if len(told) == 1:
            return self._read(*told[0])
        return [shown for each in told for shown in self._read(*each)]

    def _read(self, event: MessagesEvent, data: bytes) -> Sequence[CanonicalEvent]:
        if event.type == "content_block_stop":
            return self._end_block()
        if event.type == "content_block_start" and event.content_block is not None:
            return self._start_block(event.content_block)
        if event.type == "content_block_delta" and event.delta is not None:
            return () if self._open is None else self._open.take(event.delta)
        if event.type == "message_start":
            return self._start(event, data)
        return self._delta(event, data) if event.type in {"message_delta", "message_stop"} else ()

    def _start(self, event: MessagesEvent, data: bytes) -> list[CanonicalEvent]:
        if event.message is None:
            return []
        message = fields_decoder.decode(fields_decoder.decode(data)["message"])
        self._first = find_counts(message)
        return [StreamStarted(id_text(event.message.id), first_usage_of(self._first))]

    def _start_block(self, block: ContentBlock) -> list[CanonicalEvent]:
        opened = _OpenBlock(block, self._block + 1)
        if opened.kind is None:
            return []
        self._open = opened
        self._called = self._called or opened.kind is ToolCall
        self._block += 1
        return opened.start()

    def _end_block(self) -> list[CanonicalEvent]:
        ended = [] if self._open is None else self._open.end()
        self._open = None
        return ended

    def _delta(self, event: MessagesEvent, data: bytes) -> list[CanonicalEvent]:
        self._last = later(self._last, find_counts(fields_decoder.decode(data)))
        events: list[CanonicalEvent] = []
        native = event.delta.stop_reason if event.delta else None
        if event.delta is not None and native is not None and not self._finished:
            self._finished = True
            sequence = event.delta.stop_sequence
            reason = normalize_finish_reason(native, called=self._called) or "stop"
            events.append(ChoiceFinished(0, reason, native, sequence))
        usage = usage_of_stream(self._first, self._last)
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
            self._signature = (self._signature or "") + (delta.signature or "")
        if delta.type == "input_json_delta" and delta.partial_json:
            self._has_arguments = True
            return [ToolCallDelta(0, self._number, delta.json_text)]
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
        block = _parse_block(self._first)
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
