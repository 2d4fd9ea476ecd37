"""A group of charges in the database: its rows, and the totals that they raise.

Rows are tuples in the order of the columns below. SQLite takes them one by one, PostgreSQL those of
a table as one JSON argument. Neither goes through SQLAlchemy: its cost of a write transaction is
ten times that of the statements themselves, and this is the one write on the way of every request.
All take the statements and their rows in one order, so that none waits for another in a circle.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from tollhouse.accounting.leases import ACCOUNT, FREE, KEY, BudgetId, Charge, settle
from tollhouse.accounting.types import CUSTOMER, REVENUE, BudgetScope, GenerationRecord, PostingKind

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import date

    from tollhouse.accounting.leases import BudgetRow

Row = tuple[str | int | None, ...]
_PLACE: Final = ("account_id", "day", "key_hash", "model", "provider", "workspace_id")
_COUNTERS: Final = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "cached_tokens",
    "usage_nano",
    "byok_usage_nano",
)


END_USER: Final = BudgetScope.END_USER.value
MEMBER: Final = BudgetScope.MEMBER.value
WORKSPACE: Final = BudgetScope.WORKSPACE.value


class Unbookable(Exception):
    """A charge that no database state would take: a foreign account, a number out of range."""


@dataclass(frozen=True, slots=True)
class Booking:
    """Rows to add and totals to raise: a field is called like its table, in the locks' order."""

    postings: Sequence[Row]
    account_totals: Sequence[Row]
    account_days: Sequence[Row]
    key_totals: Sequence[Row]
    key_days: Sequence[Row]
    usage_days: Sequence[Row]
    owner_days: Sequence[Row]

    def changes(self) -> Iterator[tuple[str, Sequence[Row]]]:
        """Yield each table that changes, with its rows."""
        for each in fields(self):
            if rows := getattr(self, each.name):
                yield each.name, rows


def generation_row(record: GenerationRecord) -> Row:
    """Return the row of `generations` of a record: all of it but the rights that it uses up."""
    return msgspec.structs.astuple(record)[:-1]


def budget_charges(
    records: Sequence[GenerationRecord], people: Mapping[str, str]
) -> Sequence[Charge]:
    """Return what records say of budgets; `people` made those keys whose use counts to them."""
    return [_budget_charge(record, seq, people) for seq, record in enumerate(records, 1)]


def _budget_charge(record: GenerationRecord, seq: int, people: Mapping[str, str]) -> Charge:
    spend = record.spend
    cost = spend.usage_nano, spend.byok_usage_nano
    owners = {
        (ACCOUNT, record.account_id): (record.cost_nano, 0),
        (WORKSPACE, record.workspace_id): cost,
    }
    if (end_user := _end_user_of(record)) is not None:
        owners[END_USER, end_user] = cost
    for key_hash in record.key_hashes:
        owners[KEY, key_hash] = cost
        if (person := people.get(key_hash)) is not None:
            had = owners.get((MEMBER, person), (0, 0))
            owners[MEMBER, person] = had[0] + cost[0], had[1] + cost[1]
    if record.free_limited:
        owners[FREE, record.account_id] = 1, 0
    rights = [(BudgetId(*right[:3]), right.nano) for right in record.rights]
    return Charge(seq, owners, record.utc_day.isoformat(), rights)


def _end_user_of(record: GenerationRecord) -> str | None:
    """Return the id of the end user whom a request named; see `owner.end_user`."""
    user = record.external_user
    return f"{record.workspace_id}:{user}" if user else None


def owners_of(charges: Sequence[Charge]) -> Sequence[tuple[str, str]]:
    """Return scope and id of everything that charges count towards."""
    return sorted({owner for charge in charges for owner in charge.owners})


class BudgetChange(NamedTuple):
    """What charges change of a budget that has a row."""

    used: int
    right: int
    """What `leased` and the lease lose."""
    scope: str
    id: str
    window: str


def budget_changes(
    charges: Sequence[Charge],
    rows: Mapping[BudgetId, BudgetRow],
    leases: Collection[BudgetId],
) -> Sequence[BudgetChange]:
    """Return what charges change that were booked just now, in the order of the locks."""
    settled = settle(0, charges, rows, leases)
    used, rights = settled.used, settled.rights
    return [
        BudgetChange(used.get(each, 0), rights.get(each, 0), *each)
        for each in sorted({*used, *rights})
    ]


def added(
    records: Sequence[GenerationRecord], new_ids: Collection[str]
) -> Sequence[GenerationRecord]:
    """Return those of a group whose row of `generations` was added just now.

    Of those with one id that is the first.
    """
    first = {record.id: record for record in reversed(records)}
    return [record for record in reversed(first.values()) if record.id in new_ids]


def booking(fresh: Sequence[GenerationRecord]) -> Booking:
    """Return what generations change that were added just now.

    Rows of totals are sorted, so that two writers lock them in one order.
    """
    totals = _Totals()
    postings: list[Row] = []
    for record in fresh:
        totals.count(record)
        if record.cost_nano:
            postings.append(_posting(record))
    return Booking(
        postings=postings,
        account_totals=[(account, used) for account, used in sorted(totals.accounts.items())],
        account_days=[
            (*place, totals.free[place], totals.own[place])
            for place in sorted({*totals.free, *totals.own})
        ],
        key_totals=_key_totals(totals.keys),
        key_days=[(*place, *counts[:3]) for place, counts in sorted(totals.keys.items())],
        usage_days=[(*place, *counts) for place, counts in sorted(totals.usage.items())],
        owner_days=[(*place, *spend) for place, spend in sorted(totals.owners.items())],
    )


class _Totals:
    """Sums of a group; written out step by step, since every charge goes through it."""

    def __init__(self) -> None:
        self.accounts = Counter[str]()
        self.free = Counter[tuple[str, str]]()
        self.own = Counter[tuple[str, str]]()
        """Requests that own provider keys served."""
        self.keys: dict[tuple[str, str], list[int]] = {}
        """By key and day: use, use with an own provider key, requests, when it was used last."""
        self.usage: dict[tuple[str, ...], list[int]] = {}
        self.owners: dict[tuple[str, str, str, str], list[int]] = {}
        """By account, scope, owner and day: use, and that with own provider keys."""
        self._days: dict[date, str] = {}

    def count(self, record: GenerationRecord) -> None:
        account, key, cost = record.account_id, record.key_hash, record.cost_nano
        used, own = cost, 0
        day = self._day(record.utc_day)
        if cost:
            self.accounts[account] += cost
        if record.free_limited:
            self.free[account, day] += 1
        if record.is_byok:
            self.own[account, day] += 1
            own = record.provider_cost_nano or 0
        self._count_key(key, day, used, own, record.created_ms)
        if record.payer_hash is not None:
            self._count_key(record.payer_hash, day, used, own, record.created_ms)
        workspace = record.workspace_id
        self._count_owner((account, WORKSPACE, workspace, day), used, own)
        if (end_user := _end_user_of(record)) is not None:
            self._count_owner((account, END_USER, end_user, day), used, own)
        place = (account, day, key, record.model, record.provider or "", workspace)
        counts = self.usage.get(place)
        if counts is None:
            counts = self.usage[place] = [0] * len(_COUNTERS)
        prompt = (
            record.input_tokens
            + record.cache_read_tokens
            + record.cache_write_tokens
            + record.cache_write_1h_tokens
        )
        counts[0] += 1
        counts[1] += prompt
        counts[2] += record.output_tokens
        counts[3] += record.reasoning_tokens
        counts[4] += record.cache_read_tokens
        counts[5] += used
        counts[6] += own

    def _count_key(self, key: str, day: str, used: int, own: int, at_ms: int) -> None:
        counts = self.keys.get((key, day))
        if counts is None:
            counts = self.keys[key, day] = [0, 0, 0, at_ms]
        counts[0] += used
        counts[1] += own
        counts[2] += 1
        counts[3] = max(counts[3], at_ms)

    def _count_owner(self, place: tuple[str, str, str, str], used: int, own: int) -> None:
        counts = self.owners.get(place)
        if counts is None:
            counts = self.owners[place] = [0, 0]
        counts[0] += used
        counts[1] += own

    def _day(self, day: date) -> str:
        text = self._days.get(day)
        if text is None:
            text = self._days[day] = day.isoformat()
        return text


def _key_totals(days: dict[tuple[str, str], list[int]]) -> Sequence[Row]:
    totals: dict[str, tuple[int, int, int]] = {}
    for (key, _), (used, own, _, at_ms) in days.items():
        found = totals.get(key, (0, 0, at_ms))
        totals[key] = (found[0] + used, found[1] + own, max(found[2], at_ms))
    return [(key, *counts) for key, counts in sorted(totals.items())]


def _posting(record: GenerationRecord) -> Row:
    return (
        f"usage-{record.id}",
        record.account_id,
        PostingKind.USAGE.value,
        CUSTOMER + record.account_id,
        REVENUE,
        record.cost_nano,
        record.id,
        record.created_ms,
    )


# The statements


class RaisedTotals(NamedTuple):
    """A table whose rows are raised by those of a booking."""

    keys: tuple[str, ...]
    counters: tuple[str, ...]
    latest: tuple[str, ...] = ()
    """Columns that keep the larger value."""
    zeros: tuple[str, ...] = ()
    """Columns that are 0 in a new row."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Those of a row."""
        return (*self.keys, *self.counters, *self.latest)

    def raising(self, table: str, source: str, larger: str) -> str:
        """Return the statement that takes rows from a source; `larger` is a function in SQL."""
        changes = [f"{name} = {table}.{name} + excluded.{name}" for name in self.counters]
        changes += [f"{name} = {larger}({table}.{name}, excluded.{name})" for name in self.latest]
        into = adding(table, (*self.columns, *self.zeros), source)
        return f"{into} ON CONFLICT ({', '.join(self.keys)}) DO UPDATE SET {', '.join(changes)}"


TOTALS: Final = {
    "account_totals": RaisedTotals(
        ("account_id",), ("used_nano",), zeros=("purchased_nano", "granted_nano")
    ),
    "account_days": RaisedTotals(("account_id", "day"), ("free_requests", "byok_requests")),
    "key_totals": RaisedTotals(("key_hash",), ("usage_nano", "byok_usage_nano"), ("last_used_at",)),
    "key_days": RaisedTotals(("key_hash", "day"), ("usage_nano", "byok_usage_nano", "requests")),
    "usage_days": RaisedTotals(_PLACE, _COUNTERS),
    "owner_days": RaisedTotals(
        ("account_id", "scope", "owner_id", "day"), ("usage_nano", "byok_usage_nano")
    ),
}
_NAMES: Final = {"attempts_json": "attempts", "created_ms": "created_at"}
GENERATION: Final = tuple(
    _NAMES.get(name, name) for name in GenerationRecord.__struct_fields__[:-1]
)
"""The columns of `generations`, in the order of a row."""
POSTING: Final = (
    *("id", "account_id", "kind", "source", "destination", "amount_nano", "generation_id"),
    "created_at",
)
ONCE: Final = "ON CONFLICT (id) DO NOTHING"


def raising_booked(holder: str, last: str, larger: str) -> str:
    """Return the statement that notes up to which number a holder's charges are booked.

    It is part of their transaction: so who reads the number knows which charges are in what it
    reads beside it, and who reads after an answer was lost knows what was done.
    """
    return (
        f"INSERT INTO holders (id, booked_seq) VALUES ({holder}, {last}) ON CONFLICT (id) "  # noqa: S608
        f"DO UPDATE SET booked_seq = {larger}(holders.booked_seq, excluded.booked_seq)"
    )


LEASES_OF: Final = "SELECT scope, id, period FROM leases WHERE holder = ?"
CHANGE_BUDGET: Final = (
    "UPDATE budgets SET used_nano = used_nano + ?, leased_nano = leased_nano - ? "
    "WHERE scope = ? AND id = ? AND period = ?"
)
"""For a `BudgetChange`."""
CHANGE_LEASE: Final = (
    "UPDATE leases SET granted_nano = granted_nano - ? "
    "WHERE holder = ? AND scope = ? AND id = ? AND period = ?"
)


def makers_of(keys: str) -> str:
    """Return the statement that says who made keys, a condition on their hashes.

    What an intern's key uses counts to the key that answers for it.
    """
    return (
        f"SELECT hash, creator_user_id FROM api_keys WHERE {keys} "  # noqa: S608
        "AND creator_user_id IS NOT NULL AND kind <> 'intern'"
    )


def releasing(holder: str) -> Sequence[str]:
    """Return the statements that release a holder, in the locks' order; each takes its id alone."""
    its = (
        f"FROM leases WHERE holder = {holder} AND leases.scope = budgets.scope "
        "AND leases.id = budgets.id AND leases.period = budgets.period"
    )
    where = f"WHERE EXISTS (SELECT 1 {its})"
    return (
        f"INSERT INTO holders (id, booked_seq) VALUES ({holder}, 0) {ONCE}",  # noqa: S608
        f"UPDATE holders SET live = false, epoch = epoch + 1 WHERE id = {holder}",  # noqa: S608
        f"UPDATE budgets SET leased_nano = leased_nano - (SELECT granted_nano {its}) {where}",  # noqa: S608
        f"DELETE FROM leases WHERE holder = {holder}",  # noqa: S608
    )


def adding(table: str, columns: Sequence[str], source: str) -> str:
    """Return the statement that adds rows from a source."""
    # By name: a column that a later release has added gets its default, and not NULL.
    return f"INSERT INTO {table} ({', '.join(columns)}) {source}"
