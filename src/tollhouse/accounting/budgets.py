"""The rows of budgets, leases and holders, and the transactions of a holder.

A budget's row is made when one of several processes first needs it. From then on it changes in
every transaction that changes what it is derived from: credits, limits, reservations, charges.
Decisions are `leases`'; the SQL is the same on both databases.

    locks       holder, totals, budgets by (scope, id, period), leases
    a new row   is summed up while nobody writes to the table: who has charged before is in the sum,
                who charges later finds the row
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import sqlalchemy as sa

from tollhouse.accounting import leases as decide
from tollhouse.accounting import repository
from tollhouse.accounting.leases import (
    ACCOUNT,
    FREE,
    KEY,
    BudgetId,
    BudgetRow,
    HolderRow,
    Want,
    window_of,
)
from tollhouse.accounting.settlement.booking import budget_changes, budget_charges, owners_of
from tollhouse.accounting.types import Reset
from tollhouse.kernel.clock import to_millis
from tollhouse.storage.database import Database, Read, Write, insert
from tollhouse.storage.notifications import Topic
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    budgets,
    holders,
    key_days,
    key_totals,
    leases,
    limits,
    rates,
    reservations,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tollhouse.accounting.leases import Answer, Ask, Granted, Operation
    from tollhouse.accounting.types import GenerationRecord, Reservation
    from tollhouse.kernel.clock import Clock

_ID = (budgets.c.scope, budgets.c.id, budgets.c.period)
_LEASE = (leases.c.scope, leases.c.id, leases.c.period)
_MILLIS: Final = 1_000
_MINUTE: Final = 60 * _MILLIS
_ALONE: Final = sa.text("LOCK TABLE budgets IN EXCLUSIVE MODE")
"""No weaker: who has locked rows to change them would wait for us, and we for them."""


class MissingRows(Exception):
    """Budgets that have no row yet; nothing of the transaction may be kept."""

    def __init__(self, missing: Collection[BudgetId]) -> None:
        super().__init__(f"{len(missing)} budgets have no row")
        self.missing = missing


def account_budget(account_id: str) -> BudgetId:
    """Return the budget that an account's balance is."""
    return BudgetId(ACCOUNT, account_id)


def key_budget(key_hash: str, reset: Reset | None, day: date) -> BudgetId:
    """Return the budget of a key's limit on a UTC day."""
    return BudgetId(KEY, key_hash, window_of(reset, day))


def free_budget(account_id: str, day: date) -> BudgetId:
    """Return the budget of an account's requests to free models on a UTC day."""
    return BudgetId(FREE, account_id, window_of(Reset.DAILY, day))


# Rows follow what they are derived from


async def make_rows(write: Write, wanted: Iterable[BudgetId]) -> None:
    """Make the rows that are missing, in a transaction that has locked nothing else."""
    await _alone(write)
    for budget in sorted(wanted):
        scope, id_, period = budget
        row = insert(write, budgets).values(scope=scope, id=id_, period=period)
        if (await write.execute(row.on_conflict_do_nothing())).rowcount:
            await _derive(write, budget)


async def _alone(write: Write) -> None:
    if write.dialect == "postgresql":
        await write.execute(_ALONE)


async def _derive(write: Write, budget: BudgetId) -> None:
    """Give a row what it has to be."""
    if budget.scope == KEY:
        query = sa.select(limits).where(limits.c.scope == KEY, limits.c.owner_id == budget.id)
        row = (await write.execute(query)).one_or_none()
        reset = None if row is None or row.reset_interval is None else Reset(row.reset_interval)
        its_window = row is not None and is_window_of(reset, budget)
        limit = row.limit_nano if row is not None and its_window else None
        with_own = row is not None and row.include_byok
        await _update(write, budget, limit_nano=limit, include_byok=with_own)
    elif budget.scope == ACCOUNT:
        await _update(write, budget, limit_nano=TOTAL)
    await _update(write, budget, used_nano=USED, reserved_nano=RESERVED)


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
USED: Final = sa.case(
    (budgets.c.scope == ACCOUNT, _one(_totals.used_nano, _of_account)),
    (
        budgets.c.scope == FREE,
        _one(
            account_days.c.free_requests,
            account_days.c.account_id == budgets.c.id,
            _in_window(account_days),
        ),
    ),
    (budgets.c.period == "", _one(_with_own(key_totals), key_totals.c.key_hash == budgets.c.id)),
    else_=_one(_with_own(key_days), key_days.c.key_hash == budgets.c.id, _in_window(key_days)),
)
_held = sa.case(
    (budgets.c.include_byok, reservations.c.with_own_nano), else_=reservations.c.amount_nano
)
RESERVED: Final = sa.case(
    (
        budgets.c.scope == ACCOUNT,
        _one(reservations.c.amount_nano, reservations.c.account_id == budgets.c.id),
    ),
    else_=_one(_held, reservations.c.key_hash == budgets.c.id)
    + _one(_held, reservations.c.payer_hash == budgets.c.id),
)
_limit_of_key = sa.select(limits.c.limit_nano).where(
    limits.c.scope == KEY, limits.c.owner_id == budgets.c.id
)
LIMIT: Final = sa.case(
    (budgets.c.scope == ACCOUNT, TOTAL),
    # A window that the limit does not have any more is without one.
    (
        sa.and_(budgets.c.scope == KEY, budgets.c.limit_nano.is_not(None)),
        _limit_of_key.correlate(budgets).scalar_subquery(),
    ),
    else_=budgets.c.limit_nano,
)
LEASED: Final = _one(
    leases.c.granted_nano, *(lease == its for lease, its in zip(_LEASE, _ID, strict=True))
)


async def credits_changed(write: Write, account_id: str, by_nano: int) -> None:
    """Let a balance's budget follow what came into an account, or left it."""
    await _change(write, ACCOUNT, account_id, limit_nano=budgets.c.limit_nano + by_nano)


async def limit_changed(write: Write, key_hash: str) -> None:
    """Let a key's budgets follow its limit; call it before other budgets are locked."""
    await _alone(write)
    query = sa.select(*_ID).where(budgets.c.scope == KEY, budgets.c.id == key_hash)
    for row in (await write.execute(query)).all():
        await _derive(write, _id(row))


async def reserved_changed(
    write: Write, reservation: Reservation, by_nano: int, with_own_by_nano: int
) -> None:
    """Let budgets follow what is set aside: of the account, of the key and of its payer."""
    if not (by_nano or with_own_by_nano):
        return
    reserved = budgets.c.reserved_nano
    of_key = reserved + sa.case((budgets.c.include_byok, with_own_by_nano), else_=by_nano)
    await _change(write, ACCOUNT, reservation.account_id, reserved_nano=reserved + by_nano)
    for each in sorted({reservation.key_hash, reservation.payer_hash or reservation.key_hash}):
        await _change(write, KEY, each, reserved_nano=of_key)


async def set_aside(write: Write, reservation: Reservation) -> bool:
    """Store credits that are set aside, and let budgets follow.

    Returns false where processes have too much of these for it: nothing of it may be kept then.
    """
    await repository.add_reservation(write, reservation)
    await reserved_changed(write, reservation, reservation.amount_nano, reservation.with_own_nano)
    owners = [(KEY, key) for key in (reservation.key_hash, reservation.payer_hash) if key]
    today = reservation.created_at.date().isoformat()
    mine = sa.tuple_(budgets.c.scope, budgets.c.id).in_(
        [(ACCOUNT, reservation.account_id), *owners]
    )
    rows = await _locked(write, mine)
    if not reservation.amount_nano:
        return True
    return all(row.room >= 0 for budget, row in rows.items() if budget.covers(today))


async def charged(write: Write, records: Sequence[GenerationRecord]) -> None:
    """Let budgets follow charges that were booked just now in the same transaction."""
    charges = budget_charges(records)
    mine = sa.tuple_(budgets.c.scope, budgets.c.id).in_(owners_of(charges))
    rows = await _locked(write, mine)
    for change in budget_changes(charges, rows, ()):
        await _update(write, BudgetId(*change[2:]), used_nano=budgets.c.used_nano + change.used)


def _id(row: sa.Row[Any]) -> BudgetId:
    return BudgetId(row.scope, row.id, row.period)


async def _change(write: Write, scope: str, id_: str, **values: object) -> None:
    mine = budgets.c.scope == scope, budgets.c.id == id_
    await write.execute(sa.update(budgets).where(*mine).values(**values))


async def _update(write: Write, budget: BudgetId, **values: object) -> None:
    its = [column == value for column, value in zip(_ID, budget, strict=True)]
    await write.execute(sa.update(budgets).where(*its).values(**values))


async def _locked(write: Write, which: sa.ColumnElement[bool]) -> dict[BudgetId, BudgetRow]:
    query = sa.select(budgets).where(which).order_by(*_ID).with_for_update()
    return {_id(row): _row(row) for row in await write.execute(query)}


def _row(row: sa.Row[Any]) -> BudgetRow:
    return BudgetRow(
        row.limit_nano,
        row.used_nano,
        row.reserved_nano,
        row.leased_nano,
        include_byok=row.include_byok,
    )


# A holder's transactions


@dataclass(frozen=True, slots=True)
class Asking:
    """What a process says beside its operation."""

    holder: str
    machine: str
    want_seconds: float
    """How long a want lasts unless it is said again."""
    reservations: Mapping[str, Reservation]
    """By the id of the ask."""
    given: Mapping[BudgetId, int]
    """Limits that are not in the database, but in the settings."""


async def operate(write: Write, operation: Operation, asking: Asking, clock: Clock) -> Answer:
    """Run an operation in a transaction of its own, and return the answer.

    Raises:
        MissingRows: Make them, and run it again.
    """
    if operation.name == "register":
        facts = {"machine": asking.machine, "live": True, "started_at": to_millis(clock.now())}
        added = insert(write, holders).values(id=asking.holder, booked_seq=0, **facts)
        await write.execute(added.on_conflict_do_nothing())
    mine = await _holder(write, asking.holder, clock)
    standing = decide.standing(mine.row, operation)
    if standing is not decide.Standing.MINE:
        return standing
    if operation.name in {"register", "poll"}:
        return decide.Polled(await _recalled(write, asking.holder, mine.now))
    raised = sa.update(holders).where(holders.c.id == asking.holder)
    await write.execute(raised.values(op=holders.c.op + 1))
    if operation.name == "fence":
        its = sa.select(leases).where(leases.c.holder == asking.holder)
        granted = {_id(row): row.granted_nano for row in await write.execute(its)}
        return decide.Fenced(mine.row.op + 1, mine.row.booked_seq, granted)
    ids = {budget for ask in operation.asks for budget in ask.amounts}
    rows = await _locked(write, sa.tuple_(*_ID).in_(sorted({*operation.returned, *ids})))
    if missing := ids.difference(rows):
        raise MissingRows(missing)
    for budget, amount in operation.returned.items():
        rows[budget].leased -= amount
        mine.changes[budget].granted -= amount
    answer: Answer = standing
    if operation.name == "grant":
        asked = {budget: rows[budget] for budget in ids}
        answer = await _grant(write, operation, asking, asked, mine)
    await _write(write, asking, mine)
    return answer


@dataclass(slots=True)
class _Change:
    """What changes of a budget and of the own lease of it."""

    granted: int = 0
    want: Want | None = None


class _Holder(NamedTuple):
    row: HolderRow
    live: int
    """How many holders are."""
    now: float
    """The database's time, which is this machine's for a file."""
    changes: defaultdict[BudgetId, _Change]


async def _holder(write: Write, holder: str, clock: Clock) -> _Holder:
    others = holders.alias()
    live = sa.select(sa.func.count()).select_from(others).where(others.c.live)
    now = _now(write, clock).label("now")
    query = sa.select(holders, live.scalar_subquery().label("alive"), now)
    mine = query.where(holders.c.id == holder).with_for_update(of=holders)
    row = (await write.execute(mine)).one()
    found = HolderRow(row.live, row.epoch, row.op, row.booked_seq)
    return _Holder(found, max(1, row.alive), row.now / _MILLIS, defaultdict(_Change))


def _now(read: Read, clock: Clock) -> sa.ColumnElement[int]:
    """Return the database's time in milliseconds, which is this machine's for a file."""
    if read.dialect == "sqlite":
        return sa.literal(to_millis(clock.now()), sa.BigInteger)
    return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()) * _MILLIS, sa.BigInteger)


async def _grant(
    write: Write,
    operation: Operation,
    asking: Asking,
    rows: Mapping[BudgetId, BudgetRow],
    mine: _Holder,
) -> Granted:
    for budget, limit in asking.given.items():
        if budget in rows and rows[budget].limit != limit:
            rows[budget].limit = limit
            await _update(write, budget, limit_nano=limit)
    own = await _look_at_leases(write, asking.holder, mine.now, rows)
    before = await _reserved(write, operation.asks)
    asks = [ask for ask in operation.asks if ask.id not in before]
    done = decide.grant(rows, operation._replace(asks=asks), mine.live, mine.now)
    for ask in asks:
        if ask.reserves and ask.id in done.fit:
            await set_aside(write, asking.reservations[ask.id])
    done.fit.extend(before)
    for budget in rows:
        got, want = done.got.get(budget, 0), done.wants.get(budget)
        if want:
            write.notify(Topic.LEASE, " ".join((asking.holder, *budget)))
        if got or want or own.get(budget):
            mine.changes[budget].granted += got
            mine.changes[budget].want = want
    return done


async def _write(write: Write, asking: Asking, mine: _Holder) -> None:
    """Change budgets and the own leases of them."""
    until = int((mine.now + asking.want_seconds) * _MILLIS)
    for budget, change in sorted(mine.changes.items()):
        if change.granted:
            by = budgets.c.leased_nano + change.granted
            await _update(write, budget, leased_nano=by)
        wanted, since = (0, 0) if change.want is None else change.want
        wants = {
            "wanted_nano": wanted,
            "wanted_since": int(since * _MILLIS),
            "wanted_until": until,
        }
        facts = dict(zip(("scope", "id", "period"), budget, strict=True))
        lease = insert(write, leases).values(
            holder=asking.holder, granted_nano=change.granted, **facts, **wants
        )
        await write.execute(
            lease.on_conflict_do_update(
                index_elements=["holder", *facts],
                set_={"granted_nano": leases.c.granted_nano + change.granted, **wants},
            )
        )


async def _recalled(read: Read, holder: str, now: float) -> Collection[BudgetId]:
    """Return those of a holder's rows whose idle rights go back."""
    both = budgets.join(leases, sa.and_(*(b == c for b, c in zip(_ID, _LEASE, strict=True))))
    query = sa.select(budgets).select_from(both)
    query = query.where(leases.c.holder == holder, leases.c.granted_nano > 0)
    rows = {_id(row): _row(row) for row in await read.execute(query)}
    if rows:
        await _look_at_leases(read, holder, now, rows)
    return [budget for budget, row in rows.items() if row.recalled]


async def _look_at_leases(
    read: Read, holder: str, now: float, rows: Mapping[BudgetId, BudgetRow]
) -> Mapping[BudgetId, bool]:
    """Give rows what other live holders lack of them; return whether there is an own want."""
    query = (
        sa.select(leases)
        .select_from(leases.join(holders, holders.c.id == leases.c.holder))
        .where(
            sa.tuple_(*_LEASE).in_(sorted(rows)),
            leases.c.wanted_nano > 0,
            sa.or_(leases.c.holder == holder, holders.c.live),
        )
    )
    own: dict[BudgetId, bool] = {}
    for row in await read.execute(query):
        if row.holder == holder:
            own[_id(row)] = True
        elif row.wanted_until >= int(now * _MILLIS):
            found = rows[_id(row)]
            found.wants = [*found.wants, Want(row.wanted_nano, row.wanted_since / _MILLIS)]
    return own


async def _reserved(read: Read, asks: Iterable[Ask]) -> Collection[str]:
    """Return which batches have what they ask for: an answer was lost."""
    ids = [ask.id for ask in asks if ask.reserves]
    if not ids:
        return ()
    query = sa.select(reservations.c.id).where(reservations.c.id.in_(ids))
    return [*(await read.execute(query)).scalars()]


async def take_token(
    write: Write, account_id: str, model: str, per_minute: int, clock: Clock
) -> float:
    """Count a request towards a limit of a minute; return 0, or in how many seconds it may come."""
    row = insert(write, rates).values(account_id=account_id, model=model, taken="")
    await write.execute(row.on_conflict_do_nothing())
    its = rates.c.account_id == account_id, rates.c.model == model
    now = _now(write, clock).label("now")
    found = (await write.execute(sa.select(rates, now).where(*its).with_for_update())).one()
    taken = [at for at in map(int, found.taken.split()) if at > found.now - _MINUTE]
    if len(taken) >= per_minute:
        return (taken[len(taken) - per_minute] + _MINUTE - found.now) / _MILLIS
    text = " ".join(map(str, (*taken, found.now)))
    await write.execute(sa.update(rates).where(*its).values(taken=text))
    return 0.0


async def spend_alone(database: Database) -> None:
    """Forget every row and lease: from now on one process spends alone."""
    async with database.reading() as read:
        if (await read.execute(sa.select(budgets.c.scope).limit(1))).first() is None:
            return
    async with database.writing() as write:
        await write.execute(sa.delete(leases))
        await write.execute(sa.delete(budgets))
        await write.execute(sa.update(holders).values(live=False))
