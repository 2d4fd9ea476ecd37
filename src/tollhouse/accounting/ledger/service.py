"""Use cases of the ledger."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.ledger import activity, checks, differences, lines
from tollhouse.accounting.ledger.statements import running
from tollhouse.accounting.ledger.types import LedgerReport, LedgerScope, Statement
from tollhouse.kernel.errors import Invalid
from tollhouse.storage.tables.accounting import generations, postings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from tollhouse.accounting.ledger.types import (
        Activity,
        ActivityQuery,
        Difference,
        StatementQuery,
    )
    from tollhouse.accounting.settlement.journal import MissingCharges
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.pages import Page
    from tollhouse.storage.transaction import Read

MOST_DIFFERENCES: Final = 1_000
"""How many are named; who has more has one cause."""
_EVERYTHING = LedgerScope()


class LedgerService:
    """Looks at the books; changes nothing."""

    def __init__(
        self,
        clock: Clock,
        *,
        most_requests: int = 20_000,
        missing: Callable[[], Iterable[MissingCharges]] = tuple,
    ) -> None:
        """Take what the use cases need.

        Args:
            clock: What the time is.
            most_requests: Of an account with more, a sample looks at two days alone. So many take
                SQLite half a second of CPU time.
            missing: Tells what was gone from the journal at a start; may read a file.
        """
        self._missing = missing
        self._clock = clock
        self._most_requests = most_requests

    async def verify(self, read: Read, scope: LedgerScope = _EVERYTHING) -> LedgerReport:
        """Recompute every balance and counter, and name each difference.

        Args:
            read: One snapshot: what is booked meanwhile is not seen at all.
            scope: Which part of the books.
        """
        found = [difference for rows in await self._differing(read, scope) for difference in rows]
        if scope == _EVERYTHING:
            found += differences.of_journal(self._missing())
        balances = await checks.balances(read, scope)
        found += differences.of_balances(balances)
        return LedgerReport(
            postings=await checks.count(read, postings, scope),
            generations=await checks.count(read, generations, scope),
            balances=balances,
            differences=found[:MOST_DIFFERENCES],
            more=len(found) > MOST_DIFFERENCES,
        )

    async def scope_of(self, read: Read, account_id: str) -> LedgerScope:
        """Return what a sample looks at: all of an account, of a busy one today and yesterday."""
        if await checks.requests_of(read, account_id) <= self._most_requests:
            return LedgerScope((account_id,))
        yesterday = self._clock.now().astimezone(UTC).date() - timedelta(days=1)
        return LedgerScope((account_id,), datetime.combine(yesterday, time(), UTC))

    async def accounts_after(self, read: Read, account_id: str, most: int) -> Sequence[str]:
        """Return the next accounts behind an id, in the order of their ids."""
        return await checks.accounts_after(read, account_id, most)

    async def statement(self, read: Read, query: StatementQuery) -> Statement:
        """Return what happened to an account's money in a period.

        Raises:
            Invalid: The period ends before it begins.
        """
        if query.since is not None and query.until is not None and query.until < query.since:
            message = "The period ends before it begins."
            raise Invalid(message)
        opening = await lines.balance_before(read, query.account_id, query.since)
        total, change = await lines.size(read, query)
        skipped = await lines.change_of_first(read, query) if query.window.offset else 0
        page = await lines.movements(read, query)
        return Statement(
            account_id=query.account_id,
            opening_nano=opening,
            change_nano=change,
            lines=running(opening + skipped, page),
            total=total,
        )

    async def activity(self, read: Read, query: ActivityQuery) -> Page[Activity]:
        """Return what was asked of which model on which day, the latest day first."""
        return await activity.page(read, query)

    async def _differing(self, read: Read, scope: LedgerScope) -> list[Iterator[Difference]]:
        most = MOST_DIFFERENCES + 1
        found = [differences.of_sides(row) for row in await checks.wrong_sides(read, scope, most)]
        found += [
            differences.of_charge(row) for row in await checks.wrong_charges(read, scope, most)
        ]
        found += [
            differences.of_several_charges(row)
            for row in await checks.several_charges(read, scope, most)
        ]
        found += [
            differences.of_lost_generation(row)
            for row in await checks.lost_generations(read, scope, most)
        ]
        for each in checks.counters(read.dialect, scope):
            found += [
                differences.of_counters(each.table.name, each.keys, each.names, row)
                for row in await checks.different_counters(read, each, most)
            ]
        return found
