"""What batches need from the outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.batches.types import Batch
    from tollhouse.identity.types import Subject
    from tollhouse.inference.call import Call
    from tollhouse.kernel.errors import TollhouseError


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of a request."""

    body: bytes = field(default=b"", repr=False)
    """The whole reply, in the format that it was asked in."""
    record: GenerationRecord | None = None
    """What is to be booked; None where no provider was asked."""
    error: TollhouseError | None = None
    """Why there is no reply."""


class Asker(Protocol):
    """Sends a request through the pipeline; holds and books nothing."""

    async def ask(self, call: Call, generation_id: str) -> Answer:
        """Return what came of a request; when cancelled, the request ends."""
        ...


class Owners(Protocol):
    """Knows whose requests the items of a batch are."""

    async def owner(self, batch: Batch) -> Subject:
        """Return the subject of a batch's key, also if that is revoked.

        The policies are those of now; the key that answers for it is the one of then.
        """
        ...


class Doorbell(Protocol):
    """Tells workers that there may be something to do.

    The tables are the truth: a ring that is lost costs time, and the sweeper's next round makes up
    for it.
    """

    def ring(self, batch_id: str) -> None:
        """Say that a batch came, or is to be looked at."""
        ...

    async def rung(self, seconds: float) -> frozenset[str]:
        """Wait for a ring, but only so long; return the batches that were named since the last."""
        ...
