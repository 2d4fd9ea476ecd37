"""What the books say was used and reserved: one SQL for each, whoever asks.

It is summed up by key, person, workspace or end user from the counters and the reservations. So
admission learns what is left, `budget_rows` what a new row has, and the ledger what each has to be.
"""

from __future__ import annotations

from collections import Counter, defaultdict
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

    table: sa.Table
    whose: sa.ColumnElement[str]
    source: sa.FromClause
    """What joins the two."""


def _of(whose: sa.Column[str]) -> _Rows:
    """Return rows that name whom they count to."""
    return _Rows(whose.table, whose, whose.table)


def _of_maker(key: sa.Column[str]) -> _Rows:
    """Return rows of keys as those of the people who made these."""
    made = key.table.join(api_keys, sa.and_(api_keys.c.hash == key, COUNTS_TO_PERSON))
    return _Rows(key.table, api_keys.c.creator_user_id, made)


_MEMBER, _WORKSPACE = BudgetScope.MEMBER.value, BudgetScope.WORKSPACE.value
_BY_OWNER = dict.fromkeys((_WORKSPACE, BudgetScope.END_USER.value), _of(owner_days.c.owner_id))
_DAYS: Final = {
    KEY: _of(key_days.c.key_hash),
    _MEMBER: _of_maker(key_days.c.key_hash),
    **_BY_OWNER,
}
_TOTALS: Final = {
    KEY: _of(key_totals.c.key_hash),
    _MEMBER: _of_maker(key_totals.c.key_hash),
    **_BY_OWNER,
}
_KEYS = reservations.c.key_hash, reservations.c.payer_hash
_RESERVED: Final = {
    ACCOUNT: [_of(reservations.c.account_id)],
    KEY: [*map(_of, _KEYS)],
    _MEMBER: [*map(_of_maker, _KEYS)],
    _WORKSPACE: [_of(reservations.c.workspace_id)],
}
"""Of end users nothing is reserved: a batch has many."""
_SPEND: Final = ("usage_nano", "byok_usage_nano")
_HELD: Final = ("amount_nano", "with_own_nano")


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
        is_of_keys = rows.table is key_totals
        last = sa.func.max(key_totals.c.last_used_at) if is_of_keys else sa.null()
        query = _summed(rows, ids, _SPEND, *its).add_columns(last.label("last"))
        totals = {row.whose: (_spend(row), row.last) for row in await read.execute(query)}
    held: Counter[str] = Counter()
    with_own: Counter[str] = Counter()
    for each in _RESERVED.get(scope, ()):
        for row in await read.execute(_summed(each, ids, _HELD)):
            held[row.whose] += int(row.amount_nano)
            with_own[row.whose] += int(row.with_own_nano)
    found: dict[str, OwnerUse] = {}
    for id_ in ids:
        total, last_used_at = totals.get(id_, (NO_SPEND, None))
        found[id_] = OwnerUse(total, days[id_], held[id_], with_own[id_], last_used_at)
    return found


def _summed(
    rows: _Rows, ids: Collection[str], names: Iterable[str], *its: Condition
) -> sa.Select[*tuple[Any, ...]]:
    sums = (sa.func.sum(rows.table.c[name]).label(name) for name in names)
    query = sa.select(rows.whose.label("whose"), *sums).select_from(rows.source)
    return query.where(rows.whose.in_(ids), *its).group_by(rows.whose)


def _spend(row: sa.Row[Any]) -> Spend:
    # PostgreSQL's sums of whole numbers are decimals.
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
    held = sa.case(
        (budgets.c.include_byok, rows.table.c.with_own_nano), else_=rows.table.c.amount_nano
    )
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
    *((_scope == scope, sum(map(_reserved, every))) for scope, every in _RESERVED.items()),
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
