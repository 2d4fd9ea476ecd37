"""Books groups of charges in an SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.leases import BudgetId, BudgetRow
from tollhouse.accounting.settlement.booking import (
    CHANGE_BUDGET,
    CHANGE_LEASE,
    GENERATION,
    LEASES_OF,
    ONCE,
    POSTING,
    TOTALS,
    Unbookable,
    adding,
    booking,
    budget_changes,
    budget_charges,
    generation_row,
    makers_of,
    owners_of,
    raising_booked,
    releasing,
)
from tollhouse.storage.connections import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from tollhouse.accounting.types import GenerationRecord


def _values(columns: Sequence[str], zeros: Sequence[str] = ()) -> str:
    return f"VALUES ({', '.join(['?'] * len(columns) + ['0'] * len(zeros))})"


ADD_GENERATION: Final = f"{adding('generations', GENERATION, _values(GENERATION))} {ONCE}"
RAISE_BOOKED: Final = raising_booked("?", "?", "max")
RELEASE: Final = releasing("?1")
STATEMENTS: Final = {
    "postings": adding("postings", POSTING, _values(POSTING)),
    **{
        table: each.raising(table, _values(each.columns, each.zeros), "max")
        for table, each in TOTALS.items()
    },
}
"""By table, for rows of a `Booking`."""
BUDGETS_OF: Final = "SELECT scope, id, period, include_byok FROM budgets WHERE scope = ? AND id = ?"
PERSON_OF: Final = makers_of("hash = ?")
# Raised for what a record holds, whatever the state of the database.
_OF_THE_RECORD: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    OverflowError,
    UnicodeError,
)


class SqliteChargeWriter:
    """Books groups of one holder's generations over a connection of its own."""

    def __init__(self, path: str, holder: str) -> None:
        self._path = path
        self._holder = holder
        self._connection: sqlite3.Connection | None = None

    def write(self, records: Sequence[GenerationRecord], last: int = 0) -> None:
        """Book a group in one transaction; those already booked change nothing.

        `last` is the number of the last one: the transaction notes that all up to it are booked.

        Raises:
            Unbookable: One of the group cannot be stored as it is; nothing of it is booked.
            sqlite3.Error: The file cannot be written; nothing of the group is booked.
        """
        try:
            with self._transaction() as connection:
                if last:
                    connection.execute(RAISE_BOOKED, (self._holder, last))
                fresh = _add_new(connection, records)
                for table, rows in booking(fresh).changes():
                    connection.executemany(STATEMENTS[table], rows)
                self._settle_budgets(connection, fresh, is_own=bool(last))
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error

    def release(self, holder: str) -> None:
        """End a holder all of whose charges are booked; see `child.Writer`."""
        with self._transaction() as connection:
            for statement in RELEASE:
                connection.execute(statement, (holder,))

    def _settle_budgets(
        self, connection: sqlite3.Connection, fresh: Sequence[GenerationRecord], *, is_own: bool
    ) -> None:
        """Let budgets follow; the rights of another holder end with its release."""
        if connection.execute("SELECT 1 FROM budgets LIMIT 1").fetchone() is None:
            return  # one process spends alone
        keys = {key for record in fresh for key in record.key_hashes}
        found = (connection.execute(PERSON_OF, (key,)).fetchone() for key in keys)
        charges = budget_charges(fresh, dict(row for row in found if row is not None))
        rows = {
            BudgetId(*row[:3]): BudgetRow(None, include_byok=bool(row[3]))
            for owner in owners_of(charges)
            for row in connection.execute(BUDGETS_OF, owner)
        }
        mine = connection.execute(LEASES_OF, (self._holder,)) if is_own else ()
        leases = {BudgetId(*row) for row in mine}
        changes = budget_changes(charges, rows, leases)
        connection.executemany(CHANGE_BUDGET, changes)
        rights = [(each.right, self._holder, *each[2:]) for each in changes if each.right]
        connection.executemany(CHANGE_LEASE, rights)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @contextmanager
    def _transaction(self) -> Generator[sqlite3.Connection]:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        finally:
            # SQLite ends it by itself where the disk is full or fails, say.
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000
            )
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.execute("PRAGMA synchronous = FULL")
        return self._connection


def _add_new(
    connection: sqlite3.Connection, records: Sequence[GenerationRecord]
) -> Sequence[GenerationRecord]:
    """Add the generations that are not there yet, and return them."""
    rows = list(map(generation_row, records))
    # One call for all costs half as much, and cannot say which were there: they hardly ever are.
    connection.execute("SAVEPOINT all_at_once")
    if connection.executemany(ADD_GENERATION, rows).rowcount == len(rows):
        connection.execute("RELEASE all_at_once")
        return records
    connection.execute("ROLLBACK TO all_at_once")
    connection.execute("RELEASE all_at_once")
    return [
        record
        for record, row in zip(records, rows, strict=True)
        if connection.execute(ADD_GENERATION, row).rowcount
    ]
