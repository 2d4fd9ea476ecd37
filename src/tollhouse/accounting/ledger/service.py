"""Use cases of the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.ledger import checks, statements
from tollhouse.accounting.ledger.types import (
    Activity,
    ActivityQuery,
    Difference,
    LedgerReport,
    LedgerScope,
    Statement,
    StatementQuery,
    of_balances,
    of_charge,
    of_counters,
    of_journal,
    of_lost_generation,
    of_several_charges,
    of_sides,
    running_balances,
)
from tollhouse.kernel.errors import Invalid
from tollhouse.storage.tables.accounting import generations, postings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tollhouse.accounting.settlement.records import MissingCharges
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.pages import Page
    from tollhouse.storage.database import Database, Read

MOST_DIFFERENCES: Final = 1_000
"""How many are named; who has more has one cause."""
SAMPLED_ACCOUNTS: Final = 5
"""How many a sampler looks at each time."""
_EVERYTHING = LedgerScope()
_BUDGET = ("scope", "id", "period")
_ROW_CHECKS = (
    (checks.wrong_sides, of_sides),
    (checks.wrong_charges, of_charge),
    (checks.several_charges, of_several_charges),
    (checks.lost_generations, of_lost_generation),
)


@dataclass(frozen=True, slots=True)
class LedgerService:
    """Looks at the books; changes nothing."""

    clock: Clock
    most_requests: int = 20_000
    """Of an account with more, a sample looks at two days alone. So many take SQLite half a second
    of CPU time."""
    missing: Callable[[], Iterable[MissingCharges]] = tuple
    """Tells what was gone from the journal at a start; may read a file."""

    async def verify(self, read: Read, scope: LedgerScope = _EVERYTHING) -> LedgerReport:
        """Recompute every balance and counter, and name each difference.

        `read` is one snapshot: what is booked meanwhile is not seen at all.
        """
        most = MOST_DIFFERENCES + 1
        found: list[Difference] = []
        for wrong_rows, differences_of in _ROW_CHECKS:
            for row in await wrong_rows(read, scope, most):
                found += differences_of(row)
        for each in checks.counters(read.dialect, scope):
            for row in await checks.different_counters(read, each, most):
                found += of_counters(each.table.name, each.keys, each.names, row)
        if scope == _EVERYTHING:
            for row in await checks.different_budgets(read, most):
                found += of_counters("budgets", _BUDGET, [*checks.DERIVED], row)
            found += of_journal(self.missing())
        balances = await checks.balances(read, scope)
        found += of_balances(balances)
        return LedgerReport(
            postings=await checks.count(read, postings, scope),
            generations=await checks.count(read, generations, scope),
            balances=balances,
            differences=found[:MOST_DIFFERENCES],
            more=len(found) > MOST_DIFFERENCES,
        )

    async def scope_of(self, read: Read, account_id: str) -> LedgerScope:
        """Return what a sample looks at: all of an account, of a busy one today and yesterday."""
        if await checks.requests_of(read, account_id) <= self.most_requests:
            return LedgerScope((account_id,))
        yesterday = self.clock.now().astimezone(UTC).date() - timedelta(days=1)
        return LedgerScope((account_id,), datetime.combine(yesterday, time(), UTC))

    async def statement(self, read: Read, query: StatementQuery) -> Statement:
        """Return what happened to an account's money in a period, which ends after it begins."""
        if query.since is not None and query.until is not None and query.until < query.since:
            raise Invalid("The period ends before it begins.")
        opening = await statements.balance_before(read, query.account_id, query.since)
        total, change = await statements.size(read, query)
        skipped = await statements.change_of_first(read, query) if query.window.offset else 0
        page = await statements.movements(read, query)
        return Statement(
            account_id=query.account_id,
            opening_nano=opening,
            change_nano=change,
            lines=running_balances(opening + skipped, page),
            total=total,
        )

    async def activity(self, read: Read, query: ActivityQuery) -> Page[Activity]:
        """Return what was asked of which model on which day, the latest day first."""
        return await statements.activity_page(read, query)


@dataclass(slots=True)
class LedgerSampler:
    """The ledger's invariant: verifies some accounts each time, and after the last begins anew."""

    ledger: LedgerService
    database: Database
    _last: str = field(default="", init=False)

    async def differences(self) -> list[Difference]:
        """Verify the next accounts, each in a snapshot of its own, and return what differs."""
        async with self.database.reading() as read:
            chosen = await checks.accounts_after(read, self._last, SAMPLED_ACCOUNTS)
        found: list[Difference] = []
        for account_id in chosen:
            async with self.database.reading() as read:
                scope = await self.ledger.scope_of(read, account_id)
                found += (await self.ledger.verify(read, scope)).differences
        self._last = chosen[-1] if len(chosen) == SAMPLED_ACCOUNTS else ""
        return found
