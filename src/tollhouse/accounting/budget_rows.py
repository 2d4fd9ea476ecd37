"""The rows of budgets follow what they are derived from: credits, limits, reservations, charges.

A row is made when one of several processes first needs it. From then on it changes in every
transaction that changes one of these (for charges in `settlement/booking.py`); where one process
spends alone there are none.

    a new row   is summed up while nobody writes to the table: who has charged before is in the sum,
                who charges later finds the row
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.accounting import repository
from tollhouse.accounting.leases import ACCOUNT, FREE, KEY, BudgetId, BudgetRow, window_of
from tollhouse.accounting.limits import interval_of
from tollhouse.accounting.types import BudgetScope
from tollhouse.accounting.uses import LEASED, LIMIT, RESERVED, USED
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import budgets, leases, limits
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tollhouse.accounting.types import Reservation, Reset

BUDGET_COLUMNS = (budgets.c.scope, budgets.c.id, budgets.c.period)
LEASE_COLUMNS = (leases.c.scope, leases.c.id, leases.c.period)
KEPT: Final = timedelta(days=62)
"""How long a window is kept after its first day: a month, and as long again for late charges."""
SOON: Final = sa.text("SET LOCAL idle_in_transaction_session_timeout = 5000")
"""A process that stops in the middle must not stop all others."""
_ALONE: Final = sa.text("LOCK TABLE budgets IN EXCLUSIVE MODE")
"""No weaker: who has locked rows to change them would wait for us, and we for them."""
_OWNER: Final = sa.tuple_(budgets.c.scope, budgets.c.id)


async def make_rows(write: Write, wanted: Iterable[BudgetId]) -> None:
    """Make the rows that are missing, in a transaction that has locked nothing else."""
    await _alone(write)
    for budget in sorted(wanted):
        scope, id_, period = budget
        row = insert(write, budgets).values(scope=scope, id=id_, period=period)
        if (await write.execute(row.on_conflict_do_nothing())).rowcount:
            await _derive(write, is_row(budget))
            await _forget_past(write, budget)


async def _forget_past(write: Write, budget: BudgetId) -> None:
    """Forget windows of long ago, of which nobody has anything any more."""
    if not budget.window:
        return
    long_ago = (date.fromisoformat(budget.window[:10]) - KEPT).isoformat()
    for table, unused in ((leases, leases.c.granted_nano == 0), (budgets, LEASED == 0)):
        its = table.c.scope == budget.scope, table.c.id == budget.id
        past = table.c.period != "", table.c.period < long_ago, unused
        await write.execute(sa.delete(table).where(*its, *past))


async def _alone(write: Write) -> None:
    if write.dialect == "postgresql":
        await write.execute(SOON)
        await write.execute(_ALONE)


async def _derive(write: Write, *which: sa.ColumnElement[bool]) -> None:
    """Give rows what they have to be."""
    found = await write.execute(sa.select(*BUDGET_COLUMNS).where(*which))
    for budget in map(budget_id, found.all()):
        if budget.scope not in {ACCOUNT, FREE}:
            mine = limits.c.scope == budget.scope, limits.c.owner_id == budget.id
            limit, with_own = None, False
            for row in await write.execute(sa.select(limits).where(*mine)):
                if _is_window_of(interval_of(row.reset_interval), budget):
                    limit, with_own = row.limit_nano, row.include_byok
            await update_row(write, budget, limit_nano=limit, include_byok=with_own)
        await update_row(write, budget, limit_nano=LIMIT, used_nano=USED, reserved_nano=RESERVED)


def _is_window_of(reset: Reset | None, budget: BudgetId) -> bool:
    """Tell whether a budget is one that a limit makes which starts anew like this."""
    if not budget.window:
        return reset is None
    return window_of(reset, date.fromisoformat(budget.window[:10])) == budget.window


async def credits_changed(write: Write, account_id: str, by_nano: int) -> None:
    """Let a balance's budget follow what came into an account, or left it."""
    limit_nano = budgets.c.limit_nano + by_nano
    await update_row(write, BudgetId(ACCOUNT, account_id), limit_nano=limit_nano)


async def limit_changed(write: Write, scope: str, owner_id: str) -> None:
    """Let budgets follow a limit; call it before other budgets are locked."""
    await _alone(write)
    await _derive(write, budgets.c.scope == scope, budgets.c.id == owner_id)


async def limits_gone(write: Write, workspace_id: str) -> None:
    """Let budgets follow the removal of a workspace: its limits, its end users', its keys'."""
    await _alone(write)
    its_keys = api_keys.c.workspace_id == workspace_id
    made_here = sa.select(api_keys.c.creator_user_id).where(its_keys).distinct()
    people = [each for each in (await write.execute(made_here)).scalars() if each is not None]
    # Its keys go; what they have used is nobody's then.
    await write.execute(sa.update(api_keys).where(its_keys).values(creator_user_id=None))
    scope, id_ = budgets.c.scope, budgets.c.id
    its_own = (scope == BudgetScope.WORKSPACE.value) & (id_ == workspace_id)
    end_users = (scope == BudgetScope.END_USER.value) & id_.startswith(f"{workspace_id}:")
    await _derive(
        write, its_own | end_users | (scope == BudgetScope.MEMBER.value) & id_.in_(people)
    )


async def reserved_changed(
    write: Write, reservation: Reservation, by_nano: int, with_own_by_nano: int
) -> Mapping[BudgetId, BudgetRow]:
    """Let budgets follow what is set aside: of the account, and of all that limits it.

    Returns those that have rows, as they are then.
    """
    if not (by_nano or with_own_by_nano):
        return {}
    its = await reserved_of(write, [reservation])
    rows = await locked_rows(write, its)  # before the update, which has no order
    for row in rows.values():
        row.reserved += with_own_by_nano if row.include_byok else by_nano
    by = sa.case((budgets.c.include_byok, with_own_by_nano), else_=by_nano)
    changed = sa.update(budgets).where(its).values(reserved_nano=budgets.c.reserved_nano + by)
    await write.execute(changed)
    return rows


async def reserved_of(read: Read, reservations: Iterable[Reservation]) -> sa.ColumnElement[bool]:
    """Return which rows batches reserve of, whichever their window is."""
    found: set[tuple[str, str]] = set()
    for each in reservations:
        people = await repository.people_of(read, each.key_hashes)
        found |= {(ACCOUNT, each.account_id), *((KEY, key) for key in each.key_hashes)}
        found |= {(BudgetScope.MEMBER.value, person) for person in people.values()}
        if each.workspace_id is not None:
            found.add((BudgetScope.WORKSPACE.value, each.workspace_id))
    return _OWNER.in_(sorted(found))


async def set_aside(write: Write, reservation: Reservation, *, takes_credits: bool = True) -> bool:
    """Store credits that are set aside, and let budgets follow.

    Returns false where processes have too much of these for it: nothing of it may be kept then.
    Of an account that pays afterwards it takes no credits.
    """
    await repository.add_reservation(write, reservation)
    amount_nano, with_own_nano = reservation.amount_nano, reservation.with_own_nano
    rows = await reserved_changed(write, reservation, amount_nano, with_own_nano)
    today = reservation.created_at.date().isoformat()
    return not amount_nano or all(
        row.room >= 0
        for budget, row in rows.items()
        if budget.covers(today) and (takes_credits or budget.scope != ACCOUNT)
    )


def budget_id(row: sa.Row[Any]) -> BudgetId:
    """Return what a row with its three columns is of."""
    return BudgetId(row.scope, row.id, row.period)


def is_row(budget: BudgetId) -> sa.ColumnElement[bool]:
    """Return which row is a budget's."""
    return sa.and_(*(column == value for column, value in zip(BUDGET_COLUMNS, budget, strict=True)))


async def update_row(write: Write, budget: BudgetId, **values: object) -> None:
    """Change a row; there need not be one."""
    await write.execute(sa.update(budgets).where(is_row(budget)).values(**values))


async def locked_rows(write: Write, which: sa.ColumnElement[bool]) -> dict[BudgetId, BudgetRow]:
    """Lock rows in the order of all, and return them."""
    query = sa.select(budgets).where(which).order_by(*BUDGET_COLUMNS).with_for_update()
    return {budget_id(row): budget_row(row) for row in await write.execute(query)}


def budget_row(row: sa.Row[Any]) -> BudgetRow:
    """Return a row as decisions look at it."""
    return BudgetRow(
        row.limit_nano,
        row.used_nano,
        row.reserved_nano,
        row.leased_nano,
        include_byok=row.include_byok,
    )
