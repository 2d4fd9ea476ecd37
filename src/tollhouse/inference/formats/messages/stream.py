"""Passes a messages stream through: provider events in, a legal stream out. Pure.

    stream = MessagesStream(identity, request)
    stream.feed(data)    -> bytes for the client (may be empty)
    stream.end(charge)   -> message_delta with the usage, and message_stop
    stream.fail(error)   -> the error event

Blocks are forwarded at once. The provider's `message_delta`s are held back to the end and priced,
its `message_stop` is not forwarded.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.fields import Fields, fields_decoder
from tollhouse.inference.formats.messages.errors import error_event
from tollhouse.inference.formats.messages.event_order import MessagesEventOrder, decode_event
from tollhouse.inference.formats.messages.passthrough_bodies import (
    block_without_nulls,
    message_fields,
)
from tollhouse.inference.formats.messages.usage import (
    parse_input,
    parse_report,
    read_fields,
    readable,
    render_tokens,
    render_usage,
)
from tollhouse.inference.formats.messages.wire import (
    named_event,
    normalize_finish_reason,
    output_bytes,
    render_event,
)
from tollhouse.inference.formats.raw_json import NULL, encoder, raw, replace_invalid_utf8
from tollhouse.inference.formats.stream_end import StreamEnd
from tollhouse.inference.formats.tokens import estimate_tokens

if TYPE_CHECKING:
    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.formats.messages.wire import MessagesEvent
    from tollhouse.inference.types import ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError

_WITHHELD_EVENTS: Final = frozenset({"message_delta", "message_stop"})


class MessagesStream:
    """Implements `formats.adapter.AdaptedStream`."""

    def __init__(self, identity: ReplyIdentity, request: MessagesRequest) -> None:
        self.reported: Usage | None = None
        self.finish_reason: str | None = None
        self.native_finish_reason: str | None = None
        self.upstream_id: str | None = None
        self._identity = identity
        self._order = MessagesEventOrder()
        self._input = Usage(input_tokens=estimate_tokens(request.size))
        self._seen_bytes = 0
        self._first_usage: Fields = {}
        self._last_usage: Fields = {}
        self._delta: Fields = {}
        self._extra_fields: Fields = {}
        """The fields of `message_delta` besides its delta and its usage."""
        self._stream_end = StreamEnd("messages")

    @property
    def done(self) -> bool:
        """Whether the provider's terminal event arrived."""
        return self._order.done

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._order.complete

    @property
    def seen(self) -> Usage:
        """The tokens seen so far; the output is estimated from its bytes."""
        return replace(self._input, output_tokens=estimate_tokens(self._seen_bytes))

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client.

        Raises:
            MalformedResponse: The event is not of the dialect, or is out of order.
            ErrorEvent: The provider reported an error.
        """
        if self.done or (event := decode_event(data)) is None:
            return b""
        self._order.accept(event)
        return self._forward(event, replace_invalid_utf8(data))

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream, after closing the open block."""
        self._stream_end.mark_written()
        opened = b"" if self._order.started else self._start({})
        last = {
            **self._extra_fields,
            "delta": {
                "stop_reason": None,
                "stop_sequence": None,
                "stop_details": None,
                "container": None,
                **self._delta,
            },
            "usage": render_usage(charge, self._first_usage | self._last_usage),
        }
        return b"".join(
            (
                opened,
                self._block_stop(),
                render_event("message_delta", last),
                render_event("message_stop", {}),
            )
        )

    def fail(self, error: TollhouseError) -> bytes:
        """Return the end of a failed stream: the error."""
        self._stream_end.mark_written()
        return error_event(error, self._identity.id)

    def _forward(self, event: MessagesEvent, data: bytes) -> bytes:
        kind = event.type
        if kind == "message_start":
            return self._begin(event, data)
        if kind == "message_delta":
            self._keep(event, data)
        if kind in _WITHHELD_EVENTS or not self._order.started or not kind.isprintable():
            return b""
        for part in (event.content_block, event.delta):
            if part is not None:
                self._seen_bytes += output_bytes(part)
        if kind == "content_block_start" and b"null" in data:
            data = _without_nulls(data)
        return named_event(kind, data)

    def _begin(self, event: MessagesEvent, data: bytes) -> bytes:
        message = fields_decoder.decode(fields_decoder.decode(data)["message"])
        if event.message is not None:
            self.upstream_id = event.message.id
        self._first_usage = read_fields(message.get("usage", NULL))
        self._input = parse_input(self._first_usage) or self._input
        return self._start(message)

    def _start(self, message: Fields) -> bytes:
        usage = render_tokens(Usage()) | readable(self._first_usage)
        ours = {"content": (), "stop_reason": None, "stop_sequence": None, "usage": usage}
        return render_event(
            "message_start", {"message": message_fields(self._identity, message) | ours}
        )

    def _keep(self, event: MessagesEvent, data: bytes) -> None:
        fields = fields_decoder.decode(data)
        self._delta |= read_fields(fields.pop("delta", NULL))
        self._last_usage |= read_fields(fields.pop("usage", NULL))
        self._extra_fields |= fields
        self.reported = parse_report(self._first_usage, self._last_usage)
        native = event.delta.stop_reason if event.delta else None
        if native is not None:
            self.native_finish_reason = native
            self.finish_reason = normalize_finish_reason(native)

    def _block_stop(self) -> bytes:
        if self._order.open_block is None:
            return b""
        return render_event("content_block_stop", {"index": self._order.block_count - 1})


def _without_nulls(data: bytes) -> bytes:
    fields = fields_decoder.decode(data)
    block = block_without_nulls(fields_decoder.decode(fields["content_block"]))
    return encoder.encode({**fields, "content_block": raw(block)})
