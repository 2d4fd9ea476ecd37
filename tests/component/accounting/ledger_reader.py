"""The stored totals of the ledger, and the expected ones."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from tests.support.builders import Tenant, generation_record
from tests.support.seams.accounting import (
    BookCharges,
    Booked,
    Books,
    ChargesNotBooked,
    GenerationRecord,
    JournalPart,
    PostgresqlDriver,
    Release,
    SetAside,
    SqliteDriver,
    payload_of,
)
from tollhouse.storage.connections import dsn
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import (
    account_totals,
    generations,
    key_days,
    key_totals,
    postings,
)

HOLDER = "the-process"


class InProcessWriter:
    """Books as the books process does, in a thread of this one."""

    def __init__(
        self,
        driver: PostgresqlDriver | SqliteDriver,
        holder: str,
        turn: AbstractAsyncContextManager[object] | None = None,
    ) -> None:
        self._turn = turn or nullcontext()
        self._thread = ThreadPoolExecutor(max_workers=1)
        self._closed = False
        self._driver = driver
        self._books = Books(driver, Path(), holder)

    async def write(
        self,
        records: Sequence[GenerationRecord],
        part: JournalPart | None = None,
        first: int = 0,
    ) -> Sequence[SetAside]:
        del part
        return await self._ask(BookCharges(list(map(payload_of, records)), first))

    async def release(self, holder: str) -> None:
        await self._ask(Release(holder))

    async def _ask(self, message: BookCharges | Release) -> Sequence[SetAside]:
        async with self._turn:
            answer = await self._in_thread(self._books.answer, message)
        if isinstance(answer, Booked):
            return answer.set_aside
        raise ChargesNotBooked(getattr(answer, "reason", ""))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._in_thread(self._driver.close)
            self._thread.shutdown()

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, function, *arguments)


def charge_writer(database: Database, holder: str = HOLDER) -> InProcessWriter:
    """Make the charge writer for a database."""
    if database.dialect == "postgresql":
        return InProcessWriter(PostgresqlDriver(dsn(database.url)), holder)
    driver = SqliteDriver(str(database.url.database))
    return InProcessWriter(driver, holder, database.write_lock)


def record_for(tenant: Tenant, number: int = 1, **fields: Any) -> GenerationRecord:
    """Return the record of a tenant's reply; its id contains the number."""
    facts: dict[str, Any] = {
        "id": f"gen-1773311400-{number:020x}",
        "account_id": tenant.account.id,
        "workspace_id": tenant.workspace.id,
        "key_hash": tenant.key.hash,
    }
    return generation_record(**{**facts, **fields})


@dataclass
class LedgerTotals:
    """All totals that are derived from postings and generations."""

    accounts: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Account to purchased, granted and used."""
    keys: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    """Key to usage, usage with own provider keys, and the last use in milliseconds."""
    days: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """Key and UTC day to usage, usage with own provider keys, and requests."""

    def count(self, key_hash: str, date: str, usage: int, own: int, at: int) -> None:
        """Count a generation to a key."""
        key = self.keys.get(key_hash, (0, 0, 0))
        self.keys[key_hash] = (key[0] + usage, key[1] + own, max(key[2], at))
        day = self.days.get((key_hash, date), (0, 0, 0))
        self.days[key_hash, date] = (day[0] + usage, day[1] + own, day[2] + 1)


class LedgerReader:
    """Reads postings, generations and totals."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def rows(self, table: sa.Table) -> list[Any]:
        """Return the rows of a table."""
        async with self._database.reading() as read:
            return list(await read.execute(sa.select(table)))

    async def ids(self) -> list[str]:
        """Return the ids of the generations that are booked."""
        return sorted(row.id for row in await self.rows(generations))

    async def balances(self) -> dict[str, int]:
        """Return the balance of every account of the ledger."""
        balances: defaultdict[str, int] = defaultdict(int)
        for row in await self.rows(postings):
            balances[row.source] -= row.amount_nano
            balances[row.destination] += row.amount_nano
        return dict(balances)

    async def totals(self) -> LedgerTotals:
        """Return the totals that are stored."""
        return LedgerTotals(
            accounts={
                row.account_id: (row.purchased_nano, row.granted_nano, row.used_nano)
                for row in await self.rows(account_totals)
            },
            keys={
                row.key_hash: (
                    row.usage_nano,
                    row.byok_usage_nano,
                    int(row.last_used_at.timestamp() * 1000),
                )
                for row in await self.rows(key_totals)
            },
            days={
                (row.key_hash, row.day): (row.usage_nano, row.byok_usage_nano, row.requests)
                for row in await self.rows(key_days)
            },
        )

    async def totals_of_rows(self) -> LedgerTotals:
        """Return the totals that the stored postings and generations add up to."""
        found = LedgerTotals()
        for row in await self.rows(postings):
            place = ("purchase", "grant", "usage").index(row.kind)
            sums = list(found.accounts.get(row.account_id, (0, 0, 0)))
            sums[place] += row.amount_nano
            found.accounts[row.account_id] = (sums[0], sums[1], sums[2])
        for row in await self.rows(generations):
            usage = row.cost_nano
            own = (row.provider_cost_nano or 0) if row.is_byok else 0
            at = int(row.created_at.timestamp() * 1000)
            date = row.created_at.astimezone(UTC).date().isoformat()
            for key_hash in filter(None, (row.key_hash, row.payer_hash)):
                found.count(key_hash, date, usage, own, at)
        return found


def expected_totals(records: Iterable[GenerationRecord]) -> LedgerTotals:
    """Return the totals of generations, each id counted once: a model without a database."""
    first: dict[str, GenerationRecord] = {}
    for record in records:
        first.setdefault(record.id, record)
    found = LedgerTotals()
    for record in first.values():
        cost = record.cost_nano
        if cost:
            used = found.accounts.get(record.account_id, (0, 0, 0))[2]
            found.accounts[record.account_id] = (0, 0, used + cost)
        usage = cost
        own = (record.provider_cost_nano or 0) if record.is_byok else 0
        at = int(record.created_at.timestamp() * 1000)
        for key_hash in filter(None, (record.key_hash, record.payer_hash)):
            found.count(key_hash, record.created_at.date().isoformat(), usage, own, at)
    return found
