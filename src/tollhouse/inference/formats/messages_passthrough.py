"""Passes messages requests through to providers of the messages dialect. Pure.

Blocks of a stream are forwarded at once. The provider's `message_delta`s are held back to the end
and priced, its `message_stop` is not forwarded.

Source: https://docs.anthropic.com/en/api/messages,
https://docs.anthropic.com/en/api/messages-count-tokens and the public gateway's additions
(`models`, `fallbacks`; `max_tokens` may be missing).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.types import Charge, Usage
from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    MalformedResponse,
    PassthroughAdapter,
    counted,
)
from tollhouse.inference.formats.event_template import EventTemplate
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.messages import (
    DEFAULT_MAX_TOKENS,
    MessagesRequest,
    broken_off,
    error_event,
    first_usage_of,
    legal_stop_reason,
    mark_block,
    message_fields,
    own_reasoning,
    read_fields,
    readable,
    refused_in_messages,
    render_end,
    render_event,
    render_tokens,
    render_usage,
    usage_of_stream,
)
from tollhouse.inference.formats.messages_order import (
    MessagesEventOrder,
    decode_message,
    delta_decoder,
    fits_block,
    output_bytes,
)
from tollhouse.inference.formats.proofs import unsigned, wrapped
from tollhouse.inference.formats.usage import Counts, find_counts, later, usage_of
from tollhouse.inference.formats.wire import (
    GATEWAY_FIELDS,
    NULL,
    Fields,
    encoder,
    fields_decoder,
    for_provider,
    id_text,
    is_done,
    named_event,
    raw,
    replace_invalid_text,
    says_nothing,
    try_decode,
    without,
)
from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity

if TYPE_CHECKING:
    from tollhouse.inference.formats.messages_order import MessagesEvent
    from tollhouse.kernel.errors import TollhouseError


# Requests and responses

_GATEWAY_ONLY_FIELDS: Final = GATEWAY_FIELDS | {"safeguards", "user"}
"""`user` and `safeguards` are the public gateway's additions, which Anthropic rejects."""
_blocks: Final = msgspec.json.Decoder(list[Fields])
_NEVER_NULL_IN_BLOCKS: Final = frozenset({"citations", "caller", "toolset_name"})
"""Optional fields of a block: Anthropic never sends null in them, some servers do, and published
clients reject it.

Source: the response schema of @ai-sdk/anthropic 4, where these are optional and not nullable.
"""


@dataclass(slots=True, repr=False)
class MessagesResponse(AdaptedResponse):
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        content = self.fields["content"]
        if b"null" in bytes(content):
            content = raw([_block_without_nulls(block) for block in _blocks.decode(content)])
        if b"thinking" in bytes(content):
            content = raw([mark_block(block, identity.maker) for block in _blocks.decode(content)])
        usage = render_usage(charge, read_fields(self.fields.get("usage", NULL)))
        fields = message_fields(identity, self.fields)
        return encoder.encode({**fields, "content": content, "usage": usage})


def _block_without_nulls(block: Fields) -> Fields:
    return without(block, {name for name in _NEVER_NULL_IN_BLOCKS if block.get(name) == NULL})


# Streams

_NO_TEXT: Final = raw("")
_THINKING: Final = raw("thinking")
_DELTA: Final = "content_block_delta"
_WITHHELD_EVENTS: Final = frozenset({"message_delta", "message_stop"})


class MessagesStream(AdaptedStream):
    """A provider's stream, forwarded in a checked order."""

    def __init__(self, identity: ReplyIdentity, request: MessagesRequest) -> None:
        super().__init__(request.size)
        self._identity = identity
        self._order = MessagesEventOrder()
        self._first_usage: Fields = {}
        self._last_usage: Fields = {}
        self._first_counts: Counts = {}
        self._delta: Fields = {}
        self._extra_fields: Fields = {}
        """The fields of `message_delta` besides its delta and its usage."""
        self._template: EventTemplate | None = None
        """Of the deltas of the open block."""
        self._block_begun = False
        """A block is open that has no delta yet."""
        self._signed = False
        """The signature of the open block has begun."""
        self._thinks = False
        """The open block is thinking."""
        self._called = False
        """There is a call of one of the client's tools."""

    @property
    def complete(self) -> bool:
        """Whether the response is complete if the body ends here."""
        return self._order.complete

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        if self.done or says_nothing(data) or is_done(data):
            return b""
        data = replace_invalid_text(data)
        if self._template is not None and (shown := self._forward_same(self._template, data)):
            return shown
        told = self._order.accept(data)
        self.done = self._order.done
        written: list[bytes] = []
        for event, shown in told:
            if event.type == _DELTA and self._block_begun and shown is data:
                delta = fields_decoder.decode(data)["delta"]
                self._template = EventTemplate.of(data, {"delta": delta})
                self._block_begun = False
            elif event.type != _DELTA:
                self._template = None
                self._block_begun = event.type == "content_block_start"
            written.append(self._forward(event, shown))
        return b"".join(written)

    def _forward_same(self, template: EventTemplate, data: bytes) -> bytes:
        """Return what the client gets of one more delta; nothing if it may be another event."""
        values = template.values(data)
        delta = None if values is None else try_decode(delta_decoder, values[0])
        if delta is None or not fits_block(delta.type, self._order.open_block):
            return b""
        if delta.signature is not None or not isinstance(delta.partial_json, str | None):
            return b""
        is_input = delta.partial_json is not None
        piece = delta.partial_json if is_input else delta.text or delta.thinking
        if not self._order.goes_on(piece, is_input=is_input):
            return b""
        self._seen_bytes += output_bytes(delta)
        return named_event(_DELTA, data)

    def _end(self, charge: Charge) -> bytes:
        begun = b"" if self._order.started else self._start({})
        if self._order.open_block is not None:
            begun += render_event("content_block_stop", {"index": self._order.block_count - 1})
        if self.finish_reason == "error":
            return begun + broken_off(self._identity)
        usage = render_usage(charge, self._first_usage | self._last_usage)
        return begun + render_end(self._delta, usage, self._extra_fields)

    def _fail(self, error: TollhouseError) -> bytes:
        return error_event(error, self._identity.id)

    def _forward(self, event: MessagesEvent, data: bytes) -> bytes:
        kind = event.type
        if kind == "message_start":
            return self._open(event, data)
        if kind in _WITHHELD_EVENTS:
            self._keep(event, data)
        if kind in _WITHHELD_EVENTS or not self._order.started or not kind.isprintable():
            return b""
        if event.content_block is not None:
            self._seen_bytes += output_bytes(event.content_block)
            self._called = self._called or event.content_block.type == "tool_use"
        if event.delta is not None:
            self._seen_bytes += output_bytes(event.delta)
        if kind == "content_block_start":
            self._signed, self._thinks = False, False
            if b"null" in data:
                data = _event_without_nulls(data)
            if b"thinking" in data:
                data = self._marked_start(data)
        elif not self._signed:
            return self._marked_end(event, data)
        return named_event(kind, data)

    def _marked_end(self, event: MessagesEvent, data: bytes) -> bytes:
        """Return an event that may be a signature, or the end of thinking that has none.

        What its maker did not sign gets a mark all the same, so that no other gets it.
        """
        maker = self._identity.maker
        if event.delta is not None and event.delta.signature:
            self._signed = True
            fields = fields_decoder.decode(data)
            delta = fields_decoder.decode(fields["delta"])
            delta["signature"] = raw(wrapped(event.delta.signature, maker))
            data = encoder.encode({**fields, "delta": delta})
        elif event.type == "content_block_stop" and self._thinks and maker:
            self._thinks = False
            mark = {"type": "signature_delta", "signature": unsigned(maker)}
            marked = render_event(_DELTA, {"index": event.index, "delta": mark})
            return marked + named_event(event.type, data)
        return named_event(event.type, data)

    def _marked_start(self, data: bytes) -> bytes:
        fields = fields_decoder.decode(data)
        block = fields_decoder.decode(fields["content_block"])
        self._thinks = block.get("type") == _THINKING
        self._signed = block.get("signature", NULL) not in (NULL, _NO_TEXT)
        if self._thinks and not self._signed:
            return data
        marked = mark_block(block, self._identity.maker)
        return data if marked is block else encoder.encode({**fields, "content_block": marked})

    def _open(self, event: MessagesEvent, data: bytes) -> bytes:
        message = fields_decoder.decode(fields_decoder.decode(data)["message"])
        if event.message is not None:
            self.upstream_id = id_text(event.message.id)
        self._first_usage = read_fields(message.get("usage", NULL))
        self._first_counts = find_counts(message)
        self._begin(first_usage_of(self._first_counts))
        return self._start(message)

    def _start(self, message: Fields) -> bytes:
        usage = render_tokens(Usage()) | readable(self._first_usage)
        counted = self._first
        if counted is None or not counted.prompt_tokens:
            # Clients keep what a stream begins with; some servers count at its end alone.
            usage["input_tokens"] = self._identity.input_tokens
        ours = {"content": (), "stop_reason": None, "stop_sequence": None, "usage": usage}
        return render_event(
            "message_start", {"message": message_fields(self._identity, message) | ours}
        )

    def _keep(self, event: MessagesEvent, data: bytes) -> None:
        fields = fields_decoder.decode(data)
        self._counts = later(self._counts, find_counts(fields))
        self.reported = usage_of_stream(self._first_counts, self._counts)
        self._settle()
        self._last_usage |= read_fields(fields.pop("usage", NULL))
        self._delta |= read_fields(fields.pop("delta", NULL))
        if event.type == "message_delta":
            self._extra_fields |= fields
        native = event.delta.stop_reason if event.delta else None
        if native is not None:
            self.native_finish_reason = native
            self.finish_reason = meant = normalize_finish_reason(native, called=self._called)
            self._delta["stop_reason"] = raw(legal_stop_reason(native, meant))


def _event_without_nulls(data: bytes) -> bytes:
    fields = fields_decoder.decode(data)
    block = _block_without_nulls(fields_decoder.decode(fields["content_block"]))
    return encoder.encode({**fields, "content_block": raw(block)})


# The adapter


class MessagesPassthroughAdapter(PassthroughAdapter[MessagesRequest]):
    """Passes requests through to providers of the messages dialect."""

    dialect = Dialect.MESSAGES

    def __init__(self, request: MessagesRequest) -> None:
        super().__init__(request)
        self.query = request.query
        self.headers = request.headers

    def render_request(self, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name.

        Fields for the gateway, fields that the provider rejects, and reasoning that another
        provider signed are left out. `max_tokens`, which Anthropic requires, is filled in.
        """
        given, refuses = self._request.fields, refused_in_messages(endpoint.profile)
        rejected = _GATEWAY_ONLY_FIELDS | refuses if refuses else _GATEWAY_ONLY_FIELDS
        fields = for_provider(given, rejected, endpoint.model)
        fields["messages"] = own_reasoning(given["messages"], endpoint.provider)
        if "user" in given and "metadata" not in given.keys() | refuses:
            fields["metadata"] = {"user_id": given["user"]}
        if self._request.max_tokens is None:
            fields["max_tokens"] = endpoint.max_completion_tokens or DEFAULT_MAX_TOKENS
        return encoder.encode(fields)

    def parse_response(self, body: bytes) -> MessagesResponse:
        """Parse a provider's complete response."""
        fields, message = decode_message(body)
        reported, seen = counted(
            usage_of(find_counts(fields)),
            self._request.size,
            lambda: sum(map(output_bytes, message.content or ())),
        )
        native = message.stop_reason
        called = any(block.type == "tool_use" for block in message.content or ())
        finish_reason = normalize_finish_reason(native, called=called)
        fields["stop_reason"] = raw(legal_stop_reason(native, finish_reason))
        return MessagesResponse(
            reported=reported,
            seen=seen,
            finish_reason=finish_reason,
            native_finish_reason=native,
            upstream_id=id_text(message.id),
            fields=fields,
        )

    def open_stream(self, identity: ReplyIdentity) -> MessagesStream:
        """Return the adapter of one streamed response."""
        return MessagesStream(identity, self._request)


# Token counts


class _Counted(msgspec.Struct):
    input_tokens: int


_counted: Final = msgspec.json.Decoder(_Counted)


def render_count(request: MessagesRequest, endpoint: Endpoint) -> bytes:
    """Return the body of a counting request; its route rejects fields of the reply."""
    fields = fields_decoder.decode(MessagesPassthroughAdapter(request).render_request(endpoint))
    return encoder.encode(without(fields, {"max_tokens", "stream"}))


def parse_count(body: bytes) -> int:
    """Return the input tokens that a provider counted; raises `MalformedResponse`."""
    counted = try_decode(_counted, body)
    if counted is None or counted.input_tokens < 0:
        raise MalformedResponse("the reply is no count of tokens")
    return counted.input_tokens
