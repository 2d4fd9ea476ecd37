"""Encodes canonical events as a responses stream. Pure.

    created  in_progress  (output_item.added ... output_item.done)*
        (completed | incomplete | failed)  [DONE]

Items follow one another, and events are numbered. Consecutive text blocks are one message, so a
message ends only when an item of another type begins.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.canonical.block_sequencer import BlockSequencer
from tollhouse.inference.formats.canonical.blocks import TextBlock
from tollhouse.inference.formats.canonical.events import (
    BlockEnded,
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
from tollhouse.inference.formats.canonical.reasoning import OPENAI
from tollhouse.inference.formats.canonical.response_builder import ResponseBuilder
from tollhouse.inference.formats.responses.errors import interrupted_response
from tollhouse.inference.formats.responses.item_stream import (
    CallItemStream,
    MessageItemStream,
    ReasoningItemStream,
)
from tollhouse.inference.formats.responses.output_renderer import call_kind, item_id
from tollhouse.inference.formats.responses.response_object import blank_response
from tollhouse.inference.formats.responses.response_renderer import INCOMPLETE, finished_response
from tollhouse.inference.formats.responses.wire import DONE_EVENT, NumberedEventWriter
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.kernel.errors import Bug

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical.events import BlockDelta, CanonicalEvent
    from tollhouse.inference.formats.canonical.response import FinishReason
    from tollhouse.inference.formats.responses.item_stream import ItemEvent, ItemStream
    from tollhouse.inference.formats.responses.output_renderer import JsonObject, OutputOptions
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


class ResponsesStreamEncoder:
    """Implements `formats.canonical.ports.StreamEncoder`."""

    def __init__(
        self,
        request: ResponsesRequest,
        identity: ReplyIdentity,
        options: OutputOptions,
    ) -> None:
        """Start before the first event.

        Args:
            request: Its parameters are repeated in the response.
            identity: The response's.
            options: How the output is rendered.
        """
        self._identity = identity
        self._options = options
        self._blank = blank_response(request, identity)
        self._event_writer = NumberedEventWriter()
        self._sequence = BlockSequencer()
        self._response_builder = ResponseBuilder()
        self._output: list[JsonObject] = []
        self._texts: list[str] = []
        self._open: ItemStream | None = None
        self._block: int | None = None
        self._calls: set[tuple[int, int]] = set()
        self._finish_reason: FinishReason | None = None
        self._stream_end = StreamEnd("responses")

    def write(self, event: CanonicalEvent) -> bytes:
        """Return the bytes for the client.

        Raises:
            MalformedResponse: The event is not legal at this point of the stream.
        """
        self._check(event)
        events = self._sequence.feed(event)
        return b"".join([self._begin(), *map(self._write, events)])

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream; one without a finish reason has failed."""
        begun = self._close()
        rest = b"" if self._finish_reason else self.write(ChoiceFinished(0, "error"))
        response = finished_response(self._response(), self._finish_reason or "error", charge)
        return begun + rest + self._terminal(response)

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: `response.failed`."""
        return self._close() + self._terminal(interrupted_response(self._response(), error))

    def _check(self, event: CanonicalEvent) -> None:
        """Reject an event before any part of it is written, so that no number is skipped."""
        if isinstance(event, ToolCallStarted):
            self._calls.add((event.choice, event.block))
        elif isinstance(event, ToolCallDelta) and (event.choice, event.block) not in self._calls:
            message = "a tool call has arguments and no name"
            raise MalformedResponse(message)

    def _close(self) -> bytes:
        self._stream_end.mark_written()
        return self._begin()

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
        if isinstance(event, (StreamStarted, UsageReported)):
            return b""
        if isinstance(event, ChoiceFinished):
            self._finish_reason = event.finish_reason
            return self._end_item(is_complete=event.finish_reason not in INCOMPLETE)
        if isinstance(event, BlockEnded):
            return self._end_block(event.block)
        self._response_builder.add(event)
        opened = b"" if event.block == self._block else self._open_block(event)
        return opened + self._inside(self._item().add(event))

    def _open_block(self, event: BlockDelta) -> bytes:
        self._block = event.block
        is_spoken = isinstance(event, (TextDelta, RefusalDelta))
        if is_spoken and isinstance(self._open, MessageItemStream):
            return b""
        ended = self._end_item(is_complete=True)
        self._open = self._new_item(event)
        item = {**self._open.item, "status": "in_progress"}
        at = {"output_index": len(self._output), "item": item}
        return ended + self._event_writer.event("response.output_item.added", at)

    def _new_item(self, event: BlockDelta) -> ItemStream:
        position = len(self._output)
        if isinstance(event, ToolCallStarted):
            kind = call_kind(event.name, self._options.freeform)
            return CallItemStream(item_id(self._identity, kind, position), kind, event)
        if isinstance(event, (ReasoningDelta, ReasoningSignature)):
            id_ = _native_id(event) or item_id(self._identity, "reasoning", position)
            return ReasoningItemStream(id_, summarizes=self._options.summarizes)
        return MessageItemStream(item_id(self._identity, "message", position))

    def _item(self) -> ItemStream:
        if self._open is None:
            message = "an event belongs to no item"
            raise Bug(message)
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
        """End the open item."""
        if self._open is None:
            return b""
        item = {**self._open.item, "status": "completed" if is_complete else "incomplete"}
        at = {"output_index": len(self._output), "item": item}
        self._output.append(item)
        self._open = None
        return self._event_writer.event("response.output_item.done", at)

    def _inside(self, events: Iterable[ItemEvent]) -> bytes:
        """Render events of the open item."""
        at: JsonObject = {"item_id": self._item().item["id"], "output_index": len(self._output)}
        return b"".join([self._event_writer.event(kind, {**at, **own}) for kind, own in events])


def _native_id(event: ReasoningDelta | ReasoningSignature) -> str | None:
    """Return the id of OpenAI's encrypted reasoning if it precedes any text."""
    if isinstance(event, ReasoningSignature) and event.format == OPENAI:
        return event.id
    return None
