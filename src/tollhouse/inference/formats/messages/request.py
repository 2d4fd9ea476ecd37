"""Parses a messages request, as far as the gateway interprets it.

Source: https://docs.anthropic.com/en/api/messages and the public gateway's additions (`models`,
`fallbacks`; `max_tokens` may be missing).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from tollhouse.inference.formats.fields import read_field, read_flag, read_model, read_object
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from tollhouse.inference.formats.fields import Fields

T = TypeVar("T")
_MOST_FALLBACKS: Final = 3
_list = msgspec.json.Decoder(list[msgspec.Raw])
_limit = msgspec.json.Decoder(int | None)


class _Fallback(msgspec.Struct, forbid_unknown_fields=True):
    model: str


_fallbacks = msgspec.json.Decoder(list[_Fallback] | None)


@dataclass(frozen=True, slots=True)
class MessagesRequest:
    """Implements `formats.adapter.ClientRequest`."""

    api_type = "completions"
    output_limits = ("max_tokens",)
    answer_counts = ()
    streamed_errors = ()
    content_field = "messages"

    model: str
    stream: bool
    fields: Fields = field(repr=False)
    """The body's top-level fields as received; the provider's request is built from these."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)
    max_tokens: int | None = None


def parse_request(body: bytes) -> MessagesRequest:
    """Parse a messages request.

    Args:
        body: The request's body as received.

    Raises:
        Invalid: The body is not JSON (the message names the position) or not an object, or a
            required field is missing or of the wrong type (the message names the field).
    """
    fields = read_object(body)
    model = read_model(fields)
    if not read_field(_list, fields, "messages", "a list of messages"):
        message = "messages: at least one message is required."
        raise Invalid(message)
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
    limit = _optional(_limit, fields, "max_tokens", wanted)
    if limit is not None and limit < 1:
        message = f"max_tokens: must be {wanted}."
        raise Invalid(message)
    return limit


def _optional(
    decoder: msgspec.json.Decoder[T | None], fields: Fields, name: str, wanted: str
) -> T | None:
    return read_field(decoder, fields, name, wanted) if name in fields else None


def _check_fallbacks(fields: Fields) -> None:
    fallbacks = _optional(_fallbacks, fields, "fallbacks", "a list of objects with a model alone")
    if fallbacks is None:
        return
    if len(fallbacks) > _MOST_FALLBACKS:
        message = f"fallbacks: at most {_MOST_FALLBACKS} are allowed."
        raise Invalid(message)
    if fields.get("models", NULL) != NULL:
        message = "fallbacks: cannot be combined with models."
        raise Invalid(message)
