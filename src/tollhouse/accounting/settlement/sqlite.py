"""Charges on SQLite: plain `sqlite3` in one writer thread.

SQLAlchemy's cost of a write transaction is ten times that of the statements themselves, and this
is the one write on the way of every request. The thread shares the database's single-writer lock
with every other write transaction.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import TYPE_CHECKING

from tollhouse.accounting.ports import Unbookable
from tollhouse.accounting.settlement.rows import Booking, booking, generation_row
from tollhouse.storage.tables.accounting import generations
from tollhouse.storage.urls import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tollhouse.accounting.settlement.rows import Row
    from tollhouse.accounting.types import GenerationRecord

    Step = tuple[str, Sequence[tuple[object, ...] | Row]]
    """A statement and its rows."""


def _adding(table: str, columns: Sequence[str]) -> str:
    """Return the statement that adds a row, by places: looking 37 names up takes a third more."""
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    return f"INSERT INTO {table} ({names}) VALUES ({places})"  # noqa: S608 - our own names


def _values(columns: Sequence[str]) -> Callable[[Row], tuple[object, ...]]:
    """Return what gives the values of these columns, in their order."""
    first, second, *others = columns
    return itemgetter(first, second, *others)


_GENERATION = tuple(column.name for column in generations.columns)
_POSTING = (
    *("id", "account_id", "kind", "source", "destination", "amount_nano", "generation_id"),
    "created_at",
)
ADD_GENERATION = f"{_adding('generations', _GENERATION)} ON CONFLICT (id) DO NOTHING"
_ADD_POSTING = _adding("postings", _POSTING)
_of_generation = _values(_GENERATION)
_of_posting = _values(_POSTING)
_RAISE_ACCOUNT = """
    INSERT INTO account_totals (account_id, purchased_nano, granted_nano, used_nano)
    VALUES (:account_id, 0, 0, :used_nano)
    ON CONFLICT (account_id) DO UPDATE SET used_nano = used_nano + excluded.used_nano"""
_RAISE_ACCOUNT_DAY = """
    INSERT INTO account_days (account_id, day, free_requests)
    VALUES (:account_id, :day, :free_requests)
    ON CONFLICT (account_id, day) DO UPDATE SET
        free_requests = free_requests + excluded.free_requests"""
_RAISE_KEY = """
    INSERT INTO key_totals (key_hash, usage_nano, byok_usage_nano, last_used_at)
    VALUES (:key_hash, :usage_nano, :byok_usage_nano, :last_used_at)
    ON CONFLICT (key_hash) DO UPDATE SET
        usage_nano = usage_nano + excluded.usage_nano,
        byok_usage_nano = byok_usage_nano + excluded.byok_usage_nano,
        last_used_at = max(last_used_at, excluded.last_used_at)"""
_RAISE_KEY_DAY = """
    INSERT INTO key_days (key_hash, day, usage_nano, byok_usage_nano, requests)
    VALUES (:key_hash, :day, :usage_nano, :byok_usage_nano, :requests)
    ON CONFLICT (key_hash, day) DO UPDATE SET
        usage_nano = usage_nano + excluded.usage_nano,
        byok_usage_nano = byok_usage_nano + excluded.byok_usage_nano,
        requests = requests + excluded.requests"""
_RAISE_USAGE_DAY = """
    INSERT INTO usage_days (account_id, day, key_hash, model, provider, workspace_id, requests,
        prompt_tokens, completion_tokens, reasoning_tokens, cached_tokens, usage_nano,
        byok_usage_nano)
    VALUES (:account_id, :day, :key_hash, :model, :provider, :workspace_id, :requests,
        :prompt_tokens, :completion_tokens, :reasoning_tokens, :cached_tokens, :usage_nano,
        :byok_usage_nano)
    ON CONFLICT (account_id, day, key_hash, model, provider, workspace_id) DO UPDATE SET
        requests = requests + excluded.requests,
        prompt_tokens = prompt_tokens + excluded.prompt_tokens,
        completion_tokens = completion_tokens + excluded.completion_tokens,
        reasoning_tokens = reasoning_tokens + excluded.reasoning_tokens,
        cached_tokens = cached_tokens + excluded.cached_tokens,
        usage_nano = usage_nano + excluded.usage_nano,
        byok_usage_nano = byok_usage_nano + excluded.byok_usage_nano"""

# Raised for what a record holds, whatever the state of the file.
_OF_THE_RECORD = (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError)


def generation_values(record: GenerationRecord) -> tuple[object, ...]:
    """Return what `ADD_GENERATION` adds."""
    return _of_generation(generation_row(record))


def steps(change: Booking) -> Iterator[Step]:
    """Return the statements that apply a change, each with its rows, in the order of the locks."""
    for statement, rows in (
        (_ADD_POSTING, [_of_posting(row) for row in change.postings]),
        (_RAISE_ACCOUNT, change.account_totals),
        (_RAISE_ACCOUNT_DAY, change.account_days),
        (_RAISE_KEY, change.key_totals),
        (_RAISE_KEY_DAY, change.key_days),
        (_RAISE_USAGE_DAY, change.usage_days),
    ):
        if rows:
            yield statement, rows


class SqliteChargeWriter:
    """Books groups of generations in an SQLite file."""

    def __init__(self, path: Path, write_lock: asyncio.Lock) -> None:
        """Take the file and the lock that its writers share."""
        self._path = path
        self._write_lock = write_lock
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="settler")
        self._connection: sqlite3.Connection | None = None

    async def write(self, records: Sequence[GenerationRecord]) -> None:
        """Book a group of generations in one transaction; those already booked change nothing.

        Raises:
            Unbookable: One of the group cannot be stored as it is; nothing of it is booked.
            sqlite3.Error: The file cannot be written; nothing of the group is booked.
        """
        loop = asyncio.get_running_loop()
        async with self._write_lock:
            await loop.run_in_executor(self._thread, self._book, records)

    async def close(self) -> None:
        """Close the connection and end the thread."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, connection.close)
        self._thread.shutdown()

    def _book(self, records: Sequence[GenerationRecord]) -> None:
        connection = self._connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in steps(booking(records, _add_new(connection, records))):
                connection.executemany(statement, rows)
            connection.execute("COMMIT")
        except BaseException as error:
            # SQLite ends it by itself where the disk is full or fails, say.
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, _OF_THE_RECORD):
                raise Unbookable(str(error)) from error
            raise

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect(
                self._path, isolation_level=None, timeout=BUSY_TIMEOUT_MS / 1000
            )
            self._connection.execute("PRAGMA foreign_keys = ON")
            self._connection.execute("PRAGMA synchronous = FULL")
        return self._connection


def _add_new(connection: sqlite3.Connection, records: Sequence[GenerationRecord]) -> set[str]:
    """Add the generations that are not there yet; return their ids."""
    rows = [generation_values(record) for record in records]
    # One call for all costs half as much, and cannot say which were there: they hardly ever are.
    connection.execute("SAVEPOINT all_at_once")
    if connection.executemany(ADD_GENERATION, rows).rowcount == len(rows):
        connection.execute("RELEASE all_at_once")
        return {record.id for record in records}
    connection.execute("ROLLBACK TO all_at_once")
    connection.execute("RELEASE all_at_once")
    return {
        record.id
        for record, row in zip(records, rows, strict=True)
        if connection.execute(ADD_GENERATION, row).rowcount
    }
