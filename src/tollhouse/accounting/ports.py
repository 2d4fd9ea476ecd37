"""What accounting needs from the outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.types import GenerationRecord


class Unbookable(Exception):
    """A charge that no database state would take: a foreign account, a number out of range."""


class ChargeObserver(Protocol):
    """Learns of charges on their way to the books."""

    def charged(self, record: GenerationRecord) -> None:
        """A charge is in the journal; it cannot be lost any more."""
        ...

    def booked(self, records: Sequence[GenerationRecord]) -> None:
        """Charges are in the database: readers find them from now on."""
        ...

    def invalidate(self, account_id: str) -> None:
        """What was read of an account may hold charges that were told as pending, or lack some."""
        ...


class ChargeWriter(Protocol):
    """Makes charges durable."""

    async def write(self, records: Sequence[GenerationRecord]) -> None:
        """Book a group of generations in one transaction; those already booked change nothing.

        Raises:
            Unbookable: One of the group cannot be stored as it is; nothing of it is booked.
            Exception: The database cannot be reached or written; nothing of the group is known
                to be booked.
        """
        ...

    async def close(self) -> None:
        """Give up connections and threads."""
        ...
