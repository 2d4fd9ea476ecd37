"""Request and response bodies that are passed through; only the gateway's fields are changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.chat_completions.errors import parse_error_event
from tollhouse.inference.formats.chat_completions.reasoning import fill_reasoning_fields
from tollhouse.inference.formats.chat_completions.usage import (
    message_bytes,
    parse_usage,
    render_usage,
)
from tollhouse.inference.formats.chat_completions.wire import (
    choices_decoder,
    normalize_finish_reason,
)
from tollhouse.inference.formats.fields import GATEWAY_FIELDS, Fields, fields_decoder
from tollhouse.inference.formats.raw_json import NULL, encoder, raw, replace_invalid_utf8
from tollhouse.inference.formats.tokens import estimate_tokens

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from msgspec import Raw

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.chat_completions.request import ChatRequest
    from tollhouse.inference.types import Endpoint, Profile, ReplyIdentity


class _Reasoning(msgspec.Struct):
    effort: str | None = None


_INCLUDE_USAGE = raw({"include_usage": True})
_REASONING_FIELDS = frozenset({"reasoning", "reasoning_content", "reasoning_details"})
_OUTPUT_LIMITS = frozenset({"max_tokens", "max_completion_tokens"})
_reasoning = msgspec.json.Decoder(_Reasoning | None)
_text = msgspec.json.Decoder(str | None)
_options = msgspec.json.Decoder(Fields | None)


@dataclass(slots=True)
class ChatResponse:
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields
    choices: list[Fields]
    reported: Usage | None
    seen: Usage
    finish_reason: str | None
    native_finish_reason: str | None
    upstream_id: str | None

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        fields: Mapping[str, object] = {
            "system_fingerprint": NULL,
            **self.fields,
            "id": identity.id,
            "object": "chat.completion",
            "created": identity.created,
            "model": identity.model,
            "provider": identity.provider,
            "choices": self.choices,
            "usage": render_usage(charge, is_byok=False),
        }
        return encoder.encode(fields)


def provider_request(request: ChatRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body: the client's, with the provider's model name.

    Fields for the gateway and fields that the provider rejects are left out. A stream requests its
    usage if the provider supports that.
    """
    profile = endpoint.profile
    given = _renamed_fields(request.fields, profile) if profile.refused_in_chat else request.fields
    fields = {name: value for name, value in given.items() if name not in GATEWAY_FIELDS}
    fields["model"] = raw(endpoint.model)
    if request.stream and profile.usage_in_streams:
        fields["stream_options"] = _with_usage(fields.get("stream_options"))
    else:
        fields.pop("stream_options", None)
    return encoder.encode(fields)


def without_reasoning(message: Fields) -> Fields:
    """Return a message or a delta without the model's reasoning."""
    return {name: value for name, value in message.items() if name not in _REASONING_FIELDS}


def rejected_fields(request: ChatRequest, endpoint: Endpoint) -> Collection[str]:
    """Return the fields that a provider rejects and has no other name for."""
    profile = endpoint.profile
    renamed = _OUTPUT_LIMITS | {"reasoning"}
    return (request.fields.keys() & profile.refused_in_chat) - renamed


def _renamed_fields(fields: Fields, profile: Profile) -> Fields:
    """Return the fields that a provider accepts; two are sent under its own name."""
    rejected = profile.refused_in_chat
    accepted = {name: value for name, value in fields.items() if name not in rejected}
    for name in _OUTPUT_LIMITS & rejected & fields.keys():
        accepted.setdefault(profile.output_limit, fields[name])
    if "reasoning" in rejected and "reasoning_effort" not in rejected:
        effort = _effort(fields.get("reasoning", NULL))
        if effort is not None:
            accepted.setdefault("reasoning_effort", raw(effort))
    return accepted


def _effort(reasoning: Raw) -> str | None:
    try:
        given = _reasoning.decode(reasoning)
    except (msgspec.DecodeError, RecursionError):
        # The provider would reject it; nothing else depends on it.
        return None
    return None if given is None else given.effort


def _with_usage(options: Raw | None) -> Raw:
    if options is None:
        return _INCLUDE_USAGE
    try:
        given = _options.decode(options)
    except (msgspec.DecodeError, RecursionError):
        # The provider would reject it; the stream does not depend on it.
        given = None
    return _INCLUDE_USAGE if given is None else raw({**given, "include_usage": True})


def parse_chat_response(body: bytes, request: ChatRequest) -> ChatResponse:
    """Parse a provider's complete response.

    Raises:
        MalformedResponse: The body is not a chat completion.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    try:
        fields = fields_decoder.decode(replace_invalid_utf8(body))
        if fields.get("error", NULL) != NULL:
            raise parse_error_event(fields["error"])
        choices = choices_decoder.decode(fields["choices"])
        native = _text.decode(choices[0].get("finish_reason", NULL))
        upstream_id = _text.decode(fields.get("id", NULL))
        hides = not request.shows_reasoning
        patched = [_choice(choice, index, hides=hides) for index, choice in enumerate(choices)]
    except (msgspec.DecodeError, RecursionError, KeyError, IndexError):
        message = "the reply is not a chat completion"
        raise MalformedResponse(message) from None
    reported = parse_usage(fields.get("usage"))
    return ChatResponse(
        fields=fields,
        choices=patched,
        reported=reported,
        seen=_seen(choices, request) if reported is None else reported,
        finish_reason=normalize_finish_reason(native),
        native_finish_reason=native,
        upstream_id=upstream_id,
    )


def _seen(choices: list[Fields], request: ChatRequest) -> Usage:
    return Usage(
        input_tokens=estimate_tokens(request.size),
        output_tokens=estimate_tokens(sum(message_bytes(choice["message"]) for choice in choices)),
    )


def _choice(choice: Fields, index: int, *, hides: bool) -> Fields:
    native = choice.get("finish_reason", NULL)
    message = fields_decoder.decode(choice["message"])
    message = (without_reasoning if hides else fill_reasoning_fields)(message)
    message.setdefault("role", raw("assistant"))
    message.setdefault("content", NULL)
    message.setdefault("refusal", NULL)
    return {
        "logprobs": NULL,
        **choice,
        "index": raw(index) if choice.get("index", NULL) == NULL else choice["index"],
        "message": raw(message),
        "finish_reason": raw(normalize_finish_reason(_text.decode(native))),
        "native_finish_reason": choice.get("native_finish_reason", native),
    }
