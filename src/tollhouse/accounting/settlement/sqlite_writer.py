"""Books charges in an SQLite file; `python -m` runs it as the books process."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.settlement.booking import (
    Step,
    Unbookable,
    advance,
    booking,
    releasing,
)
from tollhouse.accounting.settlement.books import serve
from tollhouse.storage.connections import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.settlement.booking import Steps
    from tollhouse.accounting.types import GenerationRecord

# Raised for what a record holds, whatever the state of the database.
_OF_THE_RECORD: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    OverflowError,
    UnicodeError,
)
_TOO_LARGE: Final = "integer overflow"
"""What SQLite says of a sum."""


class SqliteChargeWriter:
    """Books groups of one holder's charges over a connection of its own; see `books.Writer`."""

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._holder = holder
        self._connection: sqlite3.Connection | None = None

    def write(self, records: Sequence[GenerationRecord], last: int = 0) -> None:
        """Book a group; `sqlite3.Error` where the file cannot be written."""
        try:
            self._run(booking("sqlite", records, self._holder, last))
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error
        except sqlite3.OperationalError as error:
            if str(error) == _TOO_LARGE:
                raise Unbookable(_TOO_LARGE) from error
            raise

    def release(self, holder: str) -> None:
        """End a holder."""
        self._run(releasing("sqlite", holder))

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _run(self, steps: Steps) -> None:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000
            )
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.execute("PRAGMA synchronous = FULL")
        connection = self._connection
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
    serve(SqliteChargeWriter)
