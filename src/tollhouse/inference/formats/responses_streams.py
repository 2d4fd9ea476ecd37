"""The streams of responses: reads those of providers, and writes those for clients. Pure.

    created  in_progress  (output_item.added ... output_item.done)*
        (completed | incomplete | failed)  [DONE]

    message      content_part.added  output_text.delta* .done | refusal.delta* .done
                 content_part.done   ... and the next part
    reasoning    reasoning_summary_part.added  reasoning_summary_text.delta* .done
                 reasoning_summary_part.done
                 | content_part.added  reasoning_text.delta* .done  content_part.done
    call         function_call_arguments.delta* .done | custom_tool_call_input.delta .done

Of a provider's stream each part is a block; a part without deltas is taken from the end of its
item, a stream without items from the terminal event's response, and unknown events are skipped. To
a client items follow one another. Consecutive text blocks are one message, so a message ends only
when an item of another type begins. An item yields pairs of an event's type and its fields; the
encoder adds the item's position.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical import (
    OPENAI,
    Block,
    BlockDelta,
    BlockEnded,
    CanonicalEvent,
    ChoiceFinished,
    FinishReason,
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
from tollhouse.inference.formats.provider_errors import not_of_dialect
from tollhouse.inference.formats.responses_items import (
    CALL_TYPES,
    PARAGRAPH,
    call_decoder,
    message_decoder,
    parse_call,
    parse_reasoning,
    reasoning_decoder,
)
from tollhouse.inference.formats.responses_order import ITEM_EVENTS, NOT_OF_TYPE, ItemOrder
from tollhouse.inference.formats.responses_replies import (
    DONE_EVENT,
    FAILURE_EVENTS,
    INCOMPLETE,
    NO_ARGUMENTS,
    TERMINAL_EVENTS,
    JsonObject,
    NumberedEventWriter,
    blank_response,
    call_item,
    chat_logprobs,
    content_part,
    counts_of,
    finished_response,
    interrupted_response,
    item_id,
    message_item,
    output_options,
    parse_failure_event,
    parse_finish_reason,
    reasoning_item,
    reasoning_part,
    response_decoder,
    text_logprobs,
)
from tollhouse.inference.formats.responses_tools import type_decoder
from tollhouse.inference.formats.sequencing import BlockSequencer, ResponseBuilder
from tollhouse.inference.formats.translation import StreamDecoder, StreamEncoder
from tollhouse.inference.formats.usage import Counts, find_counts, later, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    EventTemplate,
    Fields,
    encoder,
    fields_decoder,
    is_done,
    raw,
    read_id,
    replace_invalid_text,
    try_decode,
)
from tollhouse.kernel.errors import Bug, TollhouseError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.responses_tools import CallForm
    from tollhouse.inference.formats.translation import TranslationSource
    from tollhouse.inference.types import ReplyIdentity


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


_event = msgspec.json.Decoder(_Event)
_delta = msgspec.json.Decoder(_Delta)
_index = msgspec.json.Decoder(int)
_DELTAS: Final[Mapping[str, Kind]] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_text.delta": "reasoning",
    "response.function_call_arguments.delta": "call",
}
_ALIKE: Final = frozenset(_DELTAS) - {"response.function_call_arguments.delta"}


class _OpenItem:
    """An item that has not ended, and the blocks of its parts."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[Kind, int], int] = {}
        self.last: int | None = None
        self.summary_index = 0
        self.has_arguments = False

    def ends(self) -> list[CanonicalEvent]:
        return [] if self.last is None else [BlockEnded(0, self.last)]


class ResponsesStreamDecoder(StreamDecoder):
    """Decodes a stream of responses events."""

    def __init__(self) -> None:
        self._items: dict[int, _OpenItem | None] = {}
        """Those that have begun; None once they ended."""
        self._blocks = count()
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
        except (msgspec.DecodeError, RecursionError, KeyError):
            raise not_of_dialect(data, NOT_OF_TYPE) from None

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
            fields = fields_decoder.decode(data)
            return self._finish(fields["response"], fields)
        if kind == "response.created":
            response = fields_decoder.decode(fields_decoder.decode(data)["response"])
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
        if kind in _DELTAS:
            delta = _delta.decode(raw(fields))
            self._last = delta.place if kind in _ALIKE else None
            return self._delta(_DELTAS[kind], delta)
        if kind == "response.output_item.added":
            return self._add(_index.decode(fields["output_index"]), fields["item"])
        if kind == "response.output_item.done":
            return self._end(_index.decode(fields["output_index"]), fields["item"])
        return ()

    def _delta(self, kind: Kind, event: _Delta) -> Sequence[CanonicalEvent]:
        item = self._items.get(-1 if event.output_index is None else event.output_index)
        if item is None:
            raise MalformedResponse("a part of the reply comes outside of its item")
        if kind == "call":
            return self._arguments(item, event.delta or "")
        text = event.delta or ""
        if kind == "summary" and event.summary_index != item.summary_index:
            item.summary_index = event.summary_index
            text = PARAGRAPH + text
        part = event.content_index if kind in {"text", "refusal"} else 0
        return self._part_events(item, kind, part, text, event.logprobs)

    def _part_events(
        self, item: _OpenItem, kind: Kind, part: int, text: str, logprobs: list[Raw] | None
    ) -> list[CanonicalEvent]:
        """Return more of a part; a new part ends the one before."""
        ended: list[CanonicalEvent] = []
        if (kind, part) not in item.blocks:
            ended = item.ends()
            item.last = item.blocks[kind, part] = next(self._blocks)
        block = item.blocks[kind, part]
        if kind == "text":
            return [*ended, TextDelta(0, block, text, chat_logprobs(logprobs))]
        if kind == "refusal":
            return [*ended, RefusalDelta(0, block, text)]
        return [*ended, ReasoningDelta(0, block, text, is_summary=kind == "summary")]

    def _arguments(self, item: _OpenItem, text: str) -> list[CanonicalEvent]:
        block = item.blocks.get(("call", 0))
        if block is None:
            raise MalformedResponse("arguments come outside of a call")
        item.has_arguments = True
        return [ToolCallDelta(0, block, text)]

    def _add(self, index: int, data: Raw) -> list[CanonicalEvent]:
        if index in self._items:
            raise MalformedResponse("an item of the reply begins twice")
        item = self._items[index] = _OpenItem()
        if type_decoder.decode(data).type not in CALL_TYPES:
            return []
        call = call_decoder.decode(data)
        self._calls = True
        item.last = item.blocks["call", 0] = next(self._blocks)
        return [ToolCallStarted(0, item.last, call.call_id, call.name)]

    def _end(self, index: int, data: Raw) -> list[CanonicalEvent]:
        added = [] if index in self._items else self._add(index, data)
        item, self._items[index] = self._items[index], None
        if item is None:
            raise MalformedResponse("an item of the reply ends twice")
        return [*added, *self._rest(item, data), *item.ends()]

    def _rest(self, item: _OpenItem, data: Raw) -> list[CanonicalEvent]:
        """Return the content of an item's end that was not streamed before."""
        kind = type_decoder.decode(data).type
        if kind == "message":
            rest: list[CanonicalEvent] = []
            for index, part in enumerate(message_decoder.decode(data).content):
                said: Kind = "refusal" if part.type == "refusal" else "text"
                text = part.refusal if said == "refusal" else part.text
                rest += self._unsaid(item, said, index, text, part.logprobs)
            return rest
        if kind == "reasoning":
            return self._rest_of_reasoning(item, data)
        if kind in CALL_TYPES and not item.has_arguments:
            call = parse_call(call_decoder.decode(data), freeform=kind == "custom_tool_call")
            return self._arguments(item, call.arguments) if call.arguments else []
        return []

    def _unsaid(
        self, item: _OpenItem, kind: Kind, part: int, text: str, logprobs: list[Raw] | None = None
    ) -> list[CanonicalEvent]:
        if not text or (kind, part) in item.blocks:
            return []
        return self._part_events(item, kind, part, text, logprobs)

    def _rest_of_reasoning(self, item: _OpenItem, data: Raw) -> list[CanonicalEvent]:
        rest: list[CanonicalEvent] = []
        end = reasoning_decoder.decode(data)
        for block in parse_reasoning(end):
            kind: Kind = "summary" if block.is_summary else "reasoning"
            rest += self._unsaid(item, kind, 0, block.text)
        if item.last is None:
            if not end.encrypted_content:
                return rest
            item.last = next(self._blocks)
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


# Writing

_ItemEvent = tuple[str, JsonObject]
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input"}


# Of a summary, and of reasoning itself: the events of its part and its text, and its place.
_SUMMARY: Final = (
    *("response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"),
)
_THOUGHTS: Final = ("response.content_part", "response.reasoning_text", "content_index")


class _MessageItem:
    def __init__(self, id_: str) -> None:
        self._parts: list[JsonObject] = []
        self.item = message_item(id_, self._parts)
        self._is_open = False
        self._tokens: list[Raw] = []

    def add(self, delta: BlockDelta) -> Iterable[_ItemEvent]:
        at: JsonObject = {"content_index": len(self._parts)}
        if not self._is_open:
            self._is_open = True
            blank = RefusalBlock("") if isinstance(delta, RefusalDelta) else TextBlock("")
            yield "response.content_part.added", {**at, "part": content_part(blank)}
        if isinstance(delta, RefusalDelta):
            yield "response.refusal.delta", {**at, "delta": delta.text}
        elif isinstance(delta, TextDelta):
            tokens = text_logprobs(delta.logprobs)
            self._tokens += tokens
            yield "response.output_text.delta", {**at, "delta": delta.text, "logprobs": tokens}

    def end(self, block: Block) -> Iterable[_ItemEvent]:
        at: JsonObject = {"content_index": len(self._parts)}
        part = content_part(block, self._tokens)
        if isinstance(block, RefusalBlock):
            yield "response.refusal.done", {**at, "refusal": block.text}
        else:
            text: JsonObject = {"text": part["text"], "logprobs": self._tokens}
            yield "response.output_text.done", {**at, **text}
        yield "response.content_part.done", {**at, "part": part}
        self._parts.append(part)
        self._tokens, self._is_open = [], False


class _ReasoningItem:
    """The model's reasoning, or a summary of it."""

    def __init__(self, id_: str, maker: str, *, summarizes: bool) -> None:
        self.item = reasoning_item(ReasoningBlock(), id_, maker, is_summary=False)
        self._id = id_
        self._maker = maker
        self._summarizes = summarizes
        self._names: tuple[str, str, str] | None = None

    def add(self, delta: BlockDelta) -> Iterable[_ItemEvent]:
        """Return more reasoning; encrypted content is sent at the end."""
        if not isinstance(delta, ReasoningDelta):
            return
        if self._names is None:
            is_summary = delta.is_summary or self._summarizes
            self._names = _SUMMARY if is_summary else _THOUGHTS
            part, _, place = self._names
            yield f"{part}.added", {place: 0, "part": self._part("")}
        _, text, place = self._names
        yield f"{text}.delta", {place: 0, "delta": delta.text}

    def end(self, block: Block) -> Iterable[_ItemEvent]:
        if not isinstance(block, ReasoningBlock):
            return
        if self._names is not None:
            part, text, place = self._names
            yield f"{text}.done", {place: 0, "text": block.text}
            yield f"{part}.done", {place: 0, "part": self._part(block.text)}
        # The first delta decided whether the client sees a summary.
        is_summary = self._names is _SUMMARY
        self.item = reasoning_item(block, self._id, self._maker, is_summary=is_summary)

    def _part(self, text: str) -> JsonObject:
        return reasoning_part(text, is_summary=self._names is _SUMMARY)


class _CallItem:
    def __init__(self, id_: str, form: CallForm, call: ToolCallStarted) -> None:
        self._id = id_
        self._form = form
        self.item = call_item(ToolCall(call.id, call.name, ""), form, id_)
        self.comes_whole = form.run is not None
        """Such an item has no events of its own: it begins and ends once all of it is there."""
        self.ended = False
        if not self.comes_whole:
            self.item[_ARGUMENTS[form.kind]] = ""

    def add(self, delta: BlockDelta) -> Iterable[_ItemEvent]:
        """Return more arguments; the text of a custom call is sent at the end."""
        if isinstance(delta, ToolCallDelta) and self._form.kind == "function_call":
            yield "response.function_call_arguments.delta", {"delta": delta.arguments}

    def end(self, block: Block) -> Iterable[_ItemEvent]:
        if not isinstance(block, ToolCall):
            return
        self.item, self.ended = call_item(block, self._form, self._id), True
        if self.comes_whole:
            return
        name = _ARGUMENTS[self._form.kind]
        text = self.item[name]
        if self._form.kind == "function_call":
            if text != block.arguments:
                yield "response.function_call_arguments.delta", {"delta": NO_ARGUMENTS}
            done: JsonObject = {"name": self.item["name"], name: text}
            yield "response.function_call_arguments.done", done
            return
        yield "response.custom_tool_call_input.delta", {"delta": text}
        yield "response.custom_tool_call_input.done", {name: text}


_Item = _MessageItem | _ReasoningItem | _CallItem


class ResponsesStreamEncoder(StreamEncoder):
    """Encodes a stream item by item."""

    def __init__(self, source: TranslationSource, identity: ReplyIdentity) -> None:
        self._identity = identity
        self._options = output_options(source.prompt)
        self._blank = blank_response(source.request, identity)
        self._event_writer = NumberedEventWriter()
        self._sequence = BlockSequencer()
        self._response_builder = ResponseBuilder()
        self._output: list[JsonObject] = []
        self._texts: list[str] = []
        self._open: _Item | None = None
        self._block: int | None = None
        self._calls: set[tuple[int, int]] = set()
        self._finish_reason: FinishReason | None = None
        self._template: EventTemplate | None = None
        """Of the deltas of the open block, if it is text."""

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the bytes for the client; raises `MalformedResponse` for an event out of order."""
        self._check(event)
        events = self._sequence.feed(event)
        return b"".join([self._begin(), *map(self._write, events)])

    def _end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream; one without a finish reason has failed."""
        begun = self._begin()
        rest = b"" if self._finish_reason else self.write(ChoiceFinished(0, "error"))
        response = finished_response(self._response(), self._finish_reason or "error", charge)
        return begun + rest + self._terminal(response)

    def _fail(self, error: TollhouseError) -> bytes:
        return self._begin() + self._terminal(interrupted_response(self._response(), error))

    def _check(self, event: CanonicalEvent) -> None:
        """Reject an event before any part of it is written, so that no number is skipped."""
        if isinstance(event, TextDelta):
            return
        if isinstance(event, ToolCallStarted):
            self._calls.add((event.choice, event.block))
        elif isinstance(event, ToolCallDelta) and (event.choice, event.block) not in self._calls:
            raise MalformedResponse("a tool call has arguments and no name")

    def _begin(self) -> bytes:
        if self._event_writer.count:
            return b""
        opening: JsonObject = {"response": self._blank}
        kinds = ("response.created", "response.in_progress")
        return b"".join([self._event_writer.event(kind, opening) for kind in kinds])

    def _response(self) -> JsonObject:
        return {**self._blank, "output": self._output, "output_text": "".join(self._texts)}

    def _terminal(self, response: JsonObject) -> bytes:
        kind = f"response.{response['status']}"
        return self._event_writer.event(kind, {"response": response}) + DONE_EVENT

    def _write(self, event: CanonicalEvent) -> bytes:
        if isinstance(event, TextDelta):
            return self._write_delta(event)
        if isinstance(event, (StreamStarted, UsageReported)):
            return b""
        if isinstance(event, ChoiceFinished):
            self._finish_reason = event.finish_reason
            return self._end_item(is_complete=event.finish_reason not in INCOMPLETE)
        if isinstance(event, BlockEnded):
            return self._end_block(event.block)
        return self._write_delta(event)

    def _write_delta(self, event: BlockDelta) -> bytes:
        self._response_builder.add(event)
        if event.block != self._block:
            return self._open_block(event) + self._inside(self._item().add(event))
        if not isinstance(event, TextDelta) or event.logprobs is not None:
            return self._inside(self._item().add(event))
        text = encoder.encode(event.text)
        if self._template is not None:
            number = self._event_writer.next_number()
            return self._template.fill((text, b"%d" % number))
        number = raw(self._event_writer.count)
        shown = self._inside(self._item().add(event))
        self._template = EventTemplate.of(shown, {"delta": Raw(text), "sequence_number": number})
        return shown

    def _open_block(self, event: BlockDelta) -> bytes:
        self._block, self._template = event.block, None
        is_spoken = isinstance(event, (TextDelta, RefusalDelta))
        if is_spoken and isinstance(self._open, _MessageItem):
            return b""
        ended = self._end_item(is_complete=True)
        self._open = self._new_item(event)
        is_shown = not (isinstance(self._open, _CallItem) and self._open.comes_whole)
        return ended + self._added(self._open.item) if is_shown else ended

    def _added(self, shown: JsonObject) -> bytes:
        return self._item_event("added", {**shown, "status": "in_progress"})

    def _item_event(self, what: str, item: JsonObject) -> bytes:
        at = {"output_index": len(self._output), "item": item}
        return self._event_writer.event(f"response.output_item.{what}", at)

    def _new_item(self, event: BlockDelta) -> _Item:
        position = len(self._output)
        if isinstance(event, ToolCallStarted):
            form = self._options.form(event.name)
            return _CallItem(item_id(self._identity, form.kind, position), form, event)
        if isinstance(event, (ReasoningDelta, ReasoningSignature)):
            # OpenAI's encrypted reasoning has its own id if it precedes any text.
            is_proof = isinstance(event, ReasoningSignature)
            own = event.id if is_proof and event.format == OPENAI else None
            id_ = own or item_id(self._identity, "reasoning", position)
            return _ReasoningItem(id_, self._identity.maker, summarizes=self._options.summarizes)
        return _MessageItem(item_id(self._identity, "message", position))

    def _item(self) -> _Item:
        if self._open is None:
            raise Bug("an event belongs to no item")
        return self._open

    def _end_block(self, number: int) -> bytes:
        if number != self._block:
            return b""
        self._block = None
        block = self._response_builder.block(0, number)
        if isinstance(block, TextBlock):
            self._texts.append(block.text)
        return self._inside(self._item().end(block))

    def _end_item(self, *, is_complete: bool) -> bytes:
        if self._open is None:
            return b""
        begun = b""
        if isinstance(self._open, _CallItem) and self._open.comes_whole:
            if not self._open.ended:
                self._open = None
                return b""
            begun = self._added(self._open.item)
        item = {**self._open.item, "status": "completed" if is_complete else "incomplete"}
        done = self._item_event("done", item)
        self._output.append(item)
        self._open = None
        return begun + done

    def _inside(self, events: Iterable[_ItemEvent]) -> bytes:
        at: JsonObject = {"item_id": self._item().item["id"], "output_index": len(self._output)}
        return b"".join([self._event_writer.event(kind, {**at, **own}) for kind, own in events])
