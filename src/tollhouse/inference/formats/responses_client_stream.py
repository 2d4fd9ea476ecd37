"""Encodes canonical events as a responses stream. Pure.

    created  in_progress  (output_item.added ... output_item.done)*
        (completed | incomplete | failed)  [DONE]

    message      content_part.added  output_text.delta* .done | refusal.delta* .done
                 content_part.done   ... and the next part
    reasoning    reasoning_summary_part.added  reasoning_summary_text.delta* .done
                 reasoning_summary_part.done
                 | content_part.added  reasoning_text.delta* .done  content_part.done
    call         function_call_arguments.delta* .done | custom_tool_call_input.delta .done

Items follow one another, and events are numbered. Consecutive text blocks are one message, so a
message ends only when an item of another type begins. An item yields pairs of an event's type
and its fields; the encoder adds the item's position.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import Raw

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.stream import BlockSequencer, ResponseBuilder
from tollhouse.inference.formats.canonical.translation import StreamEncoder
from tollhouse.inference.formats.canonical.types import (
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
from tollhouse.inference.formats.event_template import EventTemplate
from tollhouse.inference.formats.responses_client_response import (
    INCOMPLETE,
    NO_ARGUMENTS,
    JsonObject,
    blank_response,
    call_item,
    content_part,
    finished_response,
    item_id,
    message_item,
    output_options,
    reasoning_item,
    reasoning_part,
    text_logprobs,
)
from tollhouse.inference.formats.responses_wire import (
    DONE_EVENT,
    NumberedEventWriter,
    interrupted_response,
)
from tollhouse.inference.formats.wire import encoder, raw
from tollhouse.kernel.errors import Bug, TollhouseError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.translation import TranslationSource
    from tollhouse.inference.formats.responses_tools import CallForm
    from tollhouse.inference.types import ReplyIdentity


_ItemEvent = tuple[str, JsonObject]
_ARGUMENTS: Final = {"function_call": "arguments", "custom_tool_call": "input"}


class _Names(NamedTuple):
    """Names of the events for reasoning text or for its summary."""

    part: str
    text: str
    position: str


_SUMMARY: Final = _Names(
    "response.reasoning_summary_part", "response.reasoning_summary_text", "summary_index"
)
_THOUGHTS: Final = _Names("response.content_part", "response.reasoning_text", "content_index")


class _MessageItem:
    """A message: text and refusals."""

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
        self._names: _Names | None = None

    def add(self, delta: BlockDelta) -> Iterable[_ItemEvent]:
        """Return more reasoning; encrypted content is sent at the end."""
        if not isinstance(delta, ReasoningDelta):
            return
        if self._names is None:
            is_summary = delta.is_summary or self._summarizes
            names = self._names = _SUMMARY if is_summary else _THOUGHTS
            yield f"{names.part}.added", {names.position: 0, "part": self._part("")}
        yield f"{self._names.text}.delta", {self._names.position: 0, "delta": delta.text}

    def end(self, block: Block) -> Iterable[_ItemEvent]:
        if not isinstance(block, ReasoningBlock):
            return
        if (names := self._names) is not None:
            yield f"{names.text}.done", {names.position: 0, "text": block.text}
            yield f"{names.part}.done", {names.position: 0, "part": self._part(block.text)}
        # The first delta decided whether the client sees a summary.
        self.item = reasoning_item(block, self._id, self._maker, is_summary=names is _SUMMARY)

    def _part(self, text: str) -> JsonObject:
        return reasoning_part(text, is_summary=self._names is _SUMMARY)


class _CallItem:
    """A tool call."""

    def __init__(self, id_: str, form: CallForm, call: ToolCallStarted) -> None:
        self._id = id_
        self._form = form
        self._kind = form.kind
        self.item: JsonObject = call_item(ToolCall(call.id, call.name, ""), form, id_)
        self.comes_whole = form.run is not None
        """Such an item has no events of its own: it begins and ends once all of it is there."""
        self.ended = False
        if not self.comes_whole:
            self.item[_ARGUMENTS[form.kind]] = ""

    def add(self, delta: BlockDelta) -> Iterable[_ItemEvent]:
        """Return more arguments; the text of a custom call is sent at the end."""
        if isinstance(delta, ToolCallDelta) and self._kind == "function_call":
            yield "response.function_call_arguments.delta", {"delta": delta.arguments}

    def end(self, block: Block) -> Iterable[_ItemEvent]:
        if not isinstance(block, ToolCall):
            return
        self.item, self.ended = call_item(block, self._form, self._id), True
        if self.comes_whole:
            return
        name = _ARGUMENTS[self._kind]
        text = self.item[name]
        if self._kind == "function_call":
            if text != block.arguments:
                yield "response.function_call_arguments.delta", {"delta": NO_ARGUMENTS}
            done: JsonObject = {"name": self.item["name"], name: text}
            yield "response.function_call_arguments.done", done
            return
        yield "response.custom_tool_call_input.delta", {"delta": text}
        yield "response.custom_tool_call_input.done", {name: text}


_Item = _MessageItem | _ReasoningItem | _CallItem

# The stream


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
        created = self._event_writer.event("response.created", opening)
        return created + self._event_writer.event("response.in_progress", opening)

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
        item = {**shown, "status": "in_progress"}
        at = {"output_index": len(self._output), "item": item}
        return self._event_writer.event("response.output_item.added", at)

    def _new_item(self, event: BlockDelta) -> _Item:
        position = len(self._output)
        if isinstance(event, ToolCallStarted):
            form = self._options.form(event.name)
            return _CallItem(item_id(self._identity, form.kind, position), form, event)
        if isinstance(event, (ReasoningDelta, ReasoningSignature)):
            id_ = _native_id(event) or item_id(self._identity, "reasoning", position)
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
        at = {"output_index": len(self._output), "item": item}
        self._output.append(item)
        self._open = None
        return begun + self._event_writer.event("response.output_item.done", at)

    def _inside(self, events: Iterable[_ItemEvent]) -> bytes:
        at: JsonObject = {"item_id": self._item().item["id"], "output_index": len(self._output)}
        return b"".join([self._event_writer.event(kind, {**at, **own}) for kind, own in events])


def _native_id(event: ReasoningDelta | ReasoningSignature) -> str | None:
    """Return the id of OpenAI's encrypted reasoning if it precedes any text."""
    if isinstance(event, ReasoningSignature) and event.format == OPENAI:
        return event.id
    return None
