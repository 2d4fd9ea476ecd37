"""The SQL that recomputes the books and returns only what differs, the same on both databases.

Every sum is made by the database: a ledger of millions of rows costs its time and no memory here.
All of it is to be asked in one read transaction, which sees one state of the books.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.accounting.budget_rows import LEASED, LIMIT, RESERVED, USED
from tollhouse.accounting.ledger.types import RECOMPUTED, STORED, LedgerScope
from tollhouse.accounting.types import (
    ADJUSTMENTS,
    CUSTOMER,
    GRANTS,
    PURCHASES,
    REVENUE,
    PostingKind,
)
from tollhouse.kernel.clock import to_millis
from tollhouse.kernel.money import NANO_PER_CREDIT
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    budgets,
    generations,
    key_days,
    key_totals,
    owner_days,
    postings,
    usage_days,
)
from tollhouse.storage.tables.base import Instant
from tollhouse.storage.tables.identity import accounts, api_keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tollhouse.storage.database import Read

    Query = sa.Select[*tuple[Any, ...]]
    Rows = Sequence[Mapping[str, Any]]
    Condition = sa.ColumnElement[bool]

CUSTOMERS: Final = "customers"
"""The accounts of all customers together."""

_NOTHING = sa.literal_column("0", sa.BigInteger)
# A literal, so that SQLite sees that its partial index fits.
_IS_USAGE = postings.c.kind == sa.literal_column("'usage'")
_PLACE = ("account_id", "day", "key_hash", "model", "provider", "workspace_id")

_OWNER = ("account_id", "scope", "owner_id", "day")


@dataclass(frozen=True, slots=True)
class Counters:
    """A table of counters and what its rows have to be."""

    table: sa.Table
    keys: tuple[str, ...]
    stored: Sequence[Condition]
    """Which of its rows belong to the scope."""
    recomputed: Query
    """Its rows, summed anew; columns have the names of the table's."""

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that count."""
        return tuple(each.name for each in self.table.columns if each.name not in self.keys)


def utc_day(dialect: str, table: sa.Table) -> sa.ColumnElement[str]:
    """Return the UTC day of a table's `created_at`, as `YYYY-MM-DD`."""
    millis = f"{table.name}.created_at / 1000.0"
    if dialect == "sqlite":
        return sa.literal_column(f"date({millis}, 'unixepoch')", sa.Text)
    return sa.literal_column(
        f"to_char(to_timestamp({millis}) AT TIME ZONE 'UTC', 'YYYY-MM-DD')", sa.Text
    )


def counters(dialect: str, scope: LedgerScope) -> Iterator[Counters]:
    """Yield every table of counters; those of all time only where the scope is all time."""
    if scope.since is None:
        yield Counters(account_totals, ("account_id",), _of(account_totals, scope), _totals(scope))
        yield Counters(key_totals, ("key_hash",), _of_keys(key_totals, scope), _key_totals(scope))
    day = utc_day(dialect, generations).label("day")
    booked = (
        sa.select(generations, day, sa.func.coalesce(generations.c.provider, "").label("served_by"))
        .where(*_booked(generations, scope))
        .subquery("booked")
    )
    keys = "account_id", "day"
    yield Counters(account_days, keys, _of(account_days, scope), _account_days(booked))
    keys, of_keys = ("key_hash", "day"), _of_both_keys(scope, day)
    yield Counters(key_days, keys, _of_keys(key_days, scope), _key_days(of_keys))
    yield Counters(usage_days, _PLACE, _of(usage_days, scope), _usage_days(booked))
    yield Counters(owner_days, _OWNER, _of(owner_days, scope), _owner_days(booked))


async def different_counters(read: Read, checked: Counters, most: int) -> Rows:
    """Return the rows in which a counter is not what it has to be, each counter twice."""
    stored = sa.select(checked.table).where(*checked.stored).subquery("stored")
    recomputed = checked.recomputed.subquery("recomputed")
    both = sa.union_all(
        sa.select(
            *(stored.c[key] for key in checked.keys),
            *(_plain(stored.c[name]).label(STORED + name) for name in checked.names),
            *(_NOTHING.label(RECOMPUTED + name) for name in checked.names),
        ),
        sa.select(
            *(recomputed.c[key] for key in checked.keys),
            *(_NOTHING.label(STORED + name) for name in checked.names),
            *(_plain(recomputed.c[name]).label(RECOMPUTED + name) for name in checked.names),
        ),
    ).subquery("both")
    sums = {
        side + name: sa.func.sum(both.c[side + name])
        for name in checked.names
        for side in (STORED, RECOMPUTED)
    }
    keys = [both.c[key] for key in checked.keys]
    differ = [sums[STORED + name] != sums[RECOMPUTED + name] for name in checked.names]
    query = (
        sa.select(*keys, *(total.label(name) for name, total in sums.items()))
        .group_by(*keys)
        .having(sa.or_(*differ))
        .order_by(*keys)
    )
    return [
        {name: int(value) if name in sums else value for name, value in row.items()}
        for row in await _rows(read, query, most)
    ]


DERIVED: Final = {
    "limit_nano": LIMIT,
    "used_nano": USED,
    "reserved_nano": RESERVED,
    "leased_nano": LEASED,
}


async def different_budgets(read: Read, most: int) -> Rows:
    """Return the budgets that are not what they are derived from, each amount twice."""
    both = [
        column.label(side + name)
        for name, derived in DERIVED.items()
        for side, column in ((STORED, budgets.c[name]), (RECOMPUTED, derived))
    ]
    differ = [budgets.c[name].is_distinct_from(derived) for name, derived in DERIVED.items()]
    ids = budgets.c.scope, budgets.c.id, budgets.c.period
    return await _rows(read, sa.select(*ids, *both).where(sa.or_(*differ)).order_by(*ids), most)


async def wrong_sides(read: Read, scope: LedgerScope, most: int) -> Rows:
    """Return postings whose kind does not move an amount between their two accounts."""
    customer = sa.literal_column(f"'{CUSTOMER}' || postings.account_id", sa.Text)

    def moved(kind: PostingKind, source: Any, destination: Any) -> Condition:  # noqa: ANN401 - SQL
        return sa.and_(
            postings.c.kind == kind.value,
            postings.c.source == source,
            postings.c.destination == destination,
        )

    right = sa.or_(
        moved(PostingKind.PURCHASE, PURCHASES, customer),
        moved(PostingKind.GRANT, GRANTS, customer),
        moved(PostingKind.REFUND, customer, PURCHASES),
        moved(PostingKind.ADJUSTMENT, ADJUSTMENTS, customer),
        moved(PostingKind.ADJUSTMENT, customer, ADJUSTMENTS),
        moved(PostingKind.USAGE, customer, REVENUE),
    )
    query = sa.select(postings).where(~right, *_booked(postings, scope)).order_by(postings.c.id)
    return await _rows(read, query, most)


async def wrong_charges(read: Read, scope: LedgerScope, most: int) -> Rows:
    """Return generations whose usage posting is missing, or not of what they cost."""
    compared = ("amount_nano", "account_id", "created_at")
    query = (
        sa.select(
            generations.c.id,
            generations.c.cost_nano,
            generations.c.account_id,
            _plain(generations.c.created_at).label("created_at"),
            postings.c.id.label("posting_id"),
            *(_plain(postings.c[name]).label(f"posting_{name}") for name in compared),
        )
        .select_from(
            generations.outerjoin(
                postings, sa.and_(postings.c.generation_id == generations.c.id, _IS_USAGE)
            )
        )
        .where(
            sa.or_(
                sa.and_(postings.c.id.is_(None), generations.c.cost_nano > 0),
                postings.c.amount_nano != generations.c.cost_nano,
                postings.c.account_id != generations.c.account_id,
                postings.c.created_at != generations.c.created_at,
            ),
            *_booked(generations, scope),
        )
        .order_by(generations.c.id)
    )
    return await _rows(read, query, most)


async def several_charges(read: Read, scope: LedgerScope, most: int) -> Rows:
    """Return generations that were charged more than once."""
    found = postings.c.generation_id
    query = (
        sa.select(found.label("id"), sa.func.count().label("count"))
        .where(_IS_USAGE, found.is_not(None), *_booked(postings, scope))
        .group_by(found)
        .having(sa.func.count() > 1)
        .order_by(found)
    )
    return await _rows(read, query, most)


async def lost_generations(read: Read, scope: LedgerScope, most: int) -> Rows:
    """Return postings whose generation is not there, and adjustments of another account's."""
    theirs = sa.exists().where(
        generations.c.id == postings.c.generation_id,
        # A charge of another account has its own name among the wrong charges.
        sa.or_(_IS_USAGE, generations.c.account_id == postings.c.account_id),
    )
    query = (
        sa.select(postings.c.id, postings.c.kind, postings.c.generation_id)
        .where(
            sa.or_(_IS_USAGE, postings.c.generation_id.is_not(None)),
            ~theirs,
            *_booked(postings, scope),
        )
        .order_by(postings.c.id)
    )
    return await _rows(read, query, most)


async def balances(read: Read, scope: LedgerScope) -> dict[str, int]:
    """Return the balance of every account of the ledger; customers are one."""
    found: Counter[str] = Counter()
    for column, sign in ((postings.c.destination, 1), (postings.c.source, -1)):
        name = sa.case((column.startswith(CUSTOMER), CUSTOMERS), else_=column)
        moved = (
            sa.select(name.label("name"), postings.c.amount_nano)
            .where(*_booked(postings, scope))
            .subquery()
        )
        # In two parts: SQLite's sums end at 64 bits, and all accounts together may hold more.
        query = sa.select(
            moved.c.name,
            sa.func.sum(moved.c.amount_nano // NANO_PER_CREDIT).label("whole"),
            sa.func.sum(moved.c.amount_nano % NANO_PER_CREDIT).label("rest"),
        ).group_by(moved.c.name)
        for row in await read.execute(query):
            found[row.name] += sign * (int(row.whole) * NANO_PER_CREDIT + int(row.rest))
    return dict(found)


async def count(read: Read, table: sa.Table, scope: LedgerScope) -> int:
    """Return how many postings or generations the scope has."""
    query = sa.select(sa.func.count()).select_from(table).where(*_booked(table, scope))
    return (await read.execute(query)).scalar_one()


async def accounts_after(read: Read, account_id: str, most: int) -> Sequence[str]:
    """Return the next accounts behind an id, in the order of their ids."""
    query = sa.select(accounts.c.id).where(accounts.c.id > account_id).order_by(accounts.c.id)
    return (await read.execute(query.limit(most))).scalars().all()


async def requests_of(read: Read, account_id: str) -> int:
    """Return how many generations an account's days count."""
    query = sa.select(sa.func.sum(usage_days.c.requests)).where(
        usage_days.c.account_id == account_id
    )
    return int((await read.execute(query)).scalar_one() or 0)


def _totals(scope: LedgerScope) -> Query:
    customer = sa.literal_column(f"'{CUSTOMER}' || postings.account_id", sa.Text)
    amount = postings.c.amount_nano
    gained = sa.case((postings.c.destination == customer, amount), else_=-amount)

    def of(kind: PostingKind, value: sa.ColumnElement[int]) -> sa.ColumnElement[int]:
        return sa.func.sum(sa.case((postings.c.kind == kind.value, value), else_=0))

    return (
        sa.select(
            postings.c.account_id,
            of(PostingKind.PURCHASE, amount).label("purchased_nano"),
            of(PostingKind.GRANT, amount).label("granted_nano"),
            of(PostingKind.USAGE, amount).label("used_nano"),
            of(PostingKind.REFUND, amount).label("refunded_nano"),
            of(PostingKind.ADJUSTMENT, gained).label("adjusted_nano"),
        )
        .where(*_booked(postings, scope))
        .group_by(postings.c.account_id)
    )


def _of_both_keys(scope: LedgerScope, at: sa.ColumnElement[Any]) -> sa.Subquery:
    """Return generations as the counters of keys have them: one with a payer counts for both."""
    costs = ("is_byok", "cost_nano", "provider_cost_nano")
    facts = (at, *(generations.c[name] for name in costs))
    own, payer = (
        sa.select(key.label("key_hash"), *facts).where(*_booked(generations, scope))
        for key in (generations.c.key_hash, generations.c.payer_hash)
    )
    answered_for = payer.where(generations.c.payer_hash.is_not(None))
    return sa.union_all(own, answered_for).subquery("of_keys")


def _key_totals(scope: LedgerScope) -> Query:
    of_keys = _of_both_keys(scope, _plain(generations.c.created_at).label("created_at"))
    return sa.select(
        of_keys.c.key_hash,
        *_spend(of_keys),
        sa.func.max(of_keys.c.created_at).label("last_used_at"),
    ).group_by(of_keys.c.key_hash)


def _account_days(booked: sa.Subquery) -> Query:
    def of(flag: sa.ColumnElement[bool]) -> sa.ColumnElement[int]:
        return sa.func.sum(sa.case((flag, 1), else_=0))

    free, own = booked.c.free_limited, booked.c.is_byok
    counts = of(free).label("free_requests"), of(own).label("byok_requests")
    by = booked.c.account_id, booked.c.day
    return sa.select(*by, *counts).where(sa.or_(free, own)).group_by(*by)


def _key_days(of_keys: sa.Subquery) -> Query:
    return sa.select(
        of_keys.c.key_hash, of_keys.c.day, *_spend(of_keys), sa.func.count().label("requests")
    ).group_by(of_keys.c.key_hash, of_keys.c.day)


def _usage_days(booked: sa.Subquery) -> Query:
    place = [booked.c["served_by" if name == "provider" else name] for name in _PLACE]
    classes = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
    prompt = sum((booked.c[name] for name in classes), booked.c.input_tokens)
    return sa.select(
        *(column.label(name) for name, column in zip(_PLACE, place, strict=True)),
        sa.func.count().label("requests"),
        sa.func.sum(prompt).label("prompt_tokens"),
        sa.func.sum(booked.c.output_tokens).label("completion_tokens"),
        sa.func.sum(booked.c.reasoning_tokens).label("reasoning_tokens"),
        sa.func.sum(booked.c.cache_read_tokens).label("cached_tokens"),
        *_spend(booked),
    ).group_by(*place)


def _owner_days(booked: sa.Subquery) -> Query:
    workspace, user = booked.c.workspace_id, booked.c.external_user
    costs = (booked.c[name] for name in ("is_byok", "cost_nano", "provider_cost_nano"))
    facts = (booked.c.account_id, booked.c.day, *costs)

    def of(scope: str, owner: sa.ColumnElement[str]) -> Query:
        named = sa.literal_column(f"'{scope}'", sa.Text).label("scope")
        return sa.select(named, owner.label("owner_id"), *facts)

    end_users = of("end_user", workspace + sa.literal_column("':'", sa.Text) + user)
    owned = sa.union_all(of("workspace", workspace), end_users.where(user != "")).subquery("owned")
    place = [owned.c[name] for name in _OWNER]
    return sa.select(*place, *_spend(owned)).group_by(*place)


def _spend(booked: sa.FromClause) -> tuple[sa.ColumnElement[int], sa.ColumnElement[int]]:
    """Return the use of credits, and that with own provider keys at their price."""
    own = sa.func.coalesce(booked.c.provider_cost_nano, 0)
    return (
        sa.func.sum(booked.c.cost_nano).label("usage_nano"),
        sa.func.sum(sa.case((booked.c.is_byok, own), else_=0)).label("byok_usage_nano"),
    )


def _booked(table: sa.Table, scope: LedgerScope) -> list[Condition]:
    wanted = _of_accounts(table, scope)
    if scope.since is not None:
        wanted.append(_plain(table.c.created_at) >= to_millis(scope.since))
    return wanted


def _of_accounts(table: sa.Table, scope: LedgerScope) -> list[Condition]:
    return [] if scope.account_ids is None else [table.c.account_id.in_(scope.account_ids)]


def _of(table: sa.Table, scope: LedgerScope) -> list[Condition]:
    return [*_of_accounts(table, scope), *_since(table, scope)]


def _of_keys(table: sa.Table, scope: LedgerScope) -> list[Condition]:
    """Return which counters of keys belong to the scope: of keys that are or were used there."""
    if scope.account_ids is None:
        return _since(table, scope)
    made = sa.select(api_keys.c.hash).where(api_keys.c.account_id.in_(scope.account_ids))
    used = sa.select(generations.c.key_hash).where(*_booked(generations, scope))
    answered_for = sa.select(generations.c.payer_hash).where(
        generations.c.payer_hash.is_not(None), *_booked(generations, scope)
    )
    return [table.c.key_hash.in_(sa.union(made, used, answered_for)), *_since(table, scope)]


def _since(table: sa.Table, scope: LedgerScope) -> list[Condition]:
    return [] if scope.since is None else [table.c.day >= scope.since.date().isoformat()]


def _plain(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return an instant as the number that is stored; every other column as it is."""
    return sa.type_coerce(column, sa.BigInteger) if isinstance(column.type, Instant) else column


async def _rows(read: Read, query: Query, most: int) -> Rows:
    return [dict(row) for row in (await read.execute(query.limit(most))).mappings()]
