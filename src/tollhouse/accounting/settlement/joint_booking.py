"""Books generations in a transaction that changes other things too, as a batch's does."""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tollhouse.accounting.settlement import postgresql_statements as postgresql
from tollhouse.accounting.settlement import sqlite_writer as sqlite
from tollhouse.accounting.settlement.booking import added, booking, generation_row
from tollhouse.accounting.settlement.payloads import storable
from tollhouse.storage.tables.accounting import generations

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tollhouse.accounting.settlement.booking import Row
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.storage.database import Write


async def book(write: Write, records: Iterable[GenerationRecord]) -> set[str]:
    """Book generations in somebody else's transaction; return the ids of those that were new.

    After an exception the transaction is lost: one cannot be stored, or the database is not there.
    """
    # Two transactions with some of the same generations must not wait for each other in a circle.
    in_order = sorted(map(storable, records), key=attrgetter("id"))
    if not in_order:
        return set()
    on = _book_on_sqlite if write.dialect == "sqlite" else _book_on_postgresql
    return await on(write, in_order)


async def _book_on_sqlite(write: Write, records: Sequence[GenerationRecord]) -> set[str]:
    # Nobody else writes meanwhile: what is not there now is new.
    ids = {record.id for record in records}
    there = sa.select(generations.c.id).where(generations.c.id.in_(ids))
    new = ids.difference((await write.execute(there)).scalars())

    def steps() -> Iterator[tuple[str, Sequence[Row]]]:
        fresh = added(records, new)
        if fresh:
            yield sqlite.ADD_GENERATION, list(map(generation_row, fresh))
        for table, rows in booking(fresh).changes():
            yield sqlite.STATEMENTS[table], rows

    # In a thread: the rows of hundreds of generations would hold everything else up.
    for statement, rows in await asyncio.to_thread(list, steps()):
        await write.execute_raw(statement, rows)
    return new


async def _book_on_postgresql(write: Write, records: Sequence[GenerationRecord]) -> set[str]:
    rows = (await asyncio.to_thread(postgresql.generations_json, records),)
    new = set((await write.execute_raw(postgresql.ADD_GENERATIONS, rows)).scalars())

    def steps() -> Iterator[tuple[str, str]]:
        for table, rows in booking(added(records, new)).changes():
            yield postgresql.STATEMENTS[table], postgresql.rows_json(table, rows)

    for statement, step in await asyncio.to_thread(list, steps()):
        await write.execute_raw(statement, (step,))
    return new
