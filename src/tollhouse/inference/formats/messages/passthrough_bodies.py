"""Request and response bodies that are passed through; only the gateway's fields are changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.types import Usage
from tollhouse.inference.formats.adapter import MalformedResponse
from tollhouse.inference.formats.fields import GATEWAY_FIELDS, Fields, fields_decoder
from tollhouse.inference.formats.messages.errors import parse_error
from tollhouse.inference.formats.messages.reasoning import without_foreign_reasoning
from tollhouse.inference.formats.messages.usage import parse_usage, read_fields, render_usage
from tollhouse.inference.formats.messages.wire import (
    DEFAULT_MAX_TOKENS,
    message_decoder,
    normalize_finish_reason,
    output_bytes,
)
from tollhouse.inference.formats.raw_json import NULL, encoder, raw, replace_invalid_utf8
from tollhouse.inference.formats.tokens import estimate_tokens

if TYPE_CHECKING:
    from msgspec import Raw

    from tollhouse.accounting.types import Charge
    from tollhouse.inference.formats.messages.request import MessagesRequest
    from tollhouse.inference.formats.messages.wire import MessageObject
    from tollhouse.inference.types import Endpoint, ReplyIdentity

_GATEWAY_ONLY_FIELDS: Final = GATEWAY_FIELDS | {"fallbacks", "safeguards", "user"}
"""`user` and `safeguards` are the public gateway's additions, which Anthropic rejects."""


_blocks: Final = msgspec.json.Decoder(list[Fields])
_NEVER_NULL_IN_BLOCKS: Final = frozenset({"citations", "caller", "toolset_name"})
"""Optional fields of a block: Anthropic never sends null in them, some servers do, and published
clients reject it.

Source: the response schema of @ai-sdk/anthropic 4, where these are optional and not nullable.
"""


@dataclass(slots=True)
class MessagesResponse:
    """A provider's complete response, decoded as far as the gateway needs."""

    fields: Fields
    reported: Usage | None
    seen: Usage
    finish_reason: str | None
    native_finish_reason: str | None
    upstream_id: str | None

    def render(self, identity: ReplyIdentity, charge: Charge) -> bytes:
        """Return the client's body: the provider's fields with the gateway's id and usage."""
        ours = {
            "content": _without_nulls(self.fields["content"]),
            "usage": render_usage(charge, read_fields(self.fields.get("usage", NULL))),
        }
        return encoder.encode(message_fields(identity, self.fields) | ours)


def _without_nulls(content: Raw) -> Raw:
    if b"null" not in bytes(content):
        return content
    return raw([block_without_nulls(block) for block in _blocks.decode(content)])


def block_without_nulls(block: Fields) -> Fields:
    """Return a block without null in the fields in which clients reject it."""
    return {
        name: value
        for name, value in block.items()
        if value != NULL or name not in _NEVER_NULL_IN_BLOCKS
    }


def message_fields(identity: ReplyIdentity, provider: Fields) -> dict[str, object]:
    """Return a message's fields without its usage, with every key that clients rely on."""
    return {
        "stop_reason": None,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        **provider,
        "id": identity.id,
        "type": "message",
        "role": "assistant",
        "model": identity.model,
        "provider": identity.provider,
    }


def provider_request(request: MessagesRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body: the client's, with the provider's model name.

    Fields for the gateway, fields that the provider rejects, and reasoning that another provider
    signed are left out. `max_tokens`, which Anthropic requires, is filled in.
    """
    left_out = _GATEWAY_ONLY_FIELDS | endpoint.profile.refuses
    fields = {name: value for name, value in request.fields.items() if name not in left_out}
    fields["model"] = raw(endpoint.model)
    fields["messages"] = without_foreign_reasoning(fields["messages"])
    if "user" in request.fields and "metadata" not in request.fields:
        fields["metadata"] = raw({"user_id": request.fields["user"]})
    if request.max_tokens is None:
        fields["max_tokens"] = raw(endpoint.max_completion_tokens or DEFAULT_MAX_TOKENS)
    return encoder.encode(fields)


def parse_messages_response(body: bytes, request: MessagesRequest) -> MessagesResponse:
    """Parse a provider's complete response.

    Raises:
        MalformedResponse: The body is not a message.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    fields, message = decode_message(body)
    reported = parse_usage(read_fields(message.usage))
    native = message.stop_reason
    return MessagesResponse(
        fields=fields,
        reported=reported,
        seen=_seen(message, request) if reported is None else reported,
        finish_reason=None if native is None else normalize_finish_reason(native),
        native_finish_reason=native,
        upstream_id=message.id,
    )


def decode_message(body: bytes) -> tuple[Fields, MessageObject]:
    """Decode a provider's complete response: its raw fields and its typed message.

    Raises:
        MalformedResponse: The body is not a message.
        ErrorEvent: The body is the provider's error, sent with a success status.
    """
    try:
        body = replace_invalid_utf8(body)
        fields = fields_decoder.decode(body)
        if fields.get("error", NULL) != NULL:
            raise parse_error(body)
        message = message_decoder.decode(body)
    except (msgspec.DecodeError, RecursionError):
        message = None
        fields = {}
    if message is None or message.content is None:
        text = "the reply is not a message"
        raise MalformedResponse(text)
    return fields, message


def _seen(message: MessageObject, request: MessagesRequest) -> Usage:
    return Usage(
        input_tokens=estimate_tokens(request.size),
        output_tokens=estimate_tokens(sum(map(output_bytes, message.content or ()))),
    )
