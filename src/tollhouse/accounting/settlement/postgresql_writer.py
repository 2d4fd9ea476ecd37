"""Books charges in a PostgreSQL database; `python -m` runs it as the books process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import asyncpg

from tollhouse.accounting.settlement.booking import (
    Step,
    Unbookable,
    advance,
    booking,
    releasing,
)
from tollhouse.accounting.settlement.books import serve
from tollhouse.storage.postgresql_connection import open_connection

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.accounting.settlement.booking import Steps
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
    """Books groups of one holder's charges over a connection that is opened again if lost.

    See `books.Writer`. It runs an event loop of its own, which nobody else waits for.
    """

    def __init__(self, dsn: str, holder: str) -> None:
        self._dsn = dsn
        self._holder = holder
        self._runner = asyncio.Runner()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    def write(self, records: Sequence[GenerationRecord], last: int = 0) -> None:
        """Book a group; an exception where the database cannot be reached or written."""
        try:
            self._runner.run(
                self._twice(lambda: booking("postgresql", records, self._holder, last))
            )
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error

    def release(self, holder: str) -> None:
        """End a holder."""
        self._runner.run(self._twice(lambda: releasing("postgresql", holder)))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._runner.run(connection.close(timeout=1))
        self._runner.close()

    async def _twice(self, steps: Callable[[], Steps]) -> None:
        """Do steps, and again over a new connection if this one is lost.

        That may be after the commit: doing any of them again is harmless.
        """
        try:
            await self._run(steps())
        except _LOST:
            if self._connection is not None:
                self._connection.terminate()
                self._connection = None
            await self._run(steps())

    async def _run(self, steps: Steps) -> None:
        connection = self._connection
        if connection is None or connection.is_closed():
            connection = self._connection = await open_connection(self._dsn)
            # Who stops in the middle of a group must not stop all that spend.
            await connection.execute("SET idle_in_transaction_session_timeout = 10000")
        async with connection.transaction():
            step = advance(steps)
            while isinstance(step, Step):
                if step.is_many:
                    await connection.executemany(step.numbered, step.values)
                    step = advance(steps, ())
                else:
                    step = advance(steps, await connection.fetch(step.numbered, *step.values))


if __name__ == "__main__":
    serve(PostgresqlChargeWriter)
