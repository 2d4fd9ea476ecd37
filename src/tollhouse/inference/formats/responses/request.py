"""Parses a responses request, as far as the gateway interprets it.

The gateway stores no responses, so a request to store one, or to continue a stored one, is rejected
rather than answered without its history.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from tollhouse.inference.formats.fields import (
    Fields,
    read_field,
    read_flag,
    read_model,
    read_object,
)
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.errors import CONTEXT_LENGTH_EXCEEDED, Invalid

_input = msgspec.json.Decoder(str | list[msgspec.Raw])
_NO_STATE: Final = {
    "store": "responses are not stored; leave it out or send false",
    "background": "responses are not made in the background; leave it out or send false",
}
_NO_HISTORY: Final = ("previous_response_id", "conversation")


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """The fields that the gateway interprets, and all others unchanged."""

    api_type = "completions"
    output_limits = ("max_output_tokens",)
    answer_counts = ()
    streamed_errors = (CONTEXT_LENGTH_EXCEEDED,)
    """Codex recognizes a full context only by `response.failed`, as OpenAI sends it."""
    content_field = "input"

    model: str
    stream: bool
    fields: Fields = field(repr=False)
    """The body's top-level fields as received; the provider's request is built from these."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)


def parse_request(body: bytes) -> ResponsesRequest:
    """Parse a responses request.

    Args:
        body: The request's body as received.

    Raises:
        Invalid: The body is not a JSON object, a required field is missing or of the wrong type,
            or the request needs stored responses (the message names the field).
    """
    fields = read_object(body)
    model = read_model(fields)
    read_field(_input, fields, "input", "a text or a list of items", filled=True)
    for name, reason in _NO_STATE.items():
        if read_flag(fields, name):
            raise Invalid(f"{name}: {reason}.")
    for name in _NO_HISTORY:
        if fields.get(name, NULL) != NULL:
            raise Invalid(f"{name}: responses are not stored; send the whole history in input.")
    return ResponsesRequest(model, read_flag(fields, "stream"), fields, len(body), body)
