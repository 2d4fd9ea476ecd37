"""Models, endpoints and requests as the data plane sees them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    import msgspec

    from tollhouse.accounting.types import Attribution, Price
    from tollhouse.identity.types import Subject


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
class ChatRequest:
    """A chat request: the fields that the gateway understands, and all the others untouched."""

    model: str
    stream: bool
    fields: Mapping[str, msgspec.Raw] = field(repr=False)
    """The body's top-level fields as they came; what a provider gets is made from these."""
    size: int
    """Bytes of the body."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request on its way through the pipeline."""

    request: ChatRequest
    subject: Subject
    attribution: Attribution
    received_at: datetime
    received_monotonic: float


@dataclass(frozen=True, slots=True)
class ReplyIdentity:
    """What every piece of one reply says of itself."""

    id: str
    model: str
    provider: str
    """The provider's name."""
    created: int
    """Unix seconds."""
