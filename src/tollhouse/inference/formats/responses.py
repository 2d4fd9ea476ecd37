"""The responses format: parses requests, and passes them through to providers of the format. Pure.

The gateway stores no responses, so a request to store one, or to continue a stored one, is rejected
rather than answered without its history. An item of a kind in the provider's `refuses` becomes the
text that other formats get of it; where they get none, and for a tool, the request is refused with
its place.

A stream's events are forwarded with all their fields, except their number and the id and model of a
response inside them. The terminal event is held back to the end.

    output_item.added  (content_part.added  its deltas)*  output_item.done

Clients assemble the response while it arrives: an event about an item or a part that was not added
breaks them, so the order is checked.

Source: https://platform.openai.com/docs/api-reference/responses/create and .../responses-streaming
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self, cast

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import (
    AdaptedResponse,
    AdaptedStream,
    ClientRequest,
    MalformedResponse,
    PassthroughAdapter,
    counted,
)
from tollhouse.inference.formats.canonical import (
    COMMON_PARAMETERS,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    unpack,
)
from tollhouse.inference.formats.kinds import ITEMS, TOOLS, marked, refused
from tollhouse.inference.formats.proofs import IN_RESPONSES, unwrapped, wrap_all
from tollhouse.inference.formats.provider_errors import not_of_dialect
from tollhouse.inference.formats.responses_items import CALL_TYPES, ITEM_REFERENCE, role_of_text
from tollhouse.inference.formats.responses_order import NOT_OF_TYPE, ItemOrder, whole_items
from tollhouse.inference.formats.responses_replies import (
    DONE_EVENT,
    FAILURE_EVENTS,
    TERMINAL_EVENTS,
    NumberedEventWriter,
    blank_response,
    counts_of,
    finished_response,
    interrupted_response,
    parse_failure_event,
    parse_finish_reason,
    parse_response,
    render_response,
    render_usage,
    response_decoder,
)
from tollhouse.inference.formats.responses_requests import (
    SENT,
    parse_canonical_request,
    reasoning_input,
    render_request,
)
from tollhouse.inference.formats.responses_streams import (
    ResponsesStreamDecoder,
    ResponsesStreamEncoder,
)
from tollhouse.inference.formats.responses_tools import type_decoder
from tollhouse.inference.formats.tools import OPENAI_NAMES
from tollhouse.inference.formats.translation import ClientFormat, ProviderFormat
from tollhouse.inference.formats.usage import find_counts
from tollhouse.inference.formats.wire import (
    GATEWAY_FIELDS,
    NULL,
    EventTemplate,
    Fields,
    begins_list_of_objects,
    encoder,
    fields_decoder,
    for_provider,
    is_done,
    raw,
    read_field,
    read_flag,
    read_id,
    read_model,
    read_object,
    replace_invalid_text,
    says_nothing,
    text_bytes,
    try_decode,
    without,
)
from tollhouse.inference.types import Dialect, Endpoint, ReplyIdentity
from tollhouse.kernel.errors import CONTEXT_LENGTH_EXCEEDED, Bug, Invalid, TollhouseError

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.canonical import Block, FinishReason
    from tollhouse.inference.formats.responses_replies import JsonObject


# Requests


_input = msgspec.json.Decoder(str | list[msgspec.Raw])
_items = msgspec.json.Decoder(list[Raw])
_REFERENCE: Final = ITEM_REFERENCE.encode()
_NO_STATE: Final = {
    "store": "responses are not stored; leave it out or send false",
    "background": "responses are not made in the background; leave it out or send false",
}
_NO_HISTORY: Final = ("previous_response_id", "conversation")
_STATE: Final = frozenset({*_NO_STATE, *_NO_HISTORY})


class ResponsesRequest(ClientRequest, frozen=True):
    """A parsed request of the format."""

    output_limits = ("max_output_tokens",)
    streamed_errors = (CONTEXT_LENGTH_EXCEEDED,)
    """Codex recognizes a full context only by `response.failed`, as OpenAI sends it."""
    content_field = "input"


def parse_request(body: bytes) -> ResponsesRequest:
    """Parse a responses request; raises `Invalid`, whose message names the field.

    A request that needs stored responses is invalid.
    """
    fields = read_object(body)
    model = read_model(fields)
    if not begins_list_of_objects(fields.get("input", NULL)):
        read_field(_input, fields, "input", "a text or a list of items", filled=True)
    if not _STATE.isdisjoint(fields):
        _require_no_state(fields)
    if _REFERENCE in body:
        _check_references(fields["input"])
    return ResponsesRequest.of(body, fields, model, stream=read_flag(fields, "stream"))


def _require_no_state(fields: Fields) -> None:
    for name, reason in _NO_STATE.items():
        if read_flag(fields, name):
            raise Invalid(f"{name}: {reason}.")
    for name in _NO_HISTORY:
        if fields.get(name, NULL) != NULL:
            raise Invalid(f"{name}: responses are not stored; send the whole history in input.")


def _check_references(given: Raw) -> None:
    """Reject references to stored items: the provider stores none for the gateway, either."""
    for index, item in enumerate(try_decode(_items, given) or ()):
        if _kind_of(item) == ITEM_REFERENCE:
            raise refused(ITEMS, ITEM_REFERENCE, f"input[{index}]")


# Requests for providers


class _Reasoning(msgspec.Struct):
    type: str | None = None
    encrypted_content: str | None = None
    content: list[Raw] | None = None


_EXTENSIONS: Final = frozenset(
    {
        "cache_control",
        "frequency_penalty",
        "image_config",
        "min_p",
        "modalities",
        "presence_penalty",
        "repetition_penalty",
        "stop",
        "top_a",
        "top_k",
    }
)
"""The public gateway's additions, which OpenAI rejects."""
_REJECTED: Final = GATEWAY_FIELDS | _EXTENSIONS
_OF_REASONING: Final = ("enabled", "exclude", "max_tokens")
"""The public gateway's additions to `reasoning`."""
_MARK: Final = b'"encrypted_content"'
_OF_REASONING_ITEMS: Final = re.compile(rb'"encrypted_content"|"type"\s*:\s*"reasoning"')
_NOT_STORED: Final = {"store": Raw(b"false")}
_given_items = msgspec.json.Decoder(list[Fields])
_reasoning = msgspec.json.Decoder(_Reasoning)


class ResponsesPassthroughAdapter(PassthroughAdapter[ResponsesRequest]):
    """Passes requests through to providers of the responses dialect."""

    dialect = Dialect.RESPONSES

    def unsupported_parameters(self, endpoint: Endpoint) -> Collection[str]:
        """Return the request's parameters that the endpoint would not receive."""
        profile = endpoint.profile
        extensions = frozenset[str]() if profile.takes_extensions else _EXTENSIONS
        return self._request.fields.keys() & (profile.refuses | extensions)

    def render_request(self, body: bytes, endpoint: Endpoint) -> bytes:
        """Return the provider's request body: the client's, with the provider's model name.

        Fields for the gateway, fields that the provider rejects, and reasoning of other providers'
        models are left out; kinds of items that it rejects become text.
        """
        profile = endpoint.profile
        rejected = GATEWAY_FIELDS if profile.takes_extensions else _REJECTED
        rejected = rejected | profile.refuses if profile.refuses else rejected
        added = {} if "store" in profile.refuses else _NOT_STORED
        changed = rejected if profile.takes_extensions else rejected | {"reasoning"}
        passed = self._request.passed_on(body, endpoint.model, changed, added)
        may_change = _OF_REASONING_ITEMS.search(body) or not _KINDS.isdisjoint(profile.refuses)
        if passed is not None and not may_change:
            return passed
        given = self._request.whole(body)
        fields = for_provider(given, rejected, endpoint.model)
        fields["input"] = _own_history(_without_refused_kinds(given, profile.refuses), endpoint)
        if "reasoning" in fields and not profile.takes_extensions:
            # The provider reports what is not of the type.
            own = try_decode(fields_decoder, given["reasoning"])
            fields["reasoning"] = given["reasoning"] if own is None else without(own, _OF_REASONING)
        return encoder.encode({**fields, **added})

    def parse_response(self, body: bytes) -> ResponsesResponse:
        """Parse a provider's complete response."""
        reply = parse_response(body)
        choice = reply.choices[0]
        fields = fields_decoder.decode(replace_invalid_text(body))
        reported, seen = counted(
            reply.usage, self._request.size, lambda: sum(map(_output_size, choice.blocks))
        )
        return ResponsesResponse(
            reported=reported,
            seen=seen,
            finish_reason=choice.finish_reason,
            native_finish_reason=choice.native_finish_reason,
            upstream_id=reply.upstream_id,
            request=self._request,
            fields={**fields, "output": raw(whole_items(_given_items.decode(fields["output"])))},
        )

    def open_stream(self, identity: ReplyIdentity) -> ResponsesStream:
        """Return the adapter of one streamed response."""
        return ResponsesStream(identity, self._request)


def _own_history(given: Raw, endpoint: Endpoint) -> Raw:
    """Return an input with the reasoning that this provider made, and no other."""
    if not _OF_REASONING_ITEMS.search(bytes(given)):
        return given
    items = try_decode(_items, given)
    if items is None:
        # A text, or an error that the provider reports.
        return given
    items = [_own_item(item, f"input[{at}]", endpoint) for at, item in enumerate(items)]
    return raw([item for item in items if item is not None])


def _own_item(item: Raw, at: str, endpoint: Endpoint) -> Raw | None:
    looks_like_it = _OF_REASONING_ITEMS.search(bytes(item))
    reasoning, provider = try_decode(_reasoning, item), endpoint.provider
    if reasoning is None or not looks_like_it:
        # What is not of its type is passed on unchanged: the provider reports the error.
        return item
    if not reasoning.encrypted_content:
        # Its id leads nowhere, as nothing is stored; open models have their thoughts in it.
        readable = reasoning.content and not endpoint.profile.refuses_reasoning
        return item if readable or reasoning.type != "reasoning" else None
    packed = unpack(reasoning.encrypted_content)
    if packed is not None:
        own = reasoning_input(packed, provider)
        return None if own is None else raw(own)
    maker, own = unwrapped(reasoning.encrypted_content)
    if maker is None:
        return item
    if maker == provider:
        return raw({**fields_decoder.decode(item), "encrypted_content": own})
    if reasoning.type != "reasoning":
        # It stands for a part of the history.
        raise Invalid(f"{at}.encrypted_content: only the provider that made it can read it.")
    return None


_KINDS: Final = frozenset(ITEMS.keys() | TOOLS.keys()) - {"reasoning"}
"""All kinds but one that is the name of a field, too: there the field is meant."""


def _without_refused_kinds(given: Fields, refuses: frozenset[str]) -> Raw:
    """Return the input that a provider gets; raises `Invalid` for what it cannot get."""
    kinds = refuses & _KINDS
    if not kinds:
        return given["input"]
    items = try_decode(_items, given["input"])
    told = [_told(item, f"input[{at}]", kinds) for at, item in enumerate(items or ())]
    for at, tool in enumerate(try_decode(_items, given.get("tools", NULL)) or ()):
        if (kind := _kind_of(tool)) in kinds:
            raise _not_taken(kind, f"tools[{at}]")
    return given["input"] if items is None else raw(told)


def _kind_of(data: Raw) -> str | None:
    found = try_decode(type_decoder, data)
    return None if found is None else found.type


def _told(data: Raw, path: str, kinds: frozenset[str]) -> Raw:
    kind = _kind_of(data)
    if kind is None or kind not in kinds:
        return data
    if kind not in ITEMS or ITEMS[kind].rule != "text":
        raise _not_taken(kind, path)
    role = role_of_text(kind)
    part: dict[str, object] = {"type": "input_text"}
    if role == "assistant":
        part = {"type": "output_text", "annotations": []}
    content = [part | {"text": marked(kind, data)}]
    return raw({"type": "message", "role": role, "content": content})


def _not_taken(kind: str | None, path: str) -> Invalid:
    return Invalid(f"{path}.type: {kind!r} is not taken by this model's provider.")


# Complete responses


@dataclass(slots=True, repr=False)
class ResponsesResponse(AdaptedResponse):
    """A provider's complete response, decoded as far as the gateway needs."""

    request: ResponsesRequest
    fields: Fields

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        ours = {"id": identity.id, "object": "response", "model": identity.model}
        fields = {**blank_response(self.request, identity), **self.fields, **ours}
        fields["output"] = Raw(wrap_all(bytes(self.fields["output"]), IN_RESPONSES, identity.maker))
        return encoder.encode(_ended(fields, self, charge))


def _ended(
    response: JsonObject, reply: AdaptedResponse | AdaptedStream, charge: Charge
) -> JsonObject:
    """Return a response with its usage, and with an end that OpenAI publishes."""
    if reply.native_finish_reason in _PUBLISHED:
        return {**response, "usage": render_usage(charge)}
    response = {**response, "incomplete_details": None}
    return finished_response(response, cast("FinishReason", reply.finish_reason), charge)


def _output_size(block: Block) -> int:
    """Return the bytes of output in a block."""
    if isinstance(block, (TextBlock, RefusalBlock, ReasoningBlock)):
        return len(block.text.encode())
    return len(block.arguments.encode()) if isinstance(block, ToolCall) else 0


_PUBLISHED: Final = frozenset(
    {"completed", "incomplete", "max_output_tokens", "content_filter", "max_messages", "steered"}
)
"""Statuses, and reasons of a response that is incomplete.

Source: `IncompleteDetails.reason` of openai 3.52.
"""

# Streams

_NO_TOKENS: Final = Raw(b"[]")
_TEXTS: Final = frozenset({"response.output_text.delta", "response.output_text.done"})
_LIKE: Final = ("response.output_text.", "response.reasoning_")
"""Events of which one is like the next."""
_MOST_LESSONS: Final = 2
_NUMBER: Final = "sequence_number"
_VARYING: Final = frozenset({_NUMBER, "delta", "obfuscation"})
"""The fields in which the deltas of a part differ.

Source: https://platform.openai.com/docs/api-reference/responses-streaming; `obfuscation` makes all
events of a stream as long as one another.
"""
_string = msgspec.json.Decoder(str)
_index = msgspec.json.Decoder(int)


class ResponsesStream(AdaptedStream):
    """A provider's stream, forwarded in a checked order."""

    def __init__(self, identity: ReplyIdentity, request: ResponsesRequest) -> None:
        super().__init__(request.size)
        self._ours = {"id": identity.id, "object": "response", "model": identity.model}
        self._maker = identity.maker
        self._blank = blank_response(request, identity)
        self._response = self._blank
        """The latest response object of the provider."""
        self._event_writer = NumberedEventWriter()
        self._order = ItemOrder()
        self._last_kind = ""
        self._template: _DeltaTemplate | None = None
        """Of the deltas that come now; every other event ends them."""
        self._lessons = _MOST_LESSONS
        """How many templates are tried before one fits."""

    def feed(self, data: bytes) -> bytes:
        """Consume the data of one provider event; return the bytes for the client."""
        if self.done:
            self._report(find_counts(try_decode(fields_decoder, data) or {}))
            return b""
        if says_nothing(data) or is_done(data):
            return b""
        data = replace_invalid_text(data)
        if self._template is not None and (shown := self._pass_on_same(self._template, data)):
            return shown
        self._template = None
        if _MARK in data:
            data = wrap_all(data, IN_RESPONSES, self._maker)
        try:
            fields = fields_decoder.decode(data)
            if "type" not in fields and fields.get("error", NULL) != NULL:
                raise parse_failure_event(data)
            kind = _string.decode(fields["type"])
            if kind in FAILURE_EVENTS:
                raise parse_failure_event(data)
            return self._pass_on(kind, fields, data)
        except (msgspec.DecodeError, RecursionError, KeyError):
            raise not_of_dialect(data, NOT_OF_TYPE) from None

    def end(self, charge: Charge) -> bytes:
        """Return the end of a completed stream: the terminal event, then `[DONE]`."""
        if not self.done:
            raise Bug("a responses stream was ended before its end")
        return super().end(charge)

    def _end(self, charge: Charge) -> bytes:
        response = _ended(self._response, self, charge)
        kind = "response.failed" if self.finish_reason == "error" else self._last_kind
        return self._event_writer.event(kind, {"response": response}) + DONE_EVENT

    def _fail(self, error: TollhouseError) -> bytes:
        begun = b""
        if not self._event_writer.count:
            begun = self._event_writer.event("response.created", {"response": self._blank})
        response = interrupted_response(self._response, error)
        failed = self._event_writer.event("response.failed", {"response": response})
        return begun + failed + DONE_EVENT

    def _pass_on(self, kind: str, fields: Fields, data: bytes) -> bytes:
        if not self._event_writer.count and not kind.startswith("response."):
            return b""  # `keepalive`, `ping`: only the response can be the first event
        if (kind == "response.created") != (self._event_writer.count == 0):
            raise MalformedResponse("the stream does not begin with the response, or begins twice")
        if kind in TERMINAL_EVENTS:
            return self._finish(kind, fields)
        if not kind.isprintable():
            raise MalformedResponse("an event's type is not printable")
        if "usage" in fields:
            self._report(find_counts(fields))
        told = self._order.accept(kind, fields)
        if len(told) == 1 and told[0][1] is fields:
            return self._told(kind, fields, data)
        return b"".join(self._told(*each, b"") for each in told)

    def _told(self, kind: str, fields: Fields, data: bytes) -> bytes:
        """Return an event as the client gets it; `data` is as it came, if it needs no change."""
        if kind in _TEXTS:
            fields.setdefault("logprobs", _NO_TOKENS)
        if "response" in fields:
            response = self._patched(fields["response"])
            return self._event_writer.event(kind, {**fields, "response": response})
        if not kind.endswith(".delta"):
            return self._event_writer.event(kind, fields)
        self._seen_bytes += _length(fields.get("delta", NULL))
        if not data or not kind.startswith(_LIKE):
            return self._event_writer.event(kind, fields)
        number = raw(self._event_writer.count)
        shown = self._event_writer.event(kind, fields)
        if self._lessons:
            self._lessons -= 1
            self._template = _DeltaTemplate.of(data, shown, fields, number)
        return shown

    def _pass_on_same(self, template: _DeltaTemplate, data: bytes) -> bytes:
        """Return one more delta of the same part; nothing if it may be another event."""
        found = template.read(data)
        if found is None:
            return b""
        values, text = found
        self._lessons = _MOST_LESSONS
        self._seen_bytes += text_bytes(text)
        self._order.last_text.append(text)
        return template.show(values, b"%d" % self._event_writer.next_number())

    def _patched(self, response: Raw) -> dict[str, object]:
        given = fields_decoder.decode(response)
        self._report(find_counts(given))
        if self.upstream_id is None:
            self.upstream_id = read_id(given)
        self._response = {**self._blank, **given, **self._ours}
        return self._response

    def _finish(self, kind: str, fields: Fields) -> bytes:
        response = response_decoder.decode(fields["response"])
        told, output = self._order.finish(response.output or ())
        calls = any(type_decoder.decode(raw(item)).type in CALL_TYPES for item in output)
        self.finish_reason, self.native_finish_reason = parse_finish_reason(response, calls=calls)
        self._report(counts_of(response, fields["response"], fields))
        self._patched(fields["response"])
        self._last_kind, self.done = kind, True
        self._response["output"] = output
        return b"".join(self._told(*each, b"") for each in told)


class _DeltaTemplate:
    """What the deltas of one part have in common."""

    def __init__(self, names: Sequence[str], given: EventTemplate, shown: EventTemplate) -> None:
        self._names = names
        self._number_at = names.index(_NUMBER) if _NUMBER in names else None
        self._given = given
        self._shown = shown

    @classmethod
    def of(cls, data: bytes, shown: bytes, fields: Fields, number: Raw) -> Self | None:
        """Return what is left of an event, and of what the client got of it, without the values."""
        values = {name: value for name, value in fields.items() if name in _VARYING}
        given = EventTemplate.of(data, values)
        ours = EventTemplate.of(shown, {**values, _NUMBER: number})
        if "delta" not in values or given is None or ours is None:
            return None
        return cls(list(values), given, ours)

    def read(self, data: bytes) -> tuple[list[bytes], str] | None:
        """Return the values of an event of the same kind, and the text of its delta.

        None if it may be of another kind.
        """
        values = self._given.values(data)
        if values is None:
            return None
        text = ""
        try:
            for at, name in enumerate(self._names):
                value = values[at]
                if name == _NUMBER:
                    _index.decode(value)
                elif not (value.startswith(b'"') and value.endswith(b'"')):
                    # No text, or one with spaces around it, which do not belong to it.
                    return None
                elif name == "delta":
                    text = _string.decode(value)
                else:
                    _string.decode(value)
        except msgspec.DecodeError:
            return None
        return values, text

    def show(self, values: list[bytes], number: bytes) -> bytes:
        """Return what the client gets of an event with such values; it has the next number."""
        if self._number_at is None:
            values.append(number)
        else:
            values[self._number_at] = number
        return self._shown.fill(values)


def _length(delta: Raw) -> int:
    """Return the bytes of a delta's text; of any other delta, the size of its JSON."""
    if delta == NULL:
        return 0
    text = try_decode(_string, delta)
    return len(delta) if text is None else text_bytes(text)


# Translation

RESPONSES_CLIENT: Final = ClientFormat(
    parse_canonical_request, render_response, ResponsesStreamEncoder
)
RESPONSES_PROVIDER: Final = ProviderFormat(
    dialect=Dialect.RESPONSES,
    supported_parameters=COMMON_PARAMETERS.union(
        SENT, {"verbosity", "logprobs", "top_logprobs", "metadata"}
    ),
    canonical_names={"max_output_tokens": "max_tokens", "reasoning": "thinking", "text": "output"},
    render_request=render_request,
    parse_response=parse_response,
    stream_decoder=ResponsesStreamDecoder,
    tool_names=OPENAI_NAMES,
)
