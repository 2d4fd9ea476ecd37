"""What the books say was used and reserved: one SQL for each, whoever asks.

It is summed up by key, person, workspace or end user from the counters and the reservations. So
admission learns what is left, `budget_rows` what a new row has, and the ledger what each has to be.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa

from tollhouse.accounting.leases import ACCOUNT, FREE, KEY
from tollhouse.accounting.owner import Owner, OwnerUse
from tollhouse.accounting.types import NO_SPEND, BudgetScope, Spend
from tollhouse.identity.types import KeyKind
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
    from collections.abc import Collection, Iterable, Mapping
    from datetime import datetime

    from tollhouse.accounting.owner import OwnerLimit
    from tollhouse.storage.database import Read

    Condition = sa.ColumnElement[bool]

COUNTS_TO_PERSON: Final = api_keys.c.kind != KeyKind.INTERN.value
"""Whose use counts to whoever made it: an intern's counts to the key that answers for it."""


class _Rows(NamedTuple):
    """Rows that count to somebody."""

    table: sa.FromClause
    whose: sa.ColumnElement[str]
    source: sa.FromClause
    """What joins the two."""


def _of_people(table: sa.FromClause) -> _Rows:
    """Return rows of keys as those of the people who made these."""
    made = sa.and_(api_keys.c.hash == table.c.key_hash, COUNTS_TO_PERSON)
    return _Rows(table, api_keys.c.creator_user_id, table.join(api_keys, made))


_SPEND: Final = ("usage_nano", "byok_usage_nano")
_amounts = (reservations.c.amount_nano, reservations.c.with_own_nano)
_reserved_by_keys = sa.union_all(  # one with a payer counts to both
    sa.select(reservations.c.key_hash, *_amounts),
    sa.select(reservations.c.payer_hash, *_amounts),
).subquery("reserved_by_keys")
_owner_days = _Rows(owner_days, owner_days.c.owner_id, owner_days)
_BY_OWNER = {scope.value: _owner_days for scope in (BudgetScope.WORKSPACE, BudgetScope.END_USER)}
_DAYS: Final = {
    KEY: _Rows(key_days, key_days.c.key_hash, key_days),
    BudgetScope.MEMBER.value: _of_people(key_days),
    **_BY_OWNER,
}
_TOTALS: Final = {
    KEY: _Rows(key_totals, key_totals.c.key_hash, key_totals),
    BudgetScope.MEMBER.value: _of_people(key_totals),
    **_BY_OWNER,
}
_RESERVED: Final = {
    ACCOUNT: _Rows(reservations, reservations.c.account_id, reservations),
    KEY: _Rows(_reserved_by_keys, _reserved_by_keys.c.key_hash, _reserved_by_keys),
    BudgetScope.MEMBER.value: _of_people(_reserved_by_keys),
    BudgetScope.WORKSPACE.value: _Rows(reservations, reservations.c.workspace_id, reservations),
}


# Of some of a scope


async def uses_of(
    read: Read, account_id: str, limited: Collection[OwnerLimit], first: date
) -> Mapping[Owner, OwnerUse]:
    """Return what those have used that limits hold for, as far as these ask for it."""
    found: dict[Owner, OwnerUse] = {}
    for scope in {limit.owner.scope for limit in limited}:
        its = [limit for limit in limited if limit.owner.scope is scope]
        whole, ids = any(limit.reset is None for limit in its), {limit.owner.id for limit in its}
        used = await uses(read, scope.value, ids, first, whole=whole, account_id=account_id)
        found |= {Owner(scope, id_): use for id_, use in used.items()}
    return found


async def uses(  # noqa: PLR0913 - each says which
    read: Read,
    scope: str,
    ids: Collection[str],
    first: date,
    *,
    whole: bool,
    account_id: str | None = None,
) -> Mapping[str, OwnerUse]:
    """Return what each of some keys, people, workspaces or end users has used.

    The days go back to `first`; `whole`: over all time, too. Workspaces and end users are those of
    the account.
    """
    # The index of `owner_days` begins with these.
    of_account = owner_days.c.account_id == account_id, owner_days.c.scope == scope
    days = defaultdict[str, dict[date, Spend]](dict)
    totals: Mapping[str, tuple[Spend, datetime | None]] = {}
    rows = _DAYS[scope]
    its = of_account if rows.table is owner_days else ()
    day = rows.table.c.day
    query = _summed(rows, ids, _SPEND, *its, day >= first.isoformat())
    for row in await read.execute(query.add_columns(day).group_by(day)):
        days[row.whose][date.fromisoformat(row.day)] = _spend(row)
    if whole:
        rows = _TOTALS[scope]
        last = (
            sa.func.max(rows.table.c.last_used_at) if "last_used_at" in rows.table.c else sa.null()
        )
        query = _summed(rows, ids, _SPEND, *its).add_columns(last.label("last"))
        totals = {row.whose: (_spend(row), row.last) for row in await read.execute(query)}
    reserved = await _reserved_of(read, scope, ids)
    found: dict[str, OwnerUse] = {}
    for each in ids:
        total, last_used_at = totals.get(each, (NO_SPEND, None))
        held = reserved.get(each, (0, 0))
        found[each] = OwnerUse(total, days.get(each, {}), *held, last_used_at)
    return found


async def _reserved_of(
    read: Read, scope: str, ids: Collection[str]
) -> Mapping[str, tuple[int, int]]:
    """Return what is reserved of some, and that of limits which include own provider keys."""
    if (rows := _RESERVED.get(scope)) is None:
        return {}  # of end users nothing is: a batch has many
    names = [column.name for column in _amounts]
    found = await read.execute(_summed(rows, ids, names))
    # PostgreSQL's sums of whole numbers are decimals.
    return {row.whose: (int(row.amount_nano), int(row.with_own_nano)) for row in found}


def _summed(
    rows: _Rows, ids: Collection[str], names: Iterable[str], *its: Condition
) -> sa.Select[*tuple[Any, ...]]:
    sums = (sa.func.sum(rows.table.c[name]).label(name) for name in names)
    query = sa.select(rows.whose.label("whose"), *sums).select_from(rows.source)
    return query.where(rows.whose.in_(ids), *its).group_by(rows.whose)


def _spend(row: sa.Row[Any]) -> Spend:
    return Spend(int(row.usage_nano), int(row.byok_usage_nano))


# Of a row of `budgets`


def _one(
    amount: sa.ColumnElement[int], source: sa.FromClause, *its: Condition
) -> sa.ColumnElement[int]:
    """Return the sum of an amount over rows of another table that belong to a budget's."""
    total = sa.select(sa.func.coalesce(sa.func.sum(amount), 0)).select_from(source).where(*its)
    return sa.cast(total.correlate(budgets).scalar_subquery(), sa.BigInteger)


def _used(rows: _Rows, *its: Condition) -> sa.ColumnElement[int]:
    columns = rows.table.c
    own = sa.case((budgets.c.include_byok, columns.byok_usage_nano), else_=0)
    if rows.table is owner_days:
        its = (*its, columns.scope == budgets.c.scope)
    return _one(columns.usage_nano + own, rows.source, rows.whose == budgets.c.id, *its)


def _in_window(table: sa.FromClause) -> Condition:
    first, after = (sa.func.substr(budgets.c.period, *part) for part in ((1, 10), (13, 10)))
    return sa.and_(table.c.day >= first, table.c.day < after)


def _reserved(rows: _Rows) -> sa.ColumnElement[int]:
    amount, with_own = (rows.table.c[column.name] for column in _amounts)
    held = sa.case((budgets.c.include_byok, with_own), else_=amount)
    return _one(held, rows.source, rows.whose == budgets.c.id)


_scope, _is_for_ever = budgets.c.scope, budgets.c.period == ""
_of_account = account_totals.c.account_id == budgets.c.id
_free = account_days.c.account_id == budgets.c.id, _in_window(account_days)
TOTAL: Final = _one(
    account_totals.c.purchased_nano
    - account_totals.c.refunded_nano
    + account_totals.c.granted_nano
    + account_totals.c.adjusted_nano,
    account_totals,
    _of_account,
)
"""What a balance's budget is limited to."""
USED: Final = sa.case(
    (_scope == ACCOUNT, _one(account_totals.c.used_nano, account_totals, _of_account)),
    (_scope == FREE, _one(account_days.c.free_requests, account_days, *_free)),
    *(((_scope == scope) & _is_for_ever, _used(rows)) for scope, rows in _TOTALS.items()),
    *((_scope == scope, _used(rows, _in_window(rows.table))) for scope, rows in _DAYS.items()),
)
RESERVED: Final = sa.case(
    *((_scope == scope, _reserved(rows)) for scope, rows in _RESERVED.items()), else_=0
)
_same_limit = sa.select(sa.func.max(limits.c.limit_nano)).where(
    limits.c.scope == _scope,
    limits.c.owner_id == budgets.c.id,
    limits.c.limit_nano == budgets.c.limit_nano,
)
LIMIT: Final = sa.case(
    (_scope == ACCOUNT, TOTAL),
    # A window that no limit has any more is without one.
    ((_scope == FREE) | budgets.c.limit_nano.is_(None), budgets.c.limit_nano),
    else_=_same_limit.correlate(budgets).scalar_subquery(),
)
LEASED: Final = _one(
    leases.c.granted_nano,
    leases,
    *(leases.c[name] == budgets.c[name] for name in ("scope", "id", "period")),
)
DERIVED: Final = {
    "limit_nano": LIMIT,
    "used_nano": USED,
    "reserved_nano": RESERVED,
    "leased_nano": LEASED,
}
"""What each amount of a row has to be."""
