"""From the bytes of an embeddings request to what the gateway understands of it."""

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
    """The fields that the gateway understands, and all the others untouched."""

    api_type = "embeddings"
    output_limits = ()
    answer_counts = ()
    streamed_errors = ()
    content_field = "input"

    model: str
    encoding: Encoding
    """How the client wants each vector."""
    fields: Fields = field(repr=False)
    """The body's top-level fields as they came."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)
    """The body as it came."""

    @property
    def stream(self) -> bool:
        """Embeddings come whole."""
        return False


def parse_request(body: bytes) -> EmbeddingsRequest:
    """Return an embeddings request.

    Args:
        body: The request's body as it came.

    Raises:
        Invalid: It is not JSON, no object, or a field that the gateway needs is missing or of
            another type (the message names the field).

    Source: https://platform.openai.com/docs/api-reference/embeddings/create
    """
    fields = read_object(body)
    model = read_model(fields)
    read_field(_input, fields, "input", "a text, a list of texts or lists of tokens", filled=True)
    encoding: Encoding | None = None
    if "encoding_format" in fields:
        encoding = read_field(_encoding, fields, "encoding_format", "float or base64")
    return EmbeddingsRequest(model, encoding or "float", fields, len(body), body)
