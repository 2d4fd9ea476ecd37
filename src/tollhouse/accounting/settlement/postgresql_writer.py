"""Books groups of charges in a PostgreSQL database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import asyncpg

from tollhouse.accounting.leases import BudgetId, BudgetRow
from tollhouse.accounting.settlement.booking import (
    Unbookable,
    added,
    booking,
    budget_changes,
    budget_charges,
    owners_of,
)
from tollhouse.accounting.settlement.postgresql_statements import (
    ADD_GENERATIONS,
    BUDGETS_OF,
    CHANGE_BUDGET,
    CHANGE_LEASE,
    LEASES_OF,
    PEOPLE_OF,
    RAISE_BOOKED,
    RELEASE,
    STATEMENTS,
    generations_json,
    rows_json,
)
from tollhouse.storage.postgresql_connection import open_connection

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from tollhouse.accounting.types import GenerationRecord

# Raised for what a record holds, whatever the state of the database.
_OF_THE_RECORD: Final = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    OverflowError,
    UnicodeError,
)
# The connection is gone, or a server that stops or fails over is about to end it.
_LOST: Final = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server's farewell came while nothing was asked
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.DeadlockDetectedError,
    OSError,
)


class PostgresqlChargeWriter:
    """Books groups of one holder's generations over a connection that is opened again if lost."""

    def __init__(self, dsn: str, holder: str) -> None:
        self._dsn = dsn
        self._holder = holder
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def write(self, records: Sequence[GenerationRecord], last: int = 0) -> None:
        """Book a group in one transaction; those already booked change nothing.

        `last` is the number of the last one: the transaction notes that all up to it are booked.

        Raises:
            Unbookable: One of the group cannot be stored as it is; nothing of it is booked.
            Exception: The database cannot be reached or written; nothing of the group is known
                to be booked.
        """
        try:
            await self._twice(lambda: self._book(records, last))
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error

    async def release(self, holder: str) -> None:
        """End a holder all of whose charges are booked; see `child.Writer`."""
        await self._twice(lambda: self._release(holder))

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close(timeout=1)

    async def _twice(self, change: Callable[[], Awaitable[None]]) -> None:
        """Make a change, and again over a new connection if this one is lost.

        That may be after the commit: making any of them again is harmless.
        """
        try:
            await change()
        except _LOST:
            self._disconnect()
            await change()

    async def _release(self, holder: str) -> None:
        connection = await self._connect()
        async with connection.transaction():
            for statement in RELEASE:
                await connection.execute(statement, holder)

    async def _book(self, records: Sequence[GenerationRecord], last: int) -> None:
        connection = await self._connect()
        async with connection.transaction():
            if last:
                await connection.execute(RAISE_BOOKED, self._holder, last)
            rows = await connection.fetch(ADD_GENERATIONS, generations_json(records))
            fresh = added(records, {row["id"] for row in rows})
            for table, changed in booking(fresh).changes():
                await connection.execute(STATEMENTS[table], rows_json(table, changed))
            await self._settle_budgets(connection, fresh, is_own=bool(last))

    async def _settle_budgets(
        self,
        connection: asyncpg.Connection[asyncpg.Record],
        fresh: Sequence[GenerationRecord],
        *,
        is_own: bool,
    ) -> None:
        if not fresh:
            return
        keys = {key for record in fresh for key in record.key_hashes}
        people = await connection.fetch(PEOPLE_OF, [*keys])
        charges = budget_charges(fresh, {row[0]: row[1] for row in people})
        found = await connection.fetch(
            BUDGETS_OF, *map(list, zip(*owners_of(charges), strict=True))
        )
        rows = {BudgetId(*row[:3]): BudgetRow(None, include_byok=row[3]) for row in found}
        # The rights of another holder end with its release.
        mine = await connection.fetch(LEASES_OF, self._holder) if is_own else ()
        changes = budget_changes(charges, rows, {BudgetId(*row) for row in mine})
        await connection.executemany(CHANGE_BUDGET, changes)
        rights = [(each.right, self._holder, *each[2:]) for each in changes if each.right]
        await connection.executemany(CHANGE_LEASE, rights)

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await open_connection(self._dsn)
            # Who stops in the middle of a group must not stop all that spend.
            await self._connection.execute("SET idle_in_transaction_session_timeout = 10000")
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.terminate()
