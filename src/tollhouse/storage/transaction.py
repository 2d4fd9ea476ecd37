"""What a use case gets to read and write with.

    async with database.reading() as read: ...      # a snapshot; cannot write
    async with database.writing() as write: ...     # commits at the end, rolls back on an error

The edge (a request, a command) opens and commits; services take one of these and commit nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Executable
    from sqlalchemy.engine import CursorResult
    from sqlalchemy.ext.asyncio import AsyncConnection

    Values = tuple[Any, ...] | Mapping[str, Any]
    Parameters = Values | Sequence[Values]

_CHARACTER_NOT_IN_REPERTOIRE: Final = "22021"


class Read:
    """A consistent view of the database."""

    def __init__(self, connection: AsyncConnection) -> None:
        """Wrap a connection with a transaction open on it."""
        self._connection = connection

    @property
    def dialect(self) -> str:
        """The database's name: `sqlite` or `postgresql`."""
        return self._connection.dialect.name

    async def execute(self, statement: Executable) -> CursorResult[Any]:
        """Run one statement and return its buffered result.

        Raises:
            Invalid: A text holds U+0000, which PostgreSQL cannot store.
        """
        try:
            return await self._connection.execute(statement)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _CHARACTER_NOT_IN_REPERTOIRE:
                message = "A text must not contain the character U+0000."
                raise Invalid(message) from None
            raise


class Write(Read):
    """A transaction that can change things; it commits where it was opened."""

    def __init__(self, connection: AsyncConnection) -> None:
        """Wrap a connection with a write transaction open on it."""
        super().__init__(connection)
        self._after_commit: list[Callable[[], None]] = []

    async def execute_raw(self, statement: str, parameters: Parameters) -> CursorResult[Any]:
        """Run a statement in the words of the database's driver, with values as it stores them.

        Args:
            statement: It has the driver's own marks for its parameters.
            parameters: The values of one row, or a list with those of each row.
        """
        return await self._connection.exec_driver_sql(statement, parameters)

    async def alone(self, purpose: int) -> None:
        """Wait until no other write transaction has the same purpose, and keep others waiting.

        On SQLite every write transaction is alone. The right ends with the transaction.

        Args:
            purpose: A number that stands for what must not be done twice at once.
        """
        if self.dialect == "postgresql":
            await self.execute(sa.select(sa.func.pg_advisory_xact_lock(purpose)))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Drop what the change makes stale (a cache entry, say), once it is durable.

        The action also runs where the commit failed or its outcome is not known: it has to be
        harmless then, and must not raise.
        """
        self._after_commit.append(action)

    def committed(self) -> None:
        """Run what waits for the commit; called by the one who tried it."""
        for action in self._after_commit:
            action()
