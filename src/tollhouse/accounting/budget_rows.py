"""The rows of budgets follow what they are derived from: credits, limits, reservations, charges.

A row is made when one of several processes first needs it. From then on it changes in every
transaction that changes one of these; where one process spends alone there are none.

    a new row   is summed up while nobody writes to the table: who has charged before is in the sum,
                who charges later finds the row
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.accounting import repository
from tollhouse.accounting.leases import (
    ACCOUNT,
    FREE,
    KEY,
    BudgetId,
    BudgetRow,
    window_of,
)
from tollhouse.accounting.limits import interval_of
from tollhouse.accounting.settlement.booking import budget_changes, budget_charges, owners_of
from tollhouse.accounting.types import BudgetScope
from tollhouse.accounting.uses import LEASED, RESERVED, TOTAL, USED
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import budgets, leases, limits
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tollhouse.accounting.types import GenerationRecord, Reservation, Reset

BUDGET_COLUMNS = (budgets.c.scope, budgets.c.id, budgets.c.period)
LEASE_COLUMNS = (leases.c.scope, leases.c.id, leases.c.period)
KEPT: Final = timedelta(days=62)
"""How long a window is kept after its first day: a month, and as long again for late charges."""
_ALONE: Final = sa.text("LOCK TABLE budgets IN EXCLUSIVE MODE")
"""No weaker: who has locked rows to change them would wait for us, and we for them."""


SOON: Final = sa.text("SET LOCAL idle_in_transaction_session_timeout = 5000")
"""A process that stops in the middle must not stop all others."""


async def make_rows(write: Write, wanted: Iterable[BudgetId]) -> None:
    """Make the rows that are missing, in a transaction that has locked nothing else."""
    await _alone(write)
    for budget in sorted(wanted):
        scope, id_, period = budget
        row = insert(write, budgets).values(scope=scope, id=id_, period=period)
        if (await write.execute(row.on_conflict_do_nothing())).rowcount:
            await _derive(write, budget)
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


async def _derive(write: Write, budget: BudgetId) -> None:
    """Give a row what it has to be."""
    if budget.scope == ACCOUNT:
        await update_row(write, budget, limit_nano=TOTAL)
    elif budget.scope != FREE:
        query = sa.select(limits).where(
            limits.c.scope == budget.scope, limits.c.owner_id == budget.id
        )
        limit, with_own = None, False
        for row in await write.execute(query):
            if is_window_of(interval_of(row.reset_interval), budget):
                limit, with_own = row.limit_nano, row.include_byok
        await update_row(write, budget, limit_nano=limit, include_byok=with_own)
    await update_row(write, budget, used_nano=USED, reserved_nano=RESERVED)


def is_window_of(reset: Reset | None, budget: BudgetId) -> bool:
    """Tell whether a budget is one that a limit makes which starts anew like this."""
    if not budget.window:
        return reset is None
    return window_of(reset, date.fromisoformat(budget.window[:10])) == budget.window


async def credits_changed(write: Write, account_id: str, by_nano: int) -> None:
    """Let a balance's budget follow what came into an account, or left it."""
    await _change(write, ACCOUNT, account_id, limit_nano=budgets.c.limit_nano + by_nano)


async def limit_changed(write: Write, scope: str, owner_id: str) -> None:
    """Let budgets follow a limit; call it before other budgets are locked."""
    await _alone(write)
    query = sa.select(*BUDGET_COLUMNS).where(budgets.c.scope == scope, budgets.c.id == owner_id)
    for row in (await write.execute(query)).all():
        await _derive(write, budget_id(row))


async def limits_gone(write: Write, workspace_id: str) -> None:
    """Let budgets follow the removal of a workspace: its limits, its end users', its keys'."""
    await _alone(write)
    made_here = sa.select(api_keys.c.creator_user_id).where(
        api_keys.c.workspace_id == workspace_id, api_keys.c.creator_user_id.is_not(None)
    )
    people = [*(await write.execute(made_here.distinct())).scalars()]
    # Its keys go; what they have used is nobody's then.
    nobodys = sa.update(api_keys).where(api_keys.c.workspace_id == workspace_id)
    await write.execute(nobodys.values(creator_user_id=None))
    scope, id_ = budgets.c.scope, budgets.c.id
    query = sa.select(*BUDGET_COLUMNS).where(
        sa.or_(
            (scope == BudgetScope.WORKSPACE.value) & (id_ == workspace_id),
            (scope == BudgetScope.END_USER.value) & id_.startswith(f"{workspace_id}:"),
            (scope == BudgetScope.MEMBER.value) & id_.in_(people),
        )
    )
    for row in (await write.execute(query)).all():
        await _derive(write, budget_id(row))


async def reserved_changed(
    write: Write, reservation: Reservation, by_nano: int, with_own_by_nano: int
) -> Sequence[tuple[str, str]]:
    """Let budgets follow what is set aside: of the account, and of all that limits it.

    Returns scope and id of those; nothing where nothing changes.
    """
    if not (by_nano or with_own_by_nano):
        return ()
    reserved = budgets.c.reserved_nano
    of_limit = reserved + sa.case((budgets.c.include_byok, with_own_by_nano), else_=by_nano)
    owners = await _owners_of(write, reservation)
    for scope, id_ in owners:
        after = reserved + by_nano if scope == ACCOUNT else of_limit
        await _change(write, scope, id_, reserved_nano=after)
    return owners


async def _owners_of(read: Read, reservation: Reservation) -> Sequence[tuple[str, str]]:
    """Return scope and id of all that a batch reserves of, in the order of the locks."""
    found = {(ACCOUNT, reservation.account_id), *((KEY, key) for key in reservation.key_hashes)}
    people = await _people_of(read, reservation.key_hashes)
    found |= {(BudgetScope.MEMBER.value, person) for person in people.values()}
    if reservation.workspace_id is not None:
        found.add((BudgetScope.WORKSPACE.value, reservation.workspace_id))
    return sorted(found)


async def _people_of(read: Read, key_hashes: Iterable[str]) -> Mapping[str, str]:
    """Return who made some keys: those whose use counts to a person."""
    found = await repository.owners_of_keys(read, key_hashes)
    return {key: each.person.id for key, each in found.items() if each.person is not None}


async def set_aside(write: Write, reservation: Reservation, *, takes_credits: bool = True) -> bool:
    """Store credits that are set aside, and let budgets follow.

    Returns false where processes have too much of these for it: nothing of it may be kept then.
    Of an account that pays afterwards it takes no credits.
    """
    await repository.add_reservation(write, reservation)
    amount_nano, with_own_nano = reservation.amount_nano, reservation.with_own_nano
    changed = await reserved_changed(write, reservation, amount_nano, with_own_nano)
    if not amount_nano:
        return True
    today = reservation.created_at.date().isoformat()
    owners = [each for each in changed if takes_credits or each[0] != ACCOUNT]
    rows = await locked_rows(write, sa.tuple_(budgets.c.scope, budgets.c.id).in_(owners))
    return all(row.room >= 0 for budget, row in rows.items() if budget.covers(today))


async def charged(write: Write, records: Sequence[GenerationRecord]) -> None:
    """Let budgets follow charges that were booked just now in the same transaction."""
    keys = [key for record in records for key in record.key_hashes]
    charges = budget_charges(records, await _people_of(write, keys))
    mine = sa.tuple_(budgets.c.scope, budgets.c.id).in_(owners_of(charges))
    rows = await locked_rows(write, mine)
    for change in budget_changes(charges, rows, ()):
        await update_row(write, BudgetId(*change[2:]), used_nano=budgets.c.used_nano + change.used)


def budget_id(row: sa.Row[Any]) -> BudgetId:
    """Return what a row with its three columns is of."""
    return BudgetId(row.scope, row.id, row.period)


async def _change(write: Write, scope: str, id_: str, **values: object) -> None:
    mine = budgets.c.scope == scope, budgets.c.id == id_
    await write.execute(sa.update(budgets).where(*mine).values(**values))


async def update_row(write: Write, budget: BudgetId, **values: object) -> None:
    """Change a row; there need not be one."""
    its = [column == value for column, value in zip(BUDGET_COLUMNS, budget, strict=True)]
    await write.execute(sa.update(budgets).where(*its).values(**values))


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
