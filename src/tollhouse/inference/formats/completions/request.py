"""From the bytes of a completions request to what the gateway understands of it."""

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
    """The fields that the gateway understands, and all the others untouched."""

    api_type = "completions"
    output_limits = ("max_tokens",)
    answer_counts = ("n", "best_of")
    streamed_errors = ()
    content_field = "prompt"

    model: str
    stream: bool
    fields: Fields = field(repr=False)
    """The body's top-level fields as they came."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)


def parse_request(body: bytes) -> CompletionsRequest:
    """Return a completions request.

    Args:
        body: The request's body as it came.

    Raises:
        Invalid: It is not JSON, no object, or a field that the gateway needs is missing or of
            another type (the message names the field).

    Source: https://platform.openai.com/docs/api-reference/completions/create
    """
    fields = read_object(body)
    model = read_model(fields)
    read_field(_prompt, fields, "prompt", "a text, a list of texts or lists of tokens", filled=True)
    return CompletionsRequest(model, read_flag(fields, "stream"), fields, len(body), body)
