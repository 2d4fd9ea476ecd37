"""Parses an embeddings request, as far as the gateway interprets it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

from tollhouse.inference.formats.fields import Fields, read_field, read_model, read_object

Encoding = Literal["float", "base64"]
_input = msgspec.json.Decoder(str | list[msgspec.Raw])
_encoding = msgspec.json.Decoder(Encoding | None)


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """The fields that the gateway interprets, and all others unchanged."""

    api_type = "embeddings"
    output_limits = ()
    answer_counts = ()
    streamed_errors = ()
    content_field = "input"

    model: str
    encoding: Encoding
    """The encoding of the vectors that the client requested."""
    fields: Fields = field(repr=False)
    """The body's top-level fields as received."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)
    """The body as received."""

    @property
    def stream(self) -> bool:
        """Embeddings are not streamed."""
        return False


def parse_request(body: bytes) -> EmbeddingsRequest:
    """Parse an embeddings request.

    Args:
        body: The request's body as received.

    Raises:
        Invalid: The body is not a JSON object, or a required field is missing or of the wrong
            type (the message names the field).

    Source: https://platform.openai.com/docs/api-reference/embeddings/create
    """
    fields = read_object(body)
    model = read_model(fields)
    read_field(_input, fields, "input", "a text, a list of texts or lists of tokens", filled=True)
    encoding: Encoding | None = None
    if "encoding_format" in fields:
        encoding = read_field(_encoding, fields, "encoding_format", "float or base64")
    return EmbeddingsRequest(model, encoding or "float", fields, len(body), body)
