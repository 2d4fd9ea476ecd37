"""The transactions of the processes that spend budgets together: what each was granted.

Decisions are `leases`'; the SQL is the same on both databases. Locks in this order: holder, totals,
budgets by (scope, id, period), leases.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from tollhouse.accounting import leases as decide
from tollhouse.accounting.budget_rows import (
    BUDGET_COLUMNS,
    KEPT,
    LEASE_COLUMNS,
    SOON,
    budget_id,
    budget_row,
    locked_rows,
    reserved_of,
    set_aside,
    update_row,
)
from tollhouse.accounting.leases import ACCOUNT, BudgetRow, HolderRow, Want
from tollhouse.accounting.limits import BudgetId
from tollhouse.kernel.clock import from_millis, to_millis
from tollhouse.storage.database import Database, Read, Write, insert
from tollhouse.storage.notifications import Topic
from tollhouse.storage.tables.accounting import budgets, holders, leases, rates, reservations

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from tollhouse.accounting.leases import Answer, Granted, Operation
    from tollhouse.accounting.types import Reservation
    from tollhouse.kernel.clock import Clock

_NAMES = ("scope", "id", "period")
_MILLIS: Final = 1_000
_MINUTE: Final = 60 * _MILLIS


class MissingRows(Exception):
    """Budgets that have no row yet; nothing of the transaction may be kept."""

    def __init__(self, missing: Collection[BudgetId]) -> None:
        super().__init__(f"{len(missing)} budgets have no row")
        self.missing = missing


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
        await _register(write, asking, clock)
    mine, live, now = await _holder(write, asking.holder, clock)
    standing = decide.standing(mine, operation)
    if standing is not decide.Standing.MINE:
        return standing
    if operation.name in {"register", "poll"}:
        return decide.Polled(await _recalled(write, asking.holder, now))
    raised = sa.update(holders).where(holders.c.id == asking.holder)
    await write.execute(raised.values(op=holders.c.op + 1))
    if operation.name == "fence":
        own = sa.select(leases).where(leases.c.holder == asking.holder)
        granted = {budget_id(row): row.granted_nano for row in await write.execute(own)}
        return decide.Fenced(mine.op + 1, mine.booked_seq, granted)
    asked = {budget for ask in operation.asks for budget in ask.amounts}
    its_rows = sa.tuple_(*BUDGET_COLUMNS).in_(sorted({*operation.returned, *asked}))
    if operation.asks and asking.reservations:  # locked in one order with the rest
        its_rows |= await reserved_of(write, asking.reservations.values())
    rows = await locked_rows(write, its_rows)
    if missing := asked.difference(rows):
        raise MissingRows(missing)
    changes = defaultdict[BudgetId, _Change](_Change)
    for budget, amount in operation.returned.items():
        rows[budget].leased -= amount
        changes[budget].granted -= amount
    answer: Answer = standing
    if operation.name == "grant":
        wanted = {budget: rows[budget] for budget in asked}
        answer = await _grant(write, operation, asking, wanted, live, now, changes)
    await _write(write, asking, now, changes)
    return answer


async def _register(write: Write, asking: Asking, clock: Clock) -> None:
    """Make a holder's row, and forget those of long ago that have nothing."""
    facts = {"machine": asking.machine, "live": True, "started_at": to_millis(clock.now())}
    added = insert(write, holders).values(id=asking.holder, booked_seq=0, **facts)
    # The books may have been first; but who was released is not live again.
    is_new = (holders.c.epoch == 0) & (holders.c.started_at == 0)
    await write.execute(
        added.on_conflict_do_update(index_elements=["id"], set_=facts, where=is_new)
    )
    gone = ~holders.c.live & (holders.c.started_at < to_millis(clock.now() - KEPT))
    has_rights = sa.exists().where(leases.c.holder == holders.c.id)
    await write.execute(sa.delete(holders).where(gone, ~has_rights))


@dataclass(slots=True)
class _Change:
    """What changes of a budget and of the own lease of it."""

    granted: int = 0
    looked: bool = False
    """Whether a grant has looked at it, so that what is wanted of it is known."""
    want: Want | None = None


async def _holder(write: Write, holder: str, clock: Clock) -> tuple[HolderRow, int, float]:
    """Lock a holder's row; return it, how many are live, and the time."""
    others = holders.alias()
    live = sa.select(sa.func.count()).select_from(others).where(others.c.live)
    if write.dialect == "postgresql":
        await write.execute(SOON)
    query = sa.select(holders, live.scalar_subquery().label("alive"), _now(write, clock))
    mine = query.where(holders.c.id == holder).with_for_update(of=holders)
    row = (await write.execute(mine)).one()
    found = HolderRow(row.live, row.epoch, row.op, row.booked_seq)
    return found, max(1, row.alive), row.now / _MILLIS


def _now(read: Read, clock: Clock) -> sa.Label[int]:
    """Return the database's time in milliseconds, which is this machine's for a file."""
    if read.dialect == "sqlite":
        return sa.literal(to_millis(clock.now()), sa.BigInteger).label("now")
    seconds = sa.extract("epoch", sa.func.clock_timestamp())
    return sa.cast(seconds * _MILLIS, sa.BigInteger).label("now")


async def _grant(  # noqa: PLR0913, PLR0917 - what the transaction knows
    write: Write,
    operation: Operation,
    asking: Asking,
    rows: Mapping[BudgetId, BudgetRow],
    live: int,
    now: float,
    changes: Mapping[BudgetId, _Change],
) -> Granted:
    for budget, limit in asking.given.items():
        if budget in rows and rows[budget].limit != limit:
            rows[budget].limit = limit
            await update_row(write, budget, limit_nano=limit)
    these = sa.tuple_(*LEASE_COLUMNS).in_(sorted(rows))
    wanted_before = await _look_at_leases(write, asking.holder, now, rows, these)
    ids = [ask.id for ask in operation.asks if ask.reserves]
    known = sa.select(reservations.c.id).where(reservations.c.id.in_(ids))
    # Batches that have what they ask for: an answer was lost.
    before = [*(await write.execute(known)).scalars()] if ids else []
    asks = [ask for ask in operation.asks if ask.id not in before]
    done = decide.grant(rows, operation._replace(asks=asks), live, now)
    for ask in asks:
        if ask.reserves and ask.id in done.fit:
            await set_aside(write, asking.reservations[ask.id])
    done.fit.extend(before)
    for budget in rows:
        got, want = done.got.get(budget, 0), done.wants.get(budget)
        if want:
            write.notify(Topic.LEASE, json.dumps([asking.holder, *budget]))
        if got or want or budget in wanted_before:
            change = changes[budget]
            change.granted, change.looked, change.want = change.granted + got, True, want
    return done


async def _write(
    write: Write, asking: Asking, now: float, changes: Mapping[BudgetId, _Change]
) -> None:
    """Change budgets and the own leases of them."""
    until = int((now + asking.want_seconds) * _MILLIS)
    for budget, change in sorted(changes.items()):
        if change.granted:
            by = budgets.c.leased_nano + change.granted
            await update_row(write, budget, leased_nano=by)
        amount, since = (0, 0) if change.want is None else change.want
        wanted = {"wanted_nano": amount, "wanted_since": int(since * _MILLIS)}
        wanted["wanted_until"] = until
        place = {"holder": asking.holder, **dict(zip(_NAMES, budget, strict=True))}
        lease = insert(write, leases).values(granted_nano=change.granted, **place, **wanted)
        raised = {"granted_nano": leases.c.granted_nano + change.granted}
        changed = raised | wanted if change.looked else raised
        await write.execute(lease.on_conflict_do_update(index_elements=list(place), set_=changed))


async def _recalled(read: Read, holder: str, now: float) -> Collection[BudgetId]:
    """Return those of a holder's rows whose idle rights go back."""

    def its(lease: sa.FromClause) -> sa.ColumnElement[bool]:
        return (lease.c.holder == holder) & (lease.c.granted_nano > 0)

    same = (budgets.c[name] == leases.c[name] for name in _NAMES)
    query = sa.select(budgets).select_from(budgets.join(leases, sa.and_(*same)))
    found = await read.execute(query.where(its(leases)))
    rows = {budget_id(row): budget_row(row) for row in found}
    own = leases.alias()
    also = (own.c[name] == leases.c[name] for name in _NAMES)
    await _look_at_leases(read, holder, now, rows, sa.exists().where(its(own), *also))
    return [budget for budget, row in rows.items() if row.recalled]


async def _look_at_leases(
    read: Read,
    holder: str,
    now: float,
    rows: Mapping[BudgetId, BudgetRow],
    which: sa.ColumnElement[bool],
) -> Collection[BudgetId]:
    """Give rows what other live holders lack of them; return those of which it wanted some."""
    both = leases.join(holders, holders.c.id == leases.c.holder)
    of_somebody = (leases.c.holder == holder) | holders.c.live
    query = sa.select(leases).select_from(both).where(which, leases.c.wanted_nano > 0, of_somebody)
    own: set[BudgetId] = set()
    for row in await read.execute(query):
        budget = budget_id(row)
        if row.holder == holder:
            own.add(budget)
        elif row.wanted_until >= int(now * _MILLIS) and budget in rows:
            want = Want(row.wanted_nano, row.wanted_since / _MILLIS)
            rows[budget].wants = [*rows[budget].wants, want]
    return own


async def take_token(
    write: Write, account_id: str, model: str, per_minute: int, clock: Clock
) -> float:
    """Count a request towards a limit of a minute; return 0, or in how many seconds it may come."""
    row = insert(write, rates).values(account_id=account_id, model=model, taken="")
    await write.execute(row.on_conflict_do_nothing())
    its = rates.c.account_id == account_id, rates.c.model == model
    query = sa.select(rates, _now(write, clock)).where(*its).with_for_update()
    found = (await write.execute(query)).one()
    taken = [at for at in map(int, found.taken.split()) if at > found.now - _MINUTE]
    if len(taken) >= per_minute:
        return (taken[len(taken) - per_minute] + _MINUTE - found.now) / _MILLIS
    text = " ".join(map(str, (*taken, found.now)))
    await write.execute(sa.update(rates).where(*its).values(taken=text))
    return 0.0


@dataclass(frozen=True, slots=True)
class Holder:
    """A process that spends budgets with others."""

    id: str
    machine: str
    live: bool
    started_at: datetime
    granted_nano: int
    """What it has of balances."""
    budgets: int
    """Of how many budgets it has something."""


async def list_holders(read: Read, holder: str | None = None) -> Sequence[Holder]:
    """Return who is live or has something of a budget, the latest first; or one of any kind."""
    of_balances = sa.case((leases.c.scope == ACCOUNT, leases.c.granted_nano), else_=0)
    has = sa.func.count().filter(leases.c.granted_nano != 0)
    granted = sa.func.coalesce(sa.func.sum(of_balances), 0)
    query = (
        sa.select(holders, granted.label("granted_nano"), has.label("budgets"))
        .select_from(holders.outerjoin(leases, leases.c.holder == holders.c.id))
        .group_by(holders.c.id)
        .order_by(holders.c.started_at.desc(), holders.c.id)
    )
    if holder is None:
        query = query.having(holders.c.live | (has > 0))
    else:
        query = query.where(holders.c.id == holder)
    return [
        Holder(
            row.id,
            row.machine,
            row.live,
            from_millis(row.started_at),
            int(row.granted_nano),
            row.budgets,
        )
        for row in await read.execute(query)
    ]


async def write_off(write: Write, holder: str, *, return_rights: bool) -> Holder | None:
    """Have a process spend nothing any more, if there is one; return it.

    What it had counts as used until its journal is settled, or goes back to the others.
    """
    gone = sa.update(holders).where(holders.c.id == holder)
    await write.execute(gone.values(live=False, epoch=holders.c.epoch + 1))
    if return_rights:
        its = sa.select(leases).where(leases.c.holder == holder).order_by(*LEASE_COLUMNS)
        for row in (await write.execute(its)).all():
            left = budgets.c.leased_nano - row.granted_nano
            await update_row(write, budget_id(row), leased_nano=left)
        await write.execute(sa.delete(leases).where(leases.c.holder == holder))
    return next(iter(await list_holders(write, holder)), None)


async def spend_alone(database: Database) -> None:
    """Forget every row and lease: from now on one process spends alone."""
    async with database.reading() as read:
        if (await read.execute(sa.select(budgets.c.scope).limit(1))).first() is None:
            return
    async with database.writing() as write:
        await write.execute(sa.delete(leases))
        await write.execute(sa.delete(budgets))
        await write.execute(sa.update(holders).values(live=False))
