"""A chat request, as far as the gateway reads it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.inference.formats.fields import Fields


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The fields that the gateway understands, and all the others untouched."""

    api_type = "completions"
    output_limits = ("max_completion_tokens", "max_tokens")
    answer_counts = ("n",)
    streamed_errors = ()
    content_field = "messages"

    model: str
    stream: bool
    fields: Fields = field(repr=False)
    """The body's top-level fields as they came; what a provider gets is made from these."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)
    """The body as it came."""
    shows_reasoning: bool = True
    """False: the model may think, but the reply must not show it."""
