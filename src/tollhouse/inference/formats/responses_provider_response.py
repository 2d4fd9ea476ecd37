"""Decodes a provider's responses and streams to the canonical form. Pure.

    output_item.added ── deltas ── output_item.done      one block for each part, and its end
    response.completed | response.incomplete             ChoiceFinished, UsageReported

A part without deltas is taken from the end of its item; a stream without items from the terminal
event's response. Events of unknown types are skipped.

Source: https://platform.openai.com/docs/api-reference/responses/object and .../responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.translation import StreamDecoder
from tollhouse.inference.formats.canonical.types import (
    OPENAI,
    Block,
    BlockEnded,
    CanonicalResponse,
    Choice,
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
    UsageReported,
)
from tollhouse.inference.formats.provider_errors import not_of_dialect, read_error
from tollhouse.inference.formats.responses_order import ITEM_EVENTS, ItemOrder, whole_items
from tollhouse.inference.formats.responses_tools import type_decoder
from tollhouse.inference.formats.responses_wire import (
    CALL_TYPES,
    FAILURE_EVENTS,
    TERMINAL_EVENTS,
    ResponsesCall,
    ResponsesPart,
    ResponsesReasoningItem,
    call_decoder,
    counts_of,
    message_decoder,
    output_items,
    parse_failure_event,
    parse_finish_reason,
    reasoning_decoder,
    response_decoder,
)
from tollhouse.inference.formats.usage import Counts, find_counts, later, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    fields_decoder,
    id_text,
    is_done,
    raw,
    read_id,
    replace_invalid_text,
    try_decode,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.inference.formats.canonical.types import CanonicalEvent
    from tollhouse.inference.formats.wire import Fields


PARAGRAPH: Final = "\n\n"
"""Joins the parts of a summary, which are one text in canonical form."""


def parse_response(body: bytes) -> CanonicalResponse:
    """Parse a complete response that has ended; raises `MalformedResponse` and `ErrorEvent`."""
    try:
        body = replace_invalid_text(body)
        response = response_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedResponse("the reply is no response") from None
    if response.error != NULL:
        raise read_error(response.error)
    given = output_items(response)
    blocks: list[Block] = []
    tokens: list[Raw] = []
    try:
        items = list(map(raw, whole_items(map(fields_decoder.decode, given))))
        for item in items:
            blocks += _item(item, tokens)
    except (msgspec.DecodeError, RecursionError):
        raise MalformedResponse("an item of the response is not what its type promises") from None
    calls = any(isinstance(block, ToolCall) for block in blocks)
    finish_reason, native = parse_finish_reason(response, calls=calls)
    choice = Choice(
        blocks=tuple(blocks),
        finish_reason=finish_reason,
        native_finish_reason=native,
        logprobs=_chat_logprobs(tokens),
    )
    return CanonicalResponse(
        choices=(choice,),
        usage=usage_of(counts_of(response, body)),
        upstream_id=id_text(response.id),
        service_tier=response.service_tier,
    )


def _item(item: Raw, tokens: list[Raw]) -> Sequence[Block]:
    """Return the blocks of an item; add the log-probabilities of its text."""
    kind = type_decoder.decode(item).type
    if kind == "message":
        parts = message_decoder.decode(item).content
        for part in parts:
            tokens += part.logprobs or ()
        return [block for block in map(_content, parts) if block is not None]
    if kind in CALL_TYPES:
        return [_parse_call(call_decoder.decode(item), freeform=kind == "custom_tool_call")]
    if kind == "reasoning":
        return _parse_reasoning(reasoning_decoder.decode(item))
    return ()


def _content(part: ResponsesPart) -> Block | None:
    if part.type == "output_text":
        return TextBlock(part.text)
    return RefusalBlock(part.refusal) if part.type == "refusal" else None


def _parse_call(call: ResponsesCall, *, freeform: bool) -> ToolCall:
    """Convert a call; the text of a custom call becomes the field `input` of an object."""
    arguments = encoder.encode({"input": call.input}).decode() if freeform else call.arguments
    return ToolCall(call.call_id, call.name, arguments)


def _parse_reasoning(item: ResponsesReasoningItem) -> list[ReasoningBlock]:
    """Convert a reasoning item: its summary, its text, or only its encrypted content.

    The encrypted content is attached to the last block.
    """
    blocks: list[ReasoningBlock] = []
    if summary := PARAGRAPH.join(part.text for part in item.summary or ()):
        blocks.append(ReasoningBlock(text=summary, is_summary=True, format=OPENAI))
    if reasoning_text := "".join(part.text for part in item.content or ()):
        blocks.append(ReasoningBlock(text=reasoning_text, format=OPENAI))
    if item.encrypted_content and not blocks:
        blocks.append(ReasoningBlock(format=OPENAI))
    if blocks:
        proof = {"encrypted": item.encrypted_content, "id": item.id}
        blocks[-1] = msgspec.structs.replace(blocks[-1], **proof)
    return blocks


def _chat_logprobs(tokens: Sequence[Raw] | None) -> Raw | None:
    """Return tokens as the chat format's `logprobs` object; None if there are none."""
    return raw({"content": tokens, "refusal": None}) if tokens else None


# Streams

Kind = Literal["text", "refusal", "summary", "reasoning", "call"]


class _Event(msgspec.Struct):
    """An event's type; a server that fails may send an `error` instead."""

    type: str | None = None
    error: Raw = NULL


class _Delta(msgspec.Struct):
    output_index: int | None = None
    delta: str | None = None
    content_index: int = 0
    summary_index: int = 0
    logprobs: list[Raw] | None = None
    item_id: str | None = None

    @property
    def place(self) -> tuple[int | None, str | None, int, int]:
        """Where it belongs: one delta of a text is like the next."""
        return self.output_index, self.item_id, self.content_index, self.summary_index


class _ItemEvent(msgspec.Struct):
    output_index: int
    item: Raw


class _Lifecycle(msgspec.Struct):
    response: Raw


_event = msgspec.json.Decoder(_Event)
_delta = msgspec.json.Decoder(_Delta)
_item_event = msgspec.json.Decoder(_ItemEvent)
_lifecycle = msgspec.json.Decoder(_Lifecycle)
_DELTAS: Final[Mapping[str, Kind]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
}
_ALIKE: Final = frozenset(_DELTAS) - {"response.function_call_arguments.delta"}
_PARTS: Final = frozenset({"text", "refusal"})
"""Kinds whose content index identifies a block of its own."""


class _OpenItem:
    """An item that has not ended, and the blocks of its parts."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[Kind, int], int] = {}
        self.last: int | None = None
        self.summary_index = 0
        self.has_arguments = False


class ResponsesStreamDecoder(StreamDecoder):
    """Decodes a stream of responses events."""

    def __init__(self) -> None:
        self._open: dict[int, _OpenItem] = {}
        self._seen: set[int] = set()
        self._blocks = 0
        self._calls = False
        self._order = ItemOrder()
        self._counts: Counts = {}
        self._last: tuple[int | None, str | None, int, int] | None = None
        """Where the last delta of a text belonged."""

    def _decode(self, data: bytes) -> Sequence[CanonicalEvent]:
        if is_done(data):
            return ()
        data = replace_invalid_text(data)
        try:
            return self._read(_event.decode(data), data)
        except (msgspec.DecodeError, RecursionError):
            problem = "an event of the stream is not what its type promises"
            raise not_of_dialect(data, problem) from None

    def _read(self, event: _Event, data: bytes) -> Sequence[CanonicalEvent]:
        kind = event.type
        if kind in FAILURE_EVENTS or (kind is None and event.error != NULL):
            raise parse_failure_event(data)
        if kind is None:
            raise not_of_dialect(data, "an event of the stream has no type")
        if kind.startswith(ITEM_EVENTS):
            if kind in _ALIKE:
                delta = _delta.decode(data)
                if self._last == delta.place and delta.delta is not None:
                    self._order.last_text.append(delta.delta)
                    return self._delta(_DELTAS[kind], delta)
            self._last = None
            fields = fields_decoder.decode(data)
            self._counts = later(self._counts, find_counts(fields))
            told = self._order.accept(kind, fields)
            return [event for each in told for event in self._take(*each)]
        if kind in TERMINAL_EVENTS:
            return self._finish(_lifecycle.decode(data).response, fields_decoder.decode(data))
        if kind == "response.created":
            response = fields_decoder.decode(_lifecycle.decode(data).response)
            self._counts = later(self._counts, find_counts(response))
            return (StreamStarted(read_id(response)),)
        return ()

    def _after_end(self, data: bytes) -> list[CanonicalEvent]:
        return self._reported(find_counts(try_decode(fields_decoder, data) or {}))

    def _reported(self, counts: Counts) -> list[CanonicalEvent]:
        self._counts = later(self._counts, counts)
        usage = usage_of(self._counts)
        return [] if usage is None else [UsageReported(usage)]

    def _take(self, kind: str, fields: Fields) -> Sequence[CanonicalEvent]:
        data = raw(fields)
        if kind in _DELTAS:
            delta = _delta.decode(data)
            self._last = delta.place if kind in _ALIKE else None
            return self._delta(_DELTAS[kind], delta)
        if kind == "response.output_item.added":
            added = _item_event.decode(data)
            return self._add(added.output_index, added.item)
        if kind == "response.output_item.done":
            done = _item_event.decode(data)
            return self._end(done.output_index, done.item)
        return ()

    def _delta(self, kind: Kind, event: _Delta) -> Sequence[CanonicalEvent]:
        item = self._open.get(-1 if event.output_index is None else event.output_index)
        if item is None:
            raise MalformedResponse("a part of the reply comes outside of its item")
        if kind == "call":
            return self._arguments(item, event.delta or "")
        text = event.delta or ""
        if kind == "summary" and event.summary_index != item.summary_index:
            item.summary_index = event.summary_index
            text = PARAGRAPH + text
        part = event.content_index if kind in _PARTS else 0
        return self._part_events(item, kind, part, text, event.logprobs)

    def _part_events(
        self, item: _OpenItem, kind: Kind, part: int, text: str, logprobs: list[Raw] | None = None
    ) -> list[CanonicalEvent]:
        """Return more of a part; a new part ends the one before."""
        ended: list[CanonicalEvent] = []
        if (kind, part) not in item.blocks:
            ended = _ends(item)
            item.last = item.blocks[kind, part] = self._new_block()
        block = item.blocks[kind, part]
        if kind == "text":
            return [*ended, TextDelta(0, block, text, _chat_logprobs(logprobs))]
        if kind == "refusal":
            return [*ended, RefusalDelta(0, block, text)]
        return [*ended, ReasoningDelta(0, block, text, is_summary=kind == "summary")]

    def _new_block(self) -> int:
        self._blocks += 1
        return self._blocks - 1

    def _arguments(self, item: _OpenItem, text: str) -> list[CanonicalEvent]:
        block = item.blocks.get(("call", 0))
        if block is None:
            raise MalformedResponse("arguments come outside of a call")
        item.has_arguments = True
        return [ToolCallDelta(0, block, text)]

    def _add(self, index: int, data: Raw) -> list[CanonicalEvent]:
        if index in self._seen:
            raise MalformedResponse("an item of the reply begins twice")
        self._seen.add(index)
        item = self._open[index] = _OpenItem()
        if type_decoder.decode(data).type not in CALL_TYPES:
            return []
        call = call_decoder.decode(data)
        self._calls = True
        item.last = item.blocks["call", 0] = self._new_block()
        return [ToolCallStarted(0, item.last, call.call_id, call.name)]

    def _end(self, index: int, data: Raw) -> list[CanonicalEvent]:
        added = [] if index in self._seen else self._add(index, data)
        item = self._open.pop(index, None)
        if item is None:
            raise MalformedResponse("an item of the reply ends twice")
        return [*added, *self._rest(item, data), *_ends(item)]

    def _rest(self, item: _OpenItem, data: Raw) -> list[CanonicalEvent]:
        """Return the content of an item's end that was not streamed before."""
        kind = type_decoder.decode(data).type
        if kind == "message":
            return self._rest_of_message(item, message_decoder.decode(data).content)
        if kind == "reasoning":
            return self._rest_of_reasoning(item, reasoning_decoder.decode(data))
        if kind in CALL_TYPES and not item.has_arguments:
            call = _parse_call(call_decoder.decode(data), freeform=kind == "custom_tool_call")
            return self._arguments(item, call.arguments) if call.arguments else []
        return []

    def _rest_of_message(
        self, item: _OpenItem, parts: Sequence[ResponsesPart]
    ) -> list[CanonicalEvent]:
        rest: list[CanonicalEvent] = []
        for index, part in enumerate(parts):
            kind: Kind = "refusal" if part.type == "refusal" else "text"
            text = part.refusal if kind == "refusal" else part.text
            if text and (kind, index) not in item.blocks:
                rest += self._part_events(item, kind, index, text, part.logprobs)
        return rest

    def _rest_of_reasoning(
        self, item: _OpenItem, end: ResponsesReasoningItem
    ) -> list[CanonicalEvent]:
        rest: list[CanonicalEvent] = []
        for block in _parse_reasoning(end):
            kind: Kind = "summary" if block.is_summary else "reasoning"
            if block.text and (kind, 0) not in item.blocks:
                rest += self._part_events(item, kind, 0, block.text)
        if item.last is None:
            if not end.encrypted_content:
                return rest
            item.last = self._new_block()
        proof = ReasoningSignature(
            0, item.last, encrypted=end.encrypted_content, id=end.id, format=OPENAI
        )
        return [*rest, proof]

    def _finish(self, given: Raw, event: Fields) -> list[CanonicalEvent]:
        response = response_decoder.decode(given)
        told, _ = self._order.finish(response.output or ())
        events = [shown for each in told for shown in self._take(*each)]
        finish_reason, native = parse_finish_reason(response, calls=self._calls)
        self.done = True
        reported = self._reported(counts_of(response, given, event))
        return [*events, ChoiceFinished(0, finish_reason, native), *reported]


def _ends(item: _OpenItem) -> list[CanonicalEvent]:
    """Return the end of the last block, if there is one."""
    return [] if item.last is None else [BlockEnded(0, item.last)]
