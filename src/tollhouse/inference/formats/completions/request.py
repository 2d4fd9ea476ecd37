"""Parses a completions request, as far as the gateway interprets it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from tollhouse.inference.formats.fields import (
    Fields,
    read_field,
    read_flag,
    read_model,
    read_object,
)

_prompt = msgspec.json.Decoder(str | list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class CompletionsRequest:
    """The fields that the gateway interprets, and all others unchanged."""

    api_type = "completions"
    output_limits = ("max_tokens",)
    answer_counts = ("n", "best_of")
    streamed_errors = ()
    content_field = "prompt"

    model: str
    stream: bool
    fields: Fields = field(repr=False)
    """The body's top-level fields as received."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)


def parse_request(body: bytes) -> CompletionsRequest:
    """Parse a completions request.

    Args:
        body: The request's body as received.

    Raises:
        Invalid: The body is not a JSON object, or a required field is missing or of the wrong
            type (the message names the field).

    Source: https://platform.openai.com/docs/api-reference/completions/create
    """
    fields = read_object(body)
    model = read_model(fields)
    read_field(_prompt, fields, "prompt", "a text, a list of texts or lists of tokens", filled=True)
    return CompletionsRequest(model, read_flag(fields, "stream"), fields, len(body), body)
