"""What a batch is: what was submitted, how far it came, and what became of its items."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from tollhouse.accounting.types import Attribution, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.batches.retries import Failures


class Endpoint(StrEnum):
    """Which endpoint the items of a batch are for."""

    CHAT_COMPLETIONS = "/v1/chat/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch's envelope: everything but its items."""

    endpoint: Endpoint
    model: str
    provider: dict[str, object]
    """Who may run it: as a request's `provider`."""
    callback_url: str | None = None


class Status(StrEnum):
    """How far a batch came. `lifecycle` says which follows which."""

    VALIDATING = "validating"
    """Stored; nobody has begun with it."""
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    """No item is begun any more; what is left of it is being closed."""
    COMPLETED = "completed"
    """Every item has its result; some may have failed."""
    FAILED = "failed"
    """None of its items could be run."""
    EXPIRED = "expired"
    """Its time was over; what was finished until then is kept."""
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    """The same for one that was cancelled."""

    @property
    def is_terminal(self) -> bool:
        """Whether nothing follows."""
        return self in _TERMINAL


_TERMINAL = frozenset({Status.COMPLETED, Status.FAILED, Status.EXPIRED, Status.CANCELLED})


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it stands."""

    id: str
    account_id: str
    workspace_id: str
    key_hash: str
    """Whose requests its items are."""
    endpoint: Endpoint
    model: str
    """As it was asked for; `policy.catalog_name` says which of the catalogue's that is."""
    wish: dict[str, object]
    """Who may run it, as it was submitted; `policy.preferences` reads it."""
    status: Status
    created_at: datetime
    expires_at: datetime
    total: int
    """How many items it has."""
    completed: int = 0
    failed: int = 0
    unrun: int = 0
    """How many of those that failed never got as far as a provider."""
    ending: Status | None = None
    """What it will be once it is closed; None while that is open."""
    finalized_at: datetime | None = None
    error: str | None = None
    """Why all of it failed."""
    provider: str | None = None
    """The name of who answered first."""
    usage: Usage = field(default_factory=Usage)
    """Of its items so far."""
    cost_nano: int = 0
    """What they cost so far."""
    released: bool = False
    """Whether its charge was covered once: then its results stay readable."""
    deleted_at: datetime | None = None
    attribution: Attribution = field(default_factory=Attribution)
    """What the program that submitted it said of itself."""
    digest: str = ""
    """SHA-256 of what was submitted."""
    idempotency_key: str | None = None
    payer_hash: str | None = None
    """The key that answered for `key_hash` when it was submitted, if another one did."""


class StoredChunk(NamedTuple):
    """A part of the items, in a file of its own."""

    number: int
    """Counted from 0."""
    first: int
    """The number of its first item in the batch."""
    lines: int
    """How many items it has."""


@dataclass(frozen=True, slots=True)
class BatchDemand:
    """What the items of a batch ask for, all together."""

    items: int = 0
    input_tokens: int = 0
    """Estimated from their bytes."""
    largest_input: int = 0
    """Of one item."""
    output_tokens: int = 0
    """Of the items that limit their output: what their limits allow."""
    unlimited: int = 0
    """How many set no limit."""
    images: int = 0


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to work on a chunk, until it runs out or is taken away."""

    batch_id: str
    chunk: StoredChunk
    token: str
    attempts: int
    """How often work on it ended without any result, this time included."""
    done: frozenset[int]
    """Numbers of the items that have their result."""
    failures: Mapping[int, Failures]
    """How others failed before, by their numbers."""


class ItemError(NamedTuple):
    """Why an item has no response.

    Source: the public gateway's batch result, `error`.
    """

    type: str
    message: str
    param: str | None = None
    """The field of its body that is wrong."""
    error_type: str | None = None
    """One of the wire's error types."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of an item."""

    number: int
    """Of the item in its batch."""
    line: bytes = field(repr=False)
    """Its result as the wire has it."""
    record: GenerationRecord | None = None
    """What is booked for it; None where no provider was asked."""
    error: ItemError | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What some items add to their batch."""

    completed: int = 0
    failed: int = 0
    unrun: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_nano: int = 0
    provider: str | None = None
    error: str | None = None
    """The first error of an item, as it would be told for all of them."""


class Part(NamedTuple):
    """Results that were stored together."""

    chunk: int
    """Number of the chunk whose items they are of."""
    key: str
    """Of the blob."""


@dataclass(frozen=True, slots=True)
class Sight:
    """Which batches a key may know of."""

    workspace_id: str
    intern_id: str | None = None
    """Only those that were submitted with this intern's own keys; None for all."""


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Which of the batches that a key may know of a list shows."""

    statuses: Sequence[Status] = ()
    """Empty: all of them."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    kept_since: datetime | None = None
    """Hide those that were made then or earlier: they are past their retention."""
