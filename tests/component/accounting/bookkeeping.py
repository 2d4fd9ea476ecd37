"""The services of money, each use in a transaction of its own, as endpoints have it."""

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import sqlalchemy as sa

from tests.support.builders import Tenant
from tests.support.clock import FakeClock
from tests.support.seams.accounting import (
    AccountingService,
    Activity,
    ActivityQuery,
    BooksProcess,
    Credits,
    Difference,
    GenerationRecord,
    LedgerReport,
    LedgerScope,
    LedgerService,
    Posting,
    PostingKind,
    Statement,
    StatementQuery,
    activity,
    statement,
)
from tests.support.seams.identity import subject_of
from tollhouse.kernel.pages import Window
from tollhouse.storage.database import Database


@dataclass
class Bookkeeping:
    """Moves money, looks at the books and tampers with them."""

    database: Database
    accounting: AccountingService
    ledger: LedgerService
    writer: BooksProcess
    clock: FakeClock

    async def add(
        self,
        tenant: Tenant,
        kind: PostingKind,
        nano: int,
        generation_id: str | None = None,
        *,
        key: str | None = None,
        at: datetime | None = None,
    ) -> Posting:
        if at is not None:
            self.clock.set(at)
        facts = {"generation_id": generation_id, "idempotency_key": key, "note": "a note"}
        async with self.database.writing() as write:
            return await self.accounting.add_credits(write, tenant.account.id, kind, nano, **facts)

    async def credits(self, tenant: Tenant) -> Credits:
        async with self.database.reading() as read:
            return await self.accounting.credits(read, tenant.account.id)

    async def balance(self, tenant: Tenant) -> int:
        return (await self.credits(tenant)).balance_nano

    async def generation(self, tenant: Tenant, generation_id: str) -> GenerationRecord:
        async with self.database.reading() as read:
            return await self.accounting.generation(read, subject_of(tenant.key), generation_id)

    async def verify(self, scope: LedgerScope | None = None) -> LedgerReport:
        async with self.database.reading() as read:
            return await self.ledger.verify(read, scope or LedgerScope())

    async def found(self, scope: LedgerScope | None = None) -> list[Difference]:
        return list((await self.verify(scope)).differences)

    async def tamper(self, statement: str) -> None:
        async with self.database.writing() as write:
            changed = await write.execute(sa.text(statement))
            assert changed.rowcount == 1, statement

    async def statement(
        self, tenant: Tenant, window: Window | None = None, **facts: Any
    ) -> Statement:
        wanted = {"since": None, "until": None, "detail": False, **facts}
        query = StatementQuery(
            account_id=tenant.account.id, window=window or Window(0, 1_000), **wanted
        )
        async with self.database.reading() as read:
            return await statement(read, query)

    async def activity(self, tenant: Tenant, **facts: Any) -> list[Activity]:
        wanted = {"since": date(2026, 3, 1), "until": date(2026, 4, 1), **facts}
        query = ActivityQuery(account_id=tenant.account.id, window=Window(0, 100), **wanted)
        async with self.database.reading() as read:
            page = await activity(read, query)
        assert page.total == len(page.items)
        return list(page.items)
