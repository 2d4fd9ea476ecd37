"""A PostgreSQL database for the books process; `python -m` runs that."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import asyncpg

from tollhouse.accounting.settlement.booking import Dialect, Step, Unbookable, advance
from tollhouse.accounting.settlement.child import serve
from tollhouse.storage.postgresql_connection import open_connection

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.accounting.settlement.booking import Steps

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


class PostgresqlDriver:
    """Books over a connection that is opened again if it is lost; see `child.Driver`.

    It runs an event loop of its own, which nobody else waits for.
    """

    dialect: Dialect = "postgresql"

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self._loop = asyncio.Runner()
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    def run(self, steps: Callable[[], Steps]) -> None:
        """Do steps in one transaction; an exception where the database cannot be written."""
        try:
            self._loop.run(self._twice(steps))
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with suppress(*_LOST):
                self._loop.run(self._connection.close(timeout=1))
            self._connection = None
        self._loop.close()

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
    serve(PostgresqlDriver)
