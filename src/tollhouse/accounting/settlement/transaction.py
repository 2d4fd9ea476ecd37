"""Charges in somebody else's transaction: booked together with what else it changes, or not at all.

    async with database.writing() as write:
        new = await book(write, records)    # generations, postings and totals
        ...                                 # and what belongs to them

The statements, their order and the order of their rows are those of the charge writers, so that
neither waits for the other in a circle.
"""

from __future__ import annotations

import asyncio
from operator import attrgetter
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tollhouse.accounting.settlement import postgresql, sqlite
from tollhouse.accounting.settlement.rows import booking
from tollhouse.storage.tables.accounting import generations

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.storage.transaction import Write


async def book(write: Write, records: Iterable[GenerationRecord]) -> set[str]:
    """Book generations; those already booked change nothing.

    Returns:
        The ids of those that were not booked before.

    Raises:
        Exception: One of them cannot be stored, or the database is not there; the transaction is
            lost.
    """
    # Two transactions with some of the same generations must not wait for each other in a circle.
    in_order = sorted(records, key=attrgetter("id"))
    if not in_order:
        return set()
    on = _book_on_sqlite if write.dialect == "sqlite" else _book_on_postgresql
    return await on(write, in_order)


async def _book_on_sqlite(write: Write, records: Sequence[GenerationRecord]) -> set[str]:
    # Nobody else writes meanwhile: what is not there now is new.
    ids = {record.id for record in records}
    there = sa.select(generations.c.id).where(generations.c.id.in_(ids))
    new = ids.difference((await write.execute(there)).scalars())
    for statement, rows in await asyncio.to_thread(_sqlite_steps, records, new):
        await write.execute_raw(statement, rows)
    return new


def _sqlite_steps(records: Sequence[GenerationRecord], new: Collection[str]) -> list[sqlite.Step]:
    """Return each statement with its rows; hundreds of them would hold everything else up."""
    added = [sqlite.generation_values(record) for record in records if record.id in new]
    steps = sqlite.steps(booking(records, new))
    return [(sqlite.ADD_GENERATION, added), *steps] if added else list(steps)


async def _book_on_postgresql(write: Write, records: Sequence[GenerationRecord]) -> set[str]:
    rows = (await asyncio.to_thread(postgresql.generations_json, records),)
    added = await write.execute_raw(postgresql.ADD_GENERATIONS, rows)
    new = set(added.scalars())
    for statement, step in await asyncio.to_thread(_postgresql_steps, records, new):
        await write.execute_raw(statement, (step,))
    return new


def _postgresql_steps(
    records: Sequence[GenerationRecord], new: Collection[str]
) -> list[tuple[str, str]]:
    return list(postgresql.steps(booking(records, new)))
