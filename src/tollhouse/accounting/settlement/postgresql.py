"""Charges on PostgreSQL: `asyncpg`, whose prepared statements take a group as one JSON argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

import asyncpg
import msgspec

from tollhouse.accounting.ports import Unbookable
from tollhouse.accounting.settlement.rows import Booking, booking, generation_row
from tollhouse.storage import postgresql
from tollhouse.storage.tables.accounting import generations

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import sqlalchemy as sa

    from tollhouse.accounting.settlement.rows import Row
    from tollhouse.accounting.types import GenerationRecord

# By name: a column that a later release has added gets its default, and not NULL.
_COLUMNS = ", ".join(column.name for column in generations.columns)
ADD_GENERATIONS = f"""
    INSERT INTO generations ({_COLUMNS})
    SELECT {_COLUMNS} FROM json_populate_recordset(NULL::generations, $1::json)
    ON CONFLICT (id) DO NOTHING
    RETURNING id"""  # noqa: S608 - names of our own columns
_ADD_POSTINGS = """
    INSERT INTO postings
        (id, account_id, kind, source, destination, amount_nano, generation_id, created_at)
    SELECT id, account_id, kind, source, destination, amount_nano, generation_id, created_at
    FROM json_populate_recordset(NULL::postings, $1::json)"""
_RAISE_ACCOUNTS = """
    INSERT INTO account_totals AS total (account_id, purchased_nano, granted_nano, used_nano)
    SELECT account_id, 0, 0, used_nano
    FROM json_populate_recordset(NULL::account_totals, $1::json)
    ON CONFLICT (account_id) DO UPDATE SET used_nano = total.used_nano + excluded.used_nano"""
_RAISE_ACCOUNT_DAYS = """
    INSERT INTO account_days AS total
    SELECT * FROM json_populate_recordset(NULL::account_days, $1::json)
    ON CONFLICT (account_id, day) DO UPDATE SET
        free_requests = total.free_requests + excluded.free_requests"""
_RAISE_KEYS = """
    INSERT INTO key_totals AS total
    SELECT * FROM json_populate_recordset(NULL::key_totals, $1::json)
    ON CONFLICT (key_hash) DO UPDATE SET
        usage_nano = total.usage_nano + excluded.usage_nano,
        byok_usage_nano = total.byok_usage_nano + excluded.byok_usage_nano,
        last_used_at = greatest(total.last_used_at, excluded.last_used_at)"""
_RAISE_KEY_DAYS = """
    INSERT INTO key_days AS total
    SELECT * FROM json_populate_recordset(NULL::key_days, $1::json)
    ON CONFLICT (key_hash, day) DO UPDATE SET
        usage_nano = total.usage_nano + excluded.usage_nano,
        byok_usage_nano = total.byok_usage_nano + excluded.byok_usage_nano,
        requests = total.requests + excluded.requests"""
_RAISE_USAGE_DAYS = """
    INSERT INTO usage_days AS total
    SELECT * FROM json_populate_recordset(NULL::usage_days, $1::json)
    ON CONFLICT (account_id, day, key_hash, model, provider, workspace_id) DO UPDATE SET
        requests = total.requests + excluded.requests,
        prompt_tokens = total.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = total.completion_tokens + excluded.completion_tokens,
        reasoning_tokens = total.reasoning_tokens + excluded.reasoning_tokens,
        cached_tokens = total.cached_tokens + excluded.cached_tokens,
        usage_nano = total.usage_nano + excluded.usage_nano,
        byok_usage_nano = total.byok_usage_nano + excluded.byok_usage_nano"""

# Raised for what a record holds, whatever the state of the server.
_OF_THE_RECORD = (
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    OverflowError,
    UnicodeError,
)
# The connection is gone, or a server that stops or fails over is about to end it.
_LOST = (
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server's farewell came while nothing was asked
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    OSError,
)


def generations_json(records: Sequence[GenerationRecord]) -> str:
    """Return what `ADD_GENERATIONS` adds; it returns the ids of those that were not there."""
    return _json([_for_json(generation_row(record)) for record in records])


def steps(change: Booking) -> Iterator[tuple[str, str]]:
    """Return the statements that apply a change, each with its rows, in the order of the locks."""
    for statement, rows in (
        (_ADD_POSTINGS, change.postings),
        (_RAISE_ACCOUNTS, change.account_totals),
        (_RAISE_ACCOUNT_DAYS, change.account_days),
        (_RAISE_KEYS, change.key_totals),
        (_RAISE_KEY_DAYS, change.key_days),
        (_RAISE_USAGE_DAYS, change.usage_days),
    ):
        if rows:
            yield statement, _json(rows)


class PostgresqlChargeWriter:
    """Books groups of generations over a connection of its own, opened again where it was lost."""

    def __init__(self, url: sa.URL) -> None:
        """Take the database's URL; the connection opens with the first group."""
        self._url = url
        self._connection: asyncpg.Connection[asyncpg.Record] | None = None

    async def write(self, records: Sequence[GenerationRecord]) -> None:
        """Book a group of generations in one transaction; those already booked change nothing.

        Raises:
            Unbookable: One of the group cannot be stored as it is; nothing of it is booked.
            Exception: The database cannot be reached or written; nothing of the group is known
                to be booked.
        """
        try:
            try:
                await self._book(records)
            except _LOST:
                # Perhaps after the commit: booking again is harmless.
                self._disconnect()
                await self._book(records)
        except _OF_THE_RECORD as error:
            raise Unbookable(str(error)) from error

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            await connection.close(timeout=1)

    async def _book(self, records: Sequence[GenerationRecord]) -> None:
        connection = await self._connect()
        async with connection.transaction():
            added = await connection.fetch(ADD_GENERATIONS, generations_json(records))
            for statement, rows in steps(booking(records, {row["id"] for row in added})):
                await connection.execute(statement, rows)

    async def _connect(self) -> asyncpg.Connection[asyncpg.Record]:
        if self._connection is None or self._connection.is_closed():
            self._connection = await postgresql.connect(self._url)
        return self._connection

    def _disconnect(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.terminate()


def _for_json(row: Row) -> Row:
    return {**row, "attempts": msgspec.Raw(str(row["attempts"]).encode())}


def _json(rows: Sequence[Row]) -> str:
    return msgspec.json.encode(rows).decode()
