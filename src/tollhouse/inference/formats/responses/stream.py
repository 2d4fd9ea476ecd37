"""Passes a responses stream through: provider events in, a legal stream out. Pure.

    stream = ResponsesStream(identity, request)
    stream.feed(data)    -> bytes for the client (may be empty)
    stream.end(charge)   -> the provider's terminal event with the priced usage, and [DONE]
    stream.fail(error)   -> response.failed and [DONE]

Events are forwarded with all their fields, except their number and the id and model of a response
inside them. The terminal event is held back to the end.

Source: https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.fields import Fields, fields_decoder
from tollhouse.inference.formats.raw_json import NULL, replace_invalid_utf8
from tollhouse.inference.formats.responses.errors import interrupted_response, parse_failure_event
from tollhouse.inference.formats.responses.item_order import ResponsesItemOrder
from tollhouse.inference.formats.responses.response_object import blank_response
from tollhouse.inference.formats.responses.usage import parse_usage, render_usage
from tollhouse.inference.formats.responses.wire import (
    CALL_TYPES,
    DONE,
    DONE_EVENT,
    FAILURE_EVENTS,
    TERMINAL_EVENTS,
    NumberedEventWriter,
    item_decoder,
    output_items,
    parse_finish_reason,
    response_decoder,
)
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.inference.formats.tokens import estimate_tokens
from tollhouse.kernel.errors import Bug

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.responses.request import ResponsesRequest
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_NO_TOKENS: Final = Raw(b"[]")
_TEXTS: Final = frozenset({"response.output_text.delta", "response.output_text.done"})
_kind = msgspec.json.Decoder(str)
_text = msgspec.json.Decoder(str | None)


class ResponsesStream:
    """The state of one stream."""

    def __init__(self, identity: ReplyIdentity, request: ResponsesRequest) -> None:
        self.done = False
        """The provider's terminal event arrived."""
        self.reported: Usage | None = None
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None
        self._ours = {"id": identity.id, "object": "response", "model": identity.model}
        self._blank = blank_response(request, identity)
        self._response = self._blank
        """The latest response object of the provider."""
        self._event_writer = NumberedEventWriter()
        self._order = ResponsesItemOrder()
        self._last_kind = ""
        self._request_size = request.size
        self._seen_bytes = 0
        self._stream_end = StreamEnd("responses")

    @property
    def complete(self) -> bool:
        """Whether the terminal event arrived; without it the response is not complete."""
        return self.done

    @property
    def seen(self) -> Usage:
        """The tokens seen so far, estimated from their bytes."""
        return Usage(
            input_tokens=estimate_tokens(self._request_size),
            output_tokens=estimate_tokens(self._seen_bytes),
        )

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client.

        Raises:
            MalformedResponse: The event is not of the dialect, or is out of order.
            ErrorEvent: The provider reported an error.
        """
        if self.done or not data or data == DONE:
            return b""
        data = replace_invalid_utf8(data)
        try:
            fields = fields_decoder.decode(data)
            if "type" not in fields and fields.get("error", NULL) != NULL:
                raise parse_failure_event(data)
            kind = _kind.decode(fields["type"])
            if kind in FAILURE_EVENTS:
                raise parse_failure_event(data)
            return self._pass_on(kind, fields)
        except (msgspec.DecodeError, RecursionError, KeyError):
            message = "an event of the stream is not what its type promises"
            raise MalformedResponse(message) from None

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream: the terminal event, then `[DONE]`."""
        if not self.done:
            message = "a responses stream was ended before its end"
            raise Bug(message)
        self._stream_end.mark_written()
        response = {**self._response, "usage": render_usage(charge)}
        return self._event_writer.event(self._last_kind, {"response": response}) + DONE_EVENT

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: a failed response, then `[DONE]`."""
        self._stream_end.mark_written()
        begun = b""
        if not self._event_writer.count:
            begun = self._event_writer.event("response.created", {"response": self._blank})
        failed = interrupted_response(self._response, error)
        return (
            begun + self._event_writer.event("response.failed", {"response": failed}) + DONE_EVENT
        )

    def _pass_on(self, kind: str, fields: Fields) -> bytes:
        if (kind == "response.created") != (self._event_writer.count == 0):
            message = "the stream does not begin with the response, or begins twice"
            raise MalformedResponse(message)
        if kind in TERMINAL_EVENTS:
            return self._finish(kind, fields)
        if not kind.isprintable():
            message = "an event's type is not printable"
            raise MalformedResponse(message)
        self._order.accept(kind, fields)
        if kind in _TEXTS:
            fields.setdefault("logprobs", _NO_TOKENS)
        if kind.endswith(".delta"):
            self._seen_bytes += _length(fields.get("delta", NULL))
        own: dict[str, object] = {**fields}
        if "response" in fields:
            own["response"] = self._patched(fields["response"])
        return self._event_writer.event(kind, own)

    def _patched(self, response: Raw) -> dict[str, object]:
        given = fields_decoder.decode(response)
        if self.upstream_id is None:
            self.upstream_id = _text.decode(given.get("id", NULL))
        self._response = {**self._blank, **given, **self._ours}
        return self._response

    def _finish(self, kind: str, fields: Fields) -> bytes:
        response = response_decoder.decode(fields["response"])
        items = output_items(response)
        calls = any(item_decoder.decode(item).type in CALL_TYPES for item in items)
        self.finish_reason, self.native_finish_reason = parse_finish_reason(response, calls=calls)
        self.reported = parse_usage(response.usage)
        self._patched(fields["response"])
        self._last_kind, self.done = kind, True
        ends = self._order.missing_ends(items)
        return b"".join(
            self._event_writer.event("response.output_item.done", each) for each in ends
        )


def _length(delta: Raw) -> int:
    """Return the bytes of a delta's text; of any other delta, the size of its JSON."""
    try:
        return len((_text.decode(delta) or "").encode("utf-8", "surrogatepass"))
    except (msgspec.DecodeError, RecursionError):
        return len(delta)
