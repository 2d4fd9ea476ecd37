"""What was submitted as a batch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Endpoint(StrEnum):
    """Which endpoint the items of a batch are for."""

    CHAT_COMPLETIONS = "/v1/chat/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"


@dataclass(frozen=True, slots=True)
class ProviderWish:
    """Who may run a batch."""

    only: tuple[str, ...] | None = None
    allow_fallbacks: bool | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch's envelope: everything but its items."""

    endpoint: Endpoint
    model: str
    provider: ProviderWish
    callback_url: str | None = None


@dataclass(frozen=True, slots=True)
class StoredChunk:
    """Some of a batch's items, in the blob store."""

    number: int
    """Counted from 0."""
    first: int
    """The number of its first item among all of the batch."""
    lines: int
    """How many items it holds."""


@dataclass(frozen=True, slots=True)
class BatchDemand:
    """What the items of a batch ask for together, before any endpoint."""

    items: int
    input_tokens: int
    """Estimated from their bytes."""
    largest_input: int
    """Of the one item that has most."""
    output_tokens: int
    """What those may write that set a limit."""
    unlimited: int
    """How many set none; of embeddings, which write nothing, that is all of them."""
    images: int
