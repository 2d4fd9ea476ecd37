"""The messages format: what the gateway reads and writes of it; the rest stays raw. Pure.

    errors:     {"type": "error", "error": {"type", "message", "error_type"}, "request_id"}

Requests are passed through to providers of the same dialect, and blocks of a stream forwarded at
once. The provider's `message_delta`s are held back to the end and priced, its `message_stop` is not
forwarded.

Source: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/errors,
https://docs.anthropic.com/en/api/messages-count-tokens, the public gateway's additions (`models`,
`fallbacks`; `max_tokens` may be missing) and its error reference for `error_type` and its values;
and, below https://docs.anthropic.com/en/docs/, build-with-claude/streaming (the counts of
`message_delta` are cumulative) and build-with-claude/prompt-caching ("input_tokens" counts uncached
tokens only)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.types import Charge, Usage
from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    ClientRequest,
    MalformedResponse,
    PassthroughAdapter,
    counted,
)
from tollhouse.inference.formats.finish_reasons import normalize_finish_reason
from tollhouse.inference.formats.messages_content import (
    mark_block,
    own_reasoning,
    shown_content,
    without_nulls,
)
from tollhouse.inference.formats.messages_order import (
    MessagesEventOrder,
    decode_message,
    delta_decoder,
    first_usage_of,
    fits_block,
    output_bytes,
    readable_usage,
    usage_of_stream,
)
from tollhouse.inference.formats.proofs import is_marked, unsigned, wrapped
from tollhouse.inference.formats.usage import (
    Counts,
    find_counts,
    later,
    usage_of,
)
from tollhouse.inference.formats.wire import (
    GATEWAY_FIELDS,
    NO_FIELDS,
    NULL,
    EventTemplate,
    Fields,
    encoder,
    fields_decoder,
    for_provider,
    id_text,
    is_done,
    named_event,
    raw,
    read_flag,
    read_messages,
    read_model,
    read_object,
    read_optional,
    render_costs,
    replace_invalid_text,
    says_nothing,
    try_decode,
    without,
)
from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
from tollhouse.kernel.errors import (
    INTERNAL_ERROR_MESSAGE,
    Invalid,
    ProviderUnavailable,
    error_object,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msgspec import Raw

    from tollhouse.inference.formats.canonical import FinishReason
    from tollhouse.inference.formats.messages_order import MessagesEvent
    from tollhouse.inference.types import Profile
    from tollhouse.kernel.errors import TollhouseError


# Requests

DEFAULT_MAX_TOKENS: Final = 4096
"""Anthropic requires a limit; used if neither the client nor the catalogue has one."""


def refused_in_messages(profile: Profile) -> frozenset[str]:
    """Return the fields that a provider refuses in messages.

    A limit of output, which the format requires, is refused under this name in chats alone.
    """
    return profile.refuses - _REQUIRED if profile.refuses else profile.refuses


_REQUIRED: Final = frozenset({"max_tokens"})
_MOST_FALLBACKS: Final = 3
_limit = msgspec.json.Decoder(int | None)


class _Fallback(msgspec.Struct, forbid_unknown_fields=True):
    model: str


_fallbacks = msgspec.json.Decoder(list[_Fallback] | None)


class MessagesRequest(ClientRequest, frozen=True):
    """A parsed request of the format."""

    output_limits = ("max_tokens",)
    content_field = "messages"

    max_tokens: int | None = None
    query: str = ""
    """The query string that is forwarded to the provider (`beta=true`)."""
    headers: Sequence[tuple[str, str]] = ()
    """The headers that are forwarded (`anthropic-beta`), names in lower case."""


def parse_request(body: bytes) -> MessagesRequest:
    """Parse a messages request; raises `Invalid`, whose message names the position or the field."""
    fields = read_object(body)
    model = read_model(fields)
    read_messages(fields)
    _check_fallbacks(fields)
    stream, limit = read_flag(fields, "stream"), _read_limit(fields)
    return MessagesRequest.of(body, fields, model, limit, stream=stream)


def _read_limit(fields: Fields) -> int | None:
    wanted = "a whole number of at least 1"
    limit = read_optional(_limit, fields, "max_tokens", wanted)
    if limit is not None and limit < 1:
        raise Invalid(f"max_tokens: must be {wanted}.")
    return limit


def _check_fallbacks(fields: Fields) -> None:
    wanted = "a list of objects with a model alone"
    fallbacks = read_optional(_fallbacks, fields, "fallbacks", wanted)
    if fallbacks is None:
        return
    if len(fallbacks) > _MOST_FALLBACKS:
        raise Invalid(f"fallbacks: at most {_MOST_FALLBACKS} are allowed.")
    if fields.get("models", NULL) != NULL:
        raise Invalid("fallbacks: cannot be combined with models.")


# Replies


def render_event(kind: str, fields: Mapping[str, object]) -> bytes:
    """Return an event of the gateway's own."""
    return named_event(kind, encoder.encode({"type": kind, **fields}))


_NO_END: Final[Mapping[str, object]] = dict.fromkeys(
    ("stop_reason", "stop_sequence", "stop_details", "container")
)
"""The fields that say how a message ended."""


def message_fields(identity: ReplyIdentity, provider: Fields) -> dict[str, object]:
    """Return a message's fields without its usage, with every key that clients rely on."""
    return {
        **_NO_END,
        **provider,
        "id": identity.id,
        "type": "message",
        "role": "assistant",
        "model": identity.model,
        "provider": identity.provider,
    }


STOP_REASONS: Final[Mapping[FinishReason, str]] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "content_filter": "refusal",
}
_PUBLISHED: Final = frozenset(
    {"stop_sequence", "pause_turn", "compaction", "model_context_window_exceeded"}
    | set(STOP_REASONS.values())
)


def legal_stop_reason(native: str | None, meant: FinishReason | None) -> str | None:
    """Return why a message ended in a word that Anthropic publishes; None if it failed.

    Some servers say `end_turn` with a call.
    """
    if native in _PUBLISHED and (native, meant) != ("end_turn", "tool_calls"):
        return native
    return None if meant is None else STOP_REASONS.get(meant)


def broken_off(identity: ReplyIdentity) -> bytes:
    """Return the end of a stream whose provider says that it broke the reply off."""
    maker = identity.provider
    error = ProviderUnavailable(f"{maker} broke the reply off.", provider_name=maker)
    return error_event(error, identity.id)


def render_end(
    delta: Mapping[str, object], usage: Mapping[str, object], more: Fields | None = None
) -> bytes:
    """Return the end of a completed stream: why it ended and its usage, then `message_stop`."""
    last = {**(more or {}), "delta": {**_NO_END, **delta}, "usage": usage}
    return render_event("message_delta", last) + render_event("message_stop", {})


# Usage


_NULLABLE: Final[Mapping[str, object]] = dict.fromkeys(
    ("server_tool_use", "service_tier", "inference_geo")
)
_NO_SERVER_TOOLS: Final = {"web_search_requests": 0, "web_fetch_requests": 0}


def read_fields(data: Raw) -> Fields:
    """Return the non-null fields of a `usage` object; empty if it is not an object.

    Those of `server_tool_use` are all there, as clients rely on.
    """
    fields = try_decode(fields_decoder, data) or {}
    found = {name: value for name, value in fields.items() if value != NULL}
    if "server_tool_use" in found:
        used = try_decode(fields_decoder, found["server_tool_use"]) or {}
        found["server_tool_use"] = raw({**_NO_SERVER_TOOLS, **used})
    return found


def render_tokens(usage: Usage) -> dict[str, object]:
    """Return a `usage` object with every key that clients rely on."""
    return {
        **_NULLABLE,
        "input_tokens": usage.input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens + usage.cache_write_1h_tokens,
        "cache_read_input_tokens": usage.cache_read_tokens,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.cache_write_tokens,
            "ephemeral_1h_input_tokens": usage.cache_write_1h_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def render_usage(charge: Charge, provider: Mapping[str, object] | None = None) -> dict[str, object]:
    """Return the final `usage` of a response.

    The provider's own fields are kept unless the gateway has the same and there are no iterations.
    """
    counts = render_tokens(charge.usage).items()
    ours = {name: value for name, value in counts if name not in _NULLABLE}
    given = {**_NULLABLE, **(provider or {})}
    # Anthropic's counts leave out what some of the iterations beside them used; clients add it up.
    told = given | ours if "iterations" not in given else ours | given
    return {**told, **render_costs(charge)}


# Errors

_TYPES: Final[Mapping[str, str]] = {
    "authentication": "authentication_error",
    "payment_required": "billing_error",
    "permission_denied": "permission_error",
    "not_found": "not_found_error",
    "image_not_found": "not_found_error",
    "rate_limit_exceeded": "rate_limit_error",
    "provider_overloaded": "overloaded_error",
    "provider_unavailable": "api_error",
    "server": "api_error",
    "unmapped": "api_error",
    "timeout": "timeout_error",
}
"""The format's `type` for each `error_type` that the request is not to blame for."""
_OUR_FAULT: Final = 500


def envelope(error: TollhouseError, request_id: str | None) -> dict[str, object]:
    """Return the body of an error response; `request_id` is the generation's, if there is one."""
    shown = error_object(error)
    fallback = "api_error" if status_of(error) >= _OUR_FAULT else "invalid_request_error"
    body: dict[str, object] = {
        "type": "error",
        "error": {
            "type": _TYPES.get(error.code, fallback),
            "message": shown["message"],
            "error_type": error.code,
        },
        "request_id": request_id,
    }
    facts = {name: value for name, value in error.metadata.items() if name != "error_type"}
    if facts and shown["message"] != INTERNAL_ERROR_MESSAGE:
        body["metadata"] = facts
    return body


def error_event(error: TollhouseError, request_id: str | None) -> bytes:
    """Return the error event that ends a stream."""
    return render_event("error", envelope(error, request_id))


# Pass-through

_GATEWAY_ONLY_FIELDS: Final = GATEWAY_FIELDS | {"safeguards", "user"}
"""`user` and `safeguards` are the public gateway's additions, which Anthropic rejects."""


@dataclass(slots=True, repr=False)
class MessagesResponse(AdaptedResponse):
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        content = shown_content(self.fields["content"], identity.maker)
        usage = render_usage(charge, read_fields(self.fields.get("usage", NULL)))
        fields = message_fields(identity, self.fields)
        return encoder.encode({**fields, "content": content, "usage": usage})


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
        self._usage: Fields = {}
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
        usage = render_usage(charge, self._usage)
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
            if b"null" in data or b"thinking" in data:
                data = self._shown_start(data)
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
            return named_event(event.type, encoder.encode({**fields, "delta": delta}))
        mark = b""
        if event.type == "content_block_stop" and self._thinks and maker:
            self._thinks = False
            delta = {"type": "signature_delta", "signature": unsigned(maker)}
            mark = render_event(_DELTA, {"index": event.index, "delta": delta})
        return mark + named_event(event.type, data)

    def _shown_start(self, data: bytes) -> bytes:
        fields = fields_decoder.decode(data)
        block = given = fields_decoder.decode(fields["content_block"])
        if b"null" in data:
            block = without_nulls(given)
        if b"thinking" in data:
            self._thinks = block.get("type") == _THINKING
            self._signed = block.get("signature", NULL) not in (NULL, _NO_TEXT)
            if self._signed or not self._thinks:
                block = mark_block(block, self._identity.maker)
        return data if block is given else encoder.encode({**fields, "content_block": block})

    def _open(self, event: MessagesEvent, data: bytes) -> bytes:
        message = fields_decoder.decode(fields_decoder.decode(data)["message"])
        if event.message is not None:
            self.upstream_id = id_text(event.message.id)
        self._usage = read_fields(message.get("usage", NULL))
        self._first_counts = find_counts(message)
        self._begin(first_usage_of(self._first_counts))
        return self._start(message)

    def _start(self, message: Fields) -> bytes:
        usage = render_tokens(Usage()) | readable_usage(self._usage)
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
        self._usage |= read_fields(fields.pop("usage", NULL))
        self._delta |= read_fields(fields.pop("delta", NULL))
        if event.type == "message_delta":
            self._extra_fields |= fields
        native = event.delta.stop_reason if event.delta else None
        if native is not None:
            self.native_finish_reason = native
            self.finish_reason = meant = normalize_finish_reason(native, called=self._called)
            self._delta["stop_reason"] = raw(legal_stop_reason(native, meant))


class MessagesPassthroughAdapter(PassthroughAdapter[MessagesRequest]):
    """Passes requests through to providers of the messages dialect."""

    dialect = Dialect.MESSAGES

    def __init__(self, request: MessagesRequest) -> None:
        super().__init__(request)
        self.query = request.query
        self.headers = request.headers

    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name.

        Fields for the gateway, fields that the provider rejects, and reasoning that another
        provider signed are left out. `max_tokens`, which Anthropic requires, is filled in.
        """
        refuses = refused_in_messages(endpoint.profile)
        rejected = _GATEWAY_ONLY_FIELDS | refuses if refuses else _GATEWAY_ONLY_FIELDS
        added = NO_FIELDS
        if self._request.max_tokens is None:
            added = {"max_tokens": raw(endpoint.max_completion_tokens or DEFAULT_MAX_TOKENS)}
        passed = self._request.passed_on(body, endpoint.model, rejected, added)
        if passed is not None and not is_marked(body):
            return passed
        given = self._request.whole(body)
        fields = for_provider(given, rejected, endpoint.model)
        fields["messages"] = own_reasoning(given["messages"], endpoint.provider)
        if "user" in given and "metadata" not in given.keys() | refuses:
            fields["metadata"] = {"user_id": given["user"]}
        return encoder.encode({**fields, **added})

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


def render_count(body: bytes, endpoint: Endpoint) -> bytes:
    """Return the body of a counting request; its route rejects fields of the reply."""
    adapter = MessagesPassthroughAdapter(parse_request(body))
    fields = fields_decoder.decode(adapter.render_request(body, endpoint))
    return encoder.encode(without(fields, {"max_tokens", "stream"}))


def parse_count(body: bytes) -> int:
    """Return the input tokens that a provider counted; raises `MalformedResponse`."""
    counted = try_decode(_counted, body)
    if counted is None or counted.input_tokens < 0:
        raise MalformedResponse("the reply is no count of tokens")
    return counted.input_tokens
