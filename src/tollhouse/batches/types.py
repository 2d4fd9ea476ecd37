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
