"""The amounts and the figures of the measurements of batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench.statistic import percentile

if TYPE_CHECKING:
    from collections.abc import Iterable

LAST: Final = "requests last"
FIRST: Final = "requests first"
ORDERS: Final = (LAST, FIRST)
"""Where the envelope's fields come in the body."""

IDLE: Final = "nothing else"
INGEST: Final = "during ingest"
RUN: Final = "while a batch runs"


@dataclass(frozen=True, slots=True)
class Amount:
    """A size of batches, and how often it is measured."""

    items: int
    ingests: int
    """Rounds of each order of fields."""
    runs: int


@dataclass(frozen=True, slots=True)
class BatchDose:
    """How much is measured."""

    amounts: tuple[Amount, ...] = (Amount(1_000, 5, 5), Amount(10_000, 3, 3), Amount(50_000, 3, 1))
    """From the smallest to the largest, which the aims are for."""
    rate: float = 50.0
    """Live requests a second."""
    idle_seconds: float = 12.0
    live_ingests: int = 5
    """Of the largest size, beside live requests."""
    live_items: int = 10_000
    """Of the batch that runs beside them."""

    @property
    def largest(self) -> int:
        """How many items the largest batch has."""
        return self.amounts[-1].items


QUICK_BATCHES: Final = BatchDose(
    (Amount(400, 1, 1),), idle_seconds=0.3, live_ingests=1, live_items=100
)


@dataclass(frozen=True, slots=True)
class Ingest:
    """One batch from its first byte to the 202."""

    gateway_seconds: float
    """CPU time."""
    child_seconds: float
    gateway_bytes: int
    """At the most, over what it had before."""
    child_bytes: int
    """At the most."""
    seconds: float

    @property
    def cpu_seconds(self) -> float:
        """CPU time of both processes."""
        return self.gateway_seconds + self.child_seconds

    @property
    def more_bytes(self) -> int:
        """Memory of both processes that was not there before, as if both had their most at once."""
        return self.gateway_bytes + self.child_bytes


@dataclass(frozen=True, slots=True)
class Run:
    """One batch from the 202 to its end, and the bare loop right after it."""

    microseconds: float
    """CPU time of the gateway for one item."""
    seconds: float
    first_seconds: float
    """Until the first item is at the provider."""
    bare_microseconds: float
    """CPU time of the bare loop for one item."""
    bare_seconds: float

    @property
    def ratio(self) -> float:
        """CPU time over that of the bare loop."""
        return self.microseconds / self.bare_microseconds


@dataclass(frozen=True, slots=True)
class Download:
    """The results of one batch, read to their end."""

    cpu_seconds: float
    more_bytes: int
    """The gateway's memory at the most, over what it had before."""
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Latency:
    """Live requests in some stretches of time."""

    requests: int
    p50_ms: float
    p99_ms: float
    most_ms: float


@dataclass(slots=True)
class BatchFigures:
    """All figures, by the number of items."""

    ingests: dict[int, dict[str, list[Ingest]]] = field(default_factory=dict)
    """And by the order of fields."""
    runs: dict[int, list[Run]] = field(default_factory=dict)
    downloads: dict[int, list[Download]] = field(default_factory=dict)
    peaks: dict[int, int] = field(default_factory=dict)
    """The most resident bytes of a gateway that took, ran and gave out batches of one size."""
    live: dict[str, Latency] = field(default_factory=dict)
    """By what happened meanwhile."""
    refused: dict[str, int] = field(default_factory=dict)
    """Live requests that were not answered, by the reason."""
    load_average: float = 0.0
    """Of the machine, in the minute before."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time, by the machine's monotonic clock."""

    began: float
    ended: float


def latency(each: Iterable[tuple[float, float]], stretches: Iterable[Stretch]) -> Latency:
    """Return how long requests took that were due in some stretches of time.

    Args:
        each: When a request was due and how long it took, in seconds.
        stretches: Which of them count.
    """
    within = list(stretches)
    found = [
        seconds * 1000
        for due, seconds in each
        if any(stretch.began <= due < stretch.ended for stretch in within)
    ]
    most = max(found, default=0.0)
    return Latency(len(found), percentile(found, 50), percentile(found, 99), most)
