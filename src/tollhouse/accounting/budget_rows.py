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
from tollhouse.accounting.leases import (
    ACCOUNT,
    FREE,
    KEY,
    BudgetId,
    BudgetRow,
    window_of,
)
from tollhouse.accounting.limits import interval_of
from tollhouse.accounting.types import BudgetScope
from tollhouse.identity.types import KeyKind
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    budgets,
    key_days,
    key_totals,
    leases,
    limits,
    owner_days,
    reservations,
)
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tollhouse.accounting.types import Reservation, Reset

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


def _one(amount: sa.ColumnElement[int], *its: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
    """Return the sum of an amount over rows of another table that belong to a budget's."""
    total = sa.select(sa.func.coalesce(sa.func.sum(amount), 0)).where(*its)
    return sa.cast(total.correlate(budgets).scalar_subquery(), sa.BigInteger)


def _with_own(table: sa.Table) -> sa.ColumnElement[int]:
    own = sa.case((budgets.c.include_byok, table.c.byok_usage_nano), else_=0)
    return table.c.usage_nano + own


def _in_window(table: sa.Table) -> sa.ColumnElement[bool]:
    first, after = (sa.func.substr(budgets.c.period, *part) for part in ((1, 10), (13, 10)))
    return sa.and_(table.c.day >= first, table.c.day < after)


_totals = account_totals.c
_kept = (
    _totals.purchased_nano - _totals.refunded_nano + _totals.granted_nano + _totals.adjusted_nano
)
_of_account = _totals.account_id == budgets.c.id
TOTAL: Final = _one(_kept, _of_account)
"""What a balance's budget is limited to."""
_its_keys = repository.made_by(budgets.c.id).correlate(budgets)
_of_owner = sa.and_(
    owner_days.c.scope == budgets.c.scope,
    owner_days.c.owner_id == budgets.c.id,
    sa.or_(budgets.c.period == "", _in_window(owner_days)),
)
_scope = budgets.c.scope
USED: Final = sa.case(
    (_scope == ACCOUNT, _one(_totals.used_nano, _of_account)),
    (
        _scope == FREE,
        _one(
            account_days.c.free_requests,
            account_days.c.account_id == budgets.c.id,
            _in_window(account_days),
        ),
    ),
    (
        sa.and_(_scope == KEY, budgets.c.period == ""),
        _one(_with_own(key_totals), key_totals.c.key_hash == budgets.c.id),
    ),
    (
        _scope == KEY,
        _one(_with_own(key_days), key_days.c.key_hash == budgets.c.id, _in_window(key_days)),
    ),
    (
        sa.and_(_scope == BudgetScope.MEMBER.value, budgets.c.period == ""),
        _one(_with_own(key_totals), key_totals.c.key_hash.in_(_its_keys)),
    ),
    (
        _scope == BudgetScope.MEMBER.value,
        _one(_with_own(key_days), key_days.c.key_hash.in_(_its_keys), _in_window(key_days)),
    ),
    else_=_one(_with_own(owner_days), _of_owner),
)
_held = sa.case(
    (budgets.c.include_byok, reservations.c.with_own_nano), else_=reservations.c.amount_nano
)
RESERVED: Final = sa.case(
    (
        _scope == ACCOUNT,
        _one(reservations.c.amount_nano, reservations.c.account_id == budgets.c.id),
    ),
    (
        _scope == KEY,
        _one(_held, reservations.c.key_hash == budgets.c.id)
        + _one(_held, reservations.c.payer_hash == budgets.c.id),
    ),
    (
        _scope == BudgetScope.WORKSPACE.value,
        _one(_held, reservations.c.workspace_id == budgets.c.id),
    ),
    (
        _scope == BudgetScope.MEMBER.value,
        _one(
            _held,
            sa.or_(
                reservations.c.key_hash.in_(_its_keys), reservations.c.payer_hash.in_(_its_keys)
            ),
        ),
    ),
    else_=0,
)
_same_limit = sa.select(sa.func.max(limits.c.limit_nano)).where(
    limits.c.scope == _scope,
    limits.c.owner_id == budgets.c.id,
    limits.c.limit_nano == budgets.c.limit_nano,
)
LIMIT: Final = sa.case(
    (_scope == ACCOUNT, TOTAL),
    # A window that no limit has any more is without one.
    (sa.or_(_scope == FREE, budgets.c.limit_nano.is_(None)), budgets.c.limit_nano),
    else_=_same_limit.correlate(budgets).scalar_subquery(),
)
LEASED: Final = _one(
    leases.c.granted_nano,
    *(lease == its for lease, its in zip(LEASE_COLUMNS, BUDGET_COLUMNS, strict=True)),
)


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
    people = await people_of(read, reservation.key_hashes)
    found = {(ACCOUNT, reservation.account_id), *((KEY, key) for key in reservation.key_hashes)}
    found |= {(BudgetScope.MEMBER.value, person) for person in people.values()}
    if reservation.workspace_id is not None:
        found.add((BudgetScope.WORKSPACE.value, reservation.workspace_id))
    return sorted(found)


async def people_of(read: Read, key_hashes: Iterable[str]) -> Mapping[str, str]:
    """Return who made some keys: those whose use counts to a person."""
    query = sa.select(api_keys.c.hash, api_keys.c.creator_user_id).where(
        api_keys.c.hash.in_(sorted(set(key_hashes))),
        api_keys.c.creator_user_id.is_not(None),
        api_keys.c.kind != KeyKind.INTERN.value,
    )
    return {row.hash: row.creator_user_id for row in await read.execute(query)}


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
