"""A parsed chat request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.inference.formats.fields import Fields


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The fields that the gateway interprets, and all others unchanged."""

    api_type = "completions"
    output_limits = ("max_completion_tokens", "max_tokens")
    answer_counts = ("n",)
    streamed_errors = ()
    content_field = "messages"

    model: str
    stream: bool
    fields: Fields = field(repr=False)
    """The body's top-level fields as received; the provider's request is built from these."""
    size: int
    """Bytes of the body."""
    body: bytes = field(repr=False)
    """The body as received."""
    shows_reasoning: bool = True
    """False: the model may reason, but the response must not show it."""
