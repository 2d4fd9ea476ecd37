"""What a batch is: what was submitted, how far it came, and what became of its items. Pure.

    validating ──> in_progress ──> finalizing ──> completed | failed | expired
        │  └───────────────────────────┘  (it expired before anybody began)
        └──────────┬──┘
              cancelling ──> cancelled

The guards of statuses in SQL are made from `NEXT`. What ends a batch is decided when it enters
`finalizing`; whoever runs its items learns of it and closes what is left of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.accounting.types import Attribution, GenerationRecord, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from tollhouse.batches.retries import ItemFailures
    from tollhouse.inference.types import Demand

LONGEST_ID: Final = 512
"""Characters of a `custom_id`, which a line of the results repeats."""


class BatchEndpoint(StrEnum):
    """Which endpoint the items of a batch are for."""

    CHAT_COMPLETIONS = "/v1/chat/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"


@dataclass(frozen=True, slots=True)
class Submission:
    """A batch's envelope: everything but its items."""

    endpoint: BatchEndpoint
    model: str
    provider: dict[str, object]
    """Who may run it: as a request's `provider`."""
    callback_url: str | None = None


class BatchStatus(StrEnum):
    """How far a batch came. `NEXT` says which follows which."""

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


_TERMINAL = frozenset(
    {BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}
)


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as it stands."""

    id: str
    account_id: str
    workspace_id: str
    key_hash: str
    endpoint: BatchEndpoint
    model: str
    """As it was asked for; `policy.catalog_name` says which of the catalogue's that is."""
    preferences: dict[str, object]
    """Who may run it, as it was submitted; `policy.preferences` reads it."""
    status: BatchStatus
    created_at: datetime
    expires_at: datetime
    total: int
    completed: int = 0
    failed: int = 0
    unrun: int = 0
    """How many of those that failed never got as far as a provider."""
    ending: BatchStatus | None = None
    """What it will be once it is closed; None while that is open."""
    finalized_at: datetime | None = None
    error: str | None = None
    provider: str | None = None
    """The name of who answered first."""
    usage: Usage = field(default_factory=Usage)
    cost_nano: int = 0
    released: bool = False
    """Whether its charge was covered once: then its results stay readable."""
    deleted_at: datetime | None = None
    attribution: Attribution = field(default_factory=Attribution)
    digest: str = ""
    idempotency_key: str | None = None
    payer_hash: str | None = None
    """The key that answered for `key_hash` when it was submitted, if another one did."""
    is_byok: bool = False
    """Whether own keys of providers served some of it."""
    only_own_keys: bool = False
    """Whether nothing is reserved for the gateway's own endpoints: none could serve it."""


class StoredChunk(NamedTuple):
    """A part of the items, in a file of its own."""

    number: int
    first: int
    """The number of its first item in the batch."""
    lines: int


@dataclass(slots=True)
class BatchDemand:
    """What the items of a batch ask for, all together."""

    items: int = 0
    input_tokens: int = 0
    """Estimated from their bytes."""
    largest_input: int = 0
    output_tokens: int = 0
    """Of the items that limit their output: what their limits allow."""
    unlimited: int = 0
    images: int = 0

    def add(self, item: Demand) -> None:
        """Count what one more item asks for."""
        self.items += 1
        self.input_tokens += item.input_tokens
        self.largest_input = max(self.largest_input, item.input_tokens)
        if item.output_tokens is None:
            self.unlimited += 1
        else:
            self.output_tokens += item.output_tokens
        self.images += item.images


@dataclass(frozen=True, slots=True)
class ChunkLease:
    """The right to work on a chunk, until it runs out or is taken away."""

    batch_id: str
    chunk: StoredChunk
    token: str
    attempts: int
    """How often work on it ended without any result, this time included."""
    done: frozenset[int]
    failures: Mapping[int, ItemFailures]
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
class ItemResult:
    """What became of an item."""

    number: int
    line: bytes = field(repr=False)
    record: GenerationRecord | None = None
    """What is booked for it; None where no provider was asked."""
    error: ItemError | None = None


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """What some items add to their batch."""

    completed: int = 0
    failed: int = 0
    unrun: int = 0
    usage: Usage = field(default_factory=Usage)
    cost_nano: int = 0
    own_nano: int = 0
    """What providers took from the customer, with own keys."""
    is_byok: bool = False
    provider: str | None = None
    error: str | None = None
    """The first error of an item, as it would be told for all of them."""


class ResultPart(NamedTuple):
    """Results that were stored together."""

    chunk: int
    """Number of the chunk whose items they are of."""
    key: str


@dataclass(frozen=True, slots=True)
class VisibilityFilter:
    """Which batches a key may know of."""

    workspace_id: str
    intern_id: str | None = None
    """Only those that were submitted with this intern's own keys; None for all."""


@dataclass(frozen=True, slots=True)
class BatchFilter:
    """Which of the batches that a key may know of a list shows."""

    statuses: Sequence[BatchStatus] = ()
    """Empty: all of them."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    kept_since: datetime | None = None
    """Hide those that were made then or earlier: they are past their retention."""


NEXT: Final[Mapping[BatchStatus, frozenset[BatchStatus]]] = {
    BatchStatus.VALIDATING: frozenset(
        {BatchStatus.IN_PROGRESS, BatchStatus.FINALIZING, BatchStatus.CANCELLING}
    ),
    BatchStatus.IN_PROGRESS: frozenset({BatchStatus.FINALIZING, BatchStatus.CANCELLING}),
    BatchStatus.FINALIZING: frozenset(
        {BatchStatus.COMPLETED, BatchStatus.FAILED, BatchStatus.EXPIRED}
    ),
    BatchStatus.CANCELLING: frozenset({BatchStatus.CANCELLED}),
    **dict.fromkeys(_TERMINAL, frozenset()),
}
OPEN: Final = frozenset(status for status in BatchStatus if not status.is_terminal)
RUNNING: Final = frozenset({BatchStatus.VALIDATING, BatchStatus.IN_PROGRESS})
"""Those in which items may be begun."""
HAVE_RESULTS: Final = frozenset({BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED})


def statuses_before(target: BatchStatus) -> frozenset[BatchStatus]:
    """Return the statuses from which a batch may come to another one."""
    return frozenset(status for status, following in NEXT.items() if target in following)


def listed_status(status: BatchStatus) -> BatchStatus:
    """Return the status that a list filters one by.

    Source: the public gateway's list of batches, which stores both as `in_progress`.
    """
    passing = status in {BatchStatus.FINALIZING, BatchStatus.CANCELLING}
    return BatchStatus.IN_PROGRESS if passing else status


def final_status(batch: Batch) -> BatchStatus:
    """Return what becomes of a batch all of whose items have a result."""
    if batch.status is BatchStatus.CANCELLING:
        return BatchStatus.CANCELLED
    if batch.ending is not None:
        return batch.ending
    return BatchStatus.FAILED if batch.unrun == batch.total else BatchStatus.COMPLETED


def closing_reason(batch: Batch) -> str | None:
    """Return the error word of items that are not begun any more; None while they are."""
    if batch.status is BatchStatus.CANCELLING:
        return "batch_cancelled"
    return "batch_expired" if batch.status is BatchStatus.FINALIZING else None
