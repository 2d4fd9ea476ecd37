"""The parts of the messages format that the gateway decodes or writes; the rest stays raw.

    errors:     {"type": "error", "error": {"type", "message", "error_type"}, "request_id"}
    reasoning:  Anthropic's         <->  thinking{thinking, signature} or redacted_thinking{data}
                another provider's  <->  thinking{thinking, signature: the packed block}

Source: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/errors and the
public gateway's error reference for `error_type` and its values; and, below
https://docs.anthropic.com/en/docs/, build-with-claude/streaming (the counts of `message_delta` are
cumulative), build-with-claude/prompt-caching ("input_tokens" counts uncached tokens only),
build-with-claude/extended-thinking
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.adapter import ClientRequest
from tollhouse.inference.formats.canonical.types import ANTHROPIC, ReasoningBlock, pack, unpack
from tollhouse.inference.formats.proofs import is_marked, unsigned, unwrapped, wrapped
from tollhouse.inference.formats.usage import Counts, final, read_counts, usage_of
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    fields_decoder,
    named_event,
    raw,
    read_flag,
    read_messages,
    read_model,
    read_object,
    read_optional,
    render_costs,
    text_decoder,
    try_decode,
)
from tollhouse.kernel.errors import (
    INTERNAL_ERROR_MESSAGE,
    Invalid,
    ProviderUnavailable,
    error_object,
    status_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.accounting.types import Charge, Usage
    from tollhouse.inference.formats.canonical.types import FinishReason
    from tollhouse.inference.types import Profile, ReplyIdentity
    from tollhouse.kernel.errors import TollhouseError


DEFAULT_MAX_TOKENS: Final = 4096
"""Anthropic requires a limit; used if neither the client nor the catalogue has one."""


def refused_in_messages(profile: Profile) -> frozenset[str]:
    """Return the fields that a provider refuses in messages.

    A limit of output, which the format requires, is refused under this name in chats alone.
    """
    return profile.refuses - _REQUIRED if profile.refuses else profile.refuses


_REQUIRED: Final = frozenset({"max_tokens"})


def render_event(kind: str, fields: Mapping[str, object]) -> bytes:
    """Return an event of the gateway's own."""
    return named_event(kind, encoder.encode({"type": kind, **fields}))


_NO_END: Final[Mapping[str, object]] = {
    "stop_reason": None,
    "stop_sequence": None,
    "stop_details": None,
    "container": None,
}
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


class _CacheCreation(msgspec.Struct):
    ephemeral_5m_input_tokens: int | None = None
    ephemeral_1h_input_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    thinking_tokens: int | None = None


class _ProviderUsage(msgspec.Struct):
    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None
    cache_creation: _CacheCreation | None = None
    output_tokens_details: _OutputDetails | None = None


_usage = msgspec.json.Decoder(_ProviderUsage)
_NULLABLE: Final[Mapping[str, object]] = {
    "server_tool_use": None,
    "service_tier": None,
    "inference_geo": None,
}
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


def readable(fields: Fields) -> Fields:
    """Return the usage at the start of a stream if it is valid for clients; else nothing."""
    strict = try_decode(_usage, raw({"output_tokens": 0, **fields}))
    return fields if strict is not None and read_counts(raw(fields)) else {}


def first_usage_of(counts: Counts) -> Usage | None:
    """Return the usage that a provider reported before its output."""
    return usage_of({"output": 0, **counts})


def usage_of_stream(start: Counts, end: Counts) -> Usage | None:
    """Return the usage of a stream, of what it reported at its start and at its end."""
    # The output at the start covers only what came until then.
    told = "output" in end or "total" in end
    return usage_of(final(start, end)) if told else None


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


# Reasoning


class _SignedBlock(msgspec.Struct):
    type: str
    signature: str | None = None
    data: str | None = None


_signed_block = msgspec.json.Decoder(_SignedBlock)
_messages = msgspec.json.Decoder(list[Fields])
_content = msgspec.json.Decoder(list[Raw] | str)


def parse_thinking(text: str, signature: str) -> ReasoningBlock:
    """Return the canonical block of a `thinking` block."""
    maker, own = unwrapped(signature)
    native = ReasoningBlock(text=text, signature=own or None, format=ANTHROPIC, maker=maker)
    return unpack(signature) or native


def parse_redacted(data: str) -> ReasoningBlock:
    """Return the canonical block of a `redacted_thinking` block."""
    maker, own = unwrapped(data)
    return unpack(data) or ReasoningBlock(encrypted=own, format=ANTHROPIC, maker=maker)


def render_reasoning(block: ReasoningBlock, maker: str) -> Mapping[str, object]:
    """Render a block for a client, whichever provider made it."""
    if block.format != ANTHROPIC:
        return {"type": "thinking", "thinking": block.text, "signature": pack(block, maker)}
    if block.encrypted and not block.text:
        return {"type": "redacted_thinking", "data": wrapped(block.encrypted, maker)}
    signature = wrapped(block.signature or "", maker) or unsigned(maker)
    return {"type": "thinking", "thinking": block.text, "signature": signature}


def render_provider_reasoning(block: ReasoningBlock, provider: str) -> Mapping[str, object] | None:
    """Render a block for a provider; None if the provider could not verify it."""
    if block.format != ANTHROPIC or not block.may_go_to(provider):
        return None
    if block.encrypted and not (block.signature or block.text):
        return render_reasoning(block, "")
    if block.signature or (block.text and block.maker is not None and not block.encrypted):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}
    return None


def own_reasoning(messages: Raw, provider: str) -> Raw:
    """Return a client's messages with the reasoning that a provider made, and no other.

    A client that changes the model within a conversation sends it back; Anthropic rejects a request
    with a signature that is not its own.
    """
    if not is_marked(bytes(messages)):
        return messages
    try:
        cleaned = (_cleaned(message, provider) for message in _messages.decode(messages))
        return raw([message for message in cleaned if message is not None])
    except (msgspec.DecodeError, RecursionError):
        # Not a conversation: the provider reports the error.
        return messages


def _cleaned(message: Fields, provider: str) -> Fields | None:
    """Return a message for a provider; None if nothing is left of it."""
    content = _content.decode(message.get("content", Raw(b'""')))
    if isinstance(content, str) or not is_marked(bytes(message["content"])):
        return message
    own = [found for block in content if (found := _own_block(block, provider)) is not None]
    return {**message, "content": raw(own)} if own else None


def _own_block(block: Raw, provider: str) -> Raw | None:
    signed = try_decode(_signed_block, block)
    field = None if signed is None else _PROOFS.get(signed.type)
    proof = None if field is None else getattr(signed, field)
    if field is None or proof is None:
        return block
    packed, (maker, own) = unpack(proof), unwrapped(proof)
    if packed is not None:
        shown = render_provider_reasoning(packed, provider) if packed.maker else None
        return None if shown is None else raw(shown)
    if maker is None:
        return block
    return raw({**fields_decoder.decode(block), field: own}) if maker == provider else None


def mark_block(block: Fields, maker: str) -> Fields:
    """Return a provider's block as a client gets it: with a mark in what only its maker reads."""
    field = _PROOFS.get(try_decode(text_decoder, block.get("type", NULL)) or "")
    proof = None if field is None else try_decode(text_decoder, block.get(field, NULL))
    marked = wrapped(proof, maker) if proof else unsigned(maker) if field == "signature" else ""
    return {**block, field: raw(marked)} if field and marked and maker else block


_PROOFS: Final[Mapping[str, str]] = {"thinking": "signature", "redacted_thinking": "data"}
"""The field of a block that only its maker can read."""


# Requests


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
    return MessagesRequest(
        model=model,
        stream=read_flag(fields, "stream"),
        fields=fields,
        size=len(body),
        body=body,
        max_tokens=_read_limit(fields),
    )


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
