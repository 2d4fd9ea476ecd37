"""Models and endpoints as the data plane sees them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.accounting.types import Price


class Dialect(StrEnum):
    """What a provider speaks; the value is the path below its base URL."""

    CHAT = "chat/completions"
    EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One provider's offer of a model."""

    provider: str
    """The provider's slug."""
    model: str
    """The provider's own name of the model."""
    price: Price
    idempotent: bool = False
    """Work that the provider does in vain costs nothing."""
    dialects: frozenset[Dialect] | None = None
    """What the model can be asked in; None for all that its provider speaks."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model of the catalogue."""

    id: str
    name: str
    description: str
    context_length: int
    max_completion_tokens: int | None
    endpoints: tuple[Endpoint, ...]
    """In the order in which they are tried."""


@dataclass(frozen=True, slots=True)
class ReplyIdentity:
    """What every piece of one reply says of itself."""

    id: str
    model: str
    provider: str
    """The provider's name."""
    created: int
    """Unix seconds."""
