"""Books generations in a transaction that changes other things too, as a batch's does."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.accounting.settlement.booking import Step, advance, booking
from tollhouse.accounting.settlement.records import storable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.storage.database import Write


async def book(write: Write, records: Iterable[GenerationRecord]) -> frozenset[str]:
    """Book generations in somebody else's transaction; return the ids of those that were new.

    After an exception the transaction is lost: one cannot be stored, or the database is not there.
    """
    is_sqlite = write.dialect == "sqlite"
    steps = booking("sqlite" if is_sqlite else "postgresql", [*map(storable, records)])
    # In a thread: the rows of hundreds of generations would hold everything else up.
    step = await asyncio.to_thread(advance, steps)
    while isinstance(step, Step):
        values = [*step.values] if step.is_many else tuple(step.values)
        found = await write.execute_raw(step.sql if is_sqlite else step.numbered, values)
        rows = found.all() if found.returns_rows else ()
        step = await asyncio.to_thread(advance, steps, rows)
    return step
