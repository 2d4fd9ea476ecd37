"""Keeping the record: an entry is durable with what it tells of, or neither is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.audit import repository
from tollhouse.audit.chain import link
from tollhouse.audit.types import GENESIS, AuditRow, ChainHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.audit.types import AuditAction, AuditEntry
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.transaction import Read, Write


_AT_ONCE: Final = 500
"""Rows of a statement: its values have a number of 16 bits on PostgreSQL."""


class AuditService:
    """The record of every account, and of the installation."""

    def __init__(self, clock: Clock) -> None:
        """Take the time."""
        self._clock = clock

    async def record(self, write: Write, chain: str, entries: Sequence[AuditEntry]) -> None:
        """Append entries in the transaction that does what they tell of; as its last step.

        Args:
            write: The transaction; without the entries it must not be committed.
            chain: The account's id, or `INSTALLATION`.
            entries: In their order.

        Raises:
            Exception: They cannot be written; the transaction is lost.
        """
        head, now = await repository.hold_head(write, chain), self._clock.now()
        for start in range(0, len(entries), _AT_ONCE):
            rows: list[AuditRow] = []
            for seq, entry in enumerate(entries[start : start + _AT_ONCE], head.seq + 1):
                row = link(AuditRow(chain, seq, now, entry, GENESIS), head)
                rows.append(row)
                head = ChainHead(row.seq, row.hash)
            await repository.append(write, rows)

    async def head(self, read: Read, chain: str) -> ChainHead:
        """Return where a chain ends."""
        return await repository.head(read, chain)

    async def last(self, read: Read, chain: str, action: AuditAction) -> AuditEntry | None:
        """Return the last entry of an action in a chain; None where there is none."""
        return await repository.last(read, chain, action)

    async def all_of(self, read: Read, chain: str, action: AuditAction) -> Sequence[AuditEntry]:
        """Return every entry of an action in a chain, in their order."""
        return await repository.all_of(read, chain, action)

    async def rows(self, read: Read, chain: str, after: int, limit: int) -> Sequence[AuditRow]:
        """Return at most `limit` rows of a chain behind the row `after`."""
        return await repository.rows(read, chain, after, limit)
