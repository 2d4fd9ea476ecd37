"""Which status of a batch follows which. Pure; the guards in SQL are made from it.

    validating ──> in_progress ──> finalizing ──> completed | failed | expired
        │  └───────────────────────────┘  (its time was over before anybody began)
        └──────────┬──┘
              cancelling ──> cancelled

What ends a batch is decided when it enters `finalizing`; whoever runs its items learns of it and
closes what is left of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.batches.types import Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.batches.types import Batch

NEXT: Final[Mapping[Status, frozenset[Status]]] = {
    Status.VALIDATING: frozenset({Status.IN_PROGRESS, Status.FINALIZING, Status.CANCELLING}),
    Status.IN_PROGRESS: frozenset({Status.FINALIZING, Status.CANCELLING}),
    Status.FINALIZING: frozenset({Status.COMPLETED, Status.FAILED, Status.EXPIRED}),
    Status.CANCELLING: frozenset({Status.CANCELLED}),
    Status.COMPLETED: frozenset(),
    Status.FAILED: frozenset(),
    Status.EXPIRED: frozenset(),
    Status.CANCELLED: frozenset(),
}
OPEN: Final = frozenset(status for status in Status if not status.is_terminal)
RUNNING: Final = frozenset({Status.VALIDATING, Status.IN_PROGRESS})
"""Those in which items may be begun."""
HAVE_RESULTS: Final = frozenset({Status.COMPLETED, Status.EXPIRED, Status.CANCELLED})


def before(target: Status) -> frozenset[Status]:
    """Return the statuses from which a batch may come to another one."""
    return frozenset(status for status, following in NEXT.items() if target in following)


def shown_as(status: Status) -> Status:
    """Return the status that a list filters one by.

    Source: the public gateway's list of batches, which stores both as `in_progress`.
    """
    passing = status in {Status.FINALIZING, Status.CANCELLING}
    return Status.IN_PROGRESS if passing else status


def ending(batch: Batch) -> Status:
    """Return what becomes of a batch all of whose items have a result."""
    if batch.status is Status.CANCELLING:
        return Status.CANCELLED
    if batch.ending is not None:
        return batch.ending
    return Status.FAILED if batch.unrun == batch.total else Status.COMPLETED


def closing_error(batch: Batch) -> str | None:
    """Return the error word of items that are not begun any more; None while they are."""
    if batch.status is Status.CANCELLING:
        return "batch_cancelled"
    return "batch_expired" if batch.status is Status.FINALIZING else None
