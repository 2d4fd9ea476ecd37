"""An SQLite file for the books process; `python -m` runs that."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.settlement.booking import Dialect, Step, Unbookable, advance
from tollhouse.accounting.settlement.child import serve
from tollhouse.storage.connections import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.accounting.settlement.booking import Steps

# Raised for what a record holds, whatever the state of the database.
_OF_THE_RECORD: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    OverflowError,
    UnicodeError,
)
_TOO_LARGE: Final = "integer overflow"
"""What SQLite says of a sum."""


class SqliteDriver:
    """Books over a connection of its own; see `child.Driver`."""

    dialect: Dialect = "sqlite"

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def run(self, steps: Callable[[], Steps]) -> None:
        """Do steps in one transaction; `sqlite3.Error` where the file cannot be written."""
        try:
            self._run(self._connect(), steps())
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error
        except sqlite3.OperationalError as error:
            if str(error) == _TOO_LARGE:
                raise Unbookable(_TOO_LARGE) from error
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            seconds = BUSY_TIMEOUT_MS / 1000
            made = sqlite3.connect(self._path, isolation_level=None, timeout=seconds)
            made.execute("PRAGMA foreign_keys = ON")
            made.execute("PRAGMA synchronous = FULL")
            self._connection = made
        return self._connection

    def _run(self, connection: sqlite3.Connection, steps: Steps) -> None:
        connection.execute("BEGIN IMMEDIATE")
        try:
            step = advance(steps)
            while isinstance(step, Step):
                run = connection.executemany if step.is_many else connection.execute
                step = advance(steps, run(step.sql, step.values).fetchall())
            connection.execute("COMMIT")
        finally:
            # SQLite ends it by itself where the disk is full or fails, say.
            if connection.in_transaction:
                connection.execute("ROLLBACK")


if __name__ == "__main__":
    serve(SqliteDriver)
