"""The rows of budgets, leases and holders, and the transactions of a holder.

A budget's row is made when one of several processes first needs it. From then on it changes in
every transaction that changes what it is derived from: credits, limits, reservations, charges.
Decisions are `leases`'; the SQL is the same on both databases.

    locks       holder, totals, budgets by (scope, id, period), leases
    a new row   is summed up while nobody writes to the table: who has charged before is in the sum,
                who charges later finds the row
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any, Final

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
from tollhouse.accounting.types import Credits, KeyLimit, Reset
from tollhouse.kernel.clock import to_millis
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    budgets,
    holders,
    key_days,
    key_totals,
    leases,
    limits,
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
_ALONE: Final = sa.text("LOCK TABLE budgets IN SHARE ROW EXCLUSIVE MODE")


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
        facts = {"scope": scope, "id": id_, "period": period, **await _derived(write, budget)}
        await write.execute(insert(write, budgets).values(**facts).on_conflict_do_nothing())


async def _alone(write: Write) -> None:
    if write.dialect == "postgresql":
        await write.execute(_ALONE)


async def _derived(read: Read, budget: BudgetId) -> dict[str, Any]:
    """Return what a row has to be, but for what is leased."""
    if budget.scope == ACCOUNT:
        return await _of_account(read, budget.id)
    if budget.scope == KEY:
        return await _of_key(read, budget)
    used = sa.select(sa.func.sum(account_days.c.free_requests)).where(
        account_days.c.account_id == budget.id, *_days_in(account_days, budget)
    )
    return {"limit_nano": 0, "used_nano": await _sum(read, used), "reserved_nano": 0}


async def _of_account(read: Read, account_id: str) -> dict[str, Any]:
    columns = [account_totals.c[name] for name in Credits.__dataclass_fields__]
    query = sa.select(*columns).where(account_totals.c.account_id == account_id)
    row = (await read.execute(query)).mappings().one_or_none()
    owned = Credits() if row is None else Credits(**row)
    reserved = sa.select(sa.func.sum(reservations.c.amount_nano)).where(
        reservations.c.account_id == account_id
    )
    return {
        "limit_nano": owned.total_nano,
        "used_nano": owned.used_nano,
        "reserved_nano": await _sum(read, reserved),
    }


async def _of_key(read: Read, budget: BudgetId) -> dict[str, Any]:
    query = sa.select(limits).where(limits.c.scope == KEY, limits.c.owner_id == budget.id)
    row = (await read.execute(query)).one_or_none()
    limit = (
        KeyLimit()
        if row is None
        else KeyLimit(
            row.limit_nano,
            None if row.reset_interval is None else Reset(row.reset_interval),
            row.include_byok,
        )
    )
    table = key_days if budget.window else key_totals
    amount: sa.ColumnElement[int] = table.c.usage_nano
    if limit.include_byok:
        amount = amount + table.c.byok_usage_nano
    used = sa.select(sa.func.sum(amount)).where(
        table.c.key_hash == budget.id, *_days_in(table, budget)
    )
    held = reservations.c.with_own_nano if limit.include_byok else reservations.c.amount_nano
    mine = sa.or_(reservations.c.key_hash == budget.id, reservations.c.payer_hash == budget.id)
    return {
        "limit_nano": limit.limit_nano if is_window_of(limit.reset, budget) else None,
        "include_byok": limit.include_byok,
        "used_nano": await _sum(read, used),
        "reserved_nano": await _sum(read, sa.select(sa.func.sum(held)).where(mine)),
    }


def is_window_of(reset: Reset | None, budget: BudgetId) -> bool:
    """Tell whether a budget is one that a limit makes which starts anew like this."""
    if not budget.window:
        return reset is None
    return window_of(reset, date.fromisoformat(budget.window[:10])) == budget.window


def _days_in(table: sa.Table, budget: BudgetId) -> list[sa.ColumnElement[bool]]:
    first, _, after = budget.window.partition("..")
    return [table.c.day >= first, table.c.day < after] if budget.window else []


async def _sum(read: Read, query: sa.Select[tuple[int]]) -> int:
    return int((await read.execute(query)).scalar_one() or 0)


async def credits_changed(write: Write, account_id: str, by_nano: int) -> None:
    """Let a balance's budget follow what came into an account, or left it."""
    await _change(write, ACCOUNT, account_id, limit_nano=budgets.c.limit_nano + by_nano)


async def limit_changed(write: Write, key_hash: str) -> None:
    """Let a key's budgets follow its limit; call it before other budgets are locked."""
    await _alone(write)
    query = sa.select(*_ID).where(budgets.c.scope == KEY, budgets.c.id == key_hash)
    for row in (await write.execute(query)).all():
        budget = _id(row)
        await _update(write, budget, **await _derived(write, budget))


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


async def set_aside(write: Write, reservation: Reservation) -> None:
    """Store credits that are set aside, and let budgets follow."""
    await repository.add_reservation(write, reservation)
    await reserved_changed(write, reservation, reservation.amount_nano, reservation.with_own_nano)


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
    return {
        _id(row): BudgetRow(
            row.limit_nano,
            row.used_nano,
            row.reserved_nano,
            row.leased_nano,
            include_byok=row.include_byok,
        )
        for row in await write.execute(query)
    }


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
    mine = await _holder(write, asking.holder)
    standing = decide.standing(mine, operation)
    if standing is not decide.Standing.MINE:
        return standing
    now = await _seconds(write, clock)
    if operation.name in {"register", "poll"}:
        return decide.Polled(await _recalled(write, asking.holder, now))
    raised = sa.update(holders).where(holders.c.id == asking.holder)
    await write.execute(raised.values(op=holders.c.op + 1))
    if operation.name == "fence":
        return decide.Fenced(mine.op + 1, mine.booked_seq, await _granted(write, asking.holder))
    ids = {budget for ask in operation.asks for budget in ask.amounts}
    rows = await _locked(write, sa.tuple_(*_ID).in_(sorted({*operation.returned, *ids})))
    if missing := ids.difference(rows):
        raise MissingRows(missing)
    for budget, amount in sorted(operation.returned.items()):
        rows[budget].leased -= amount
        await _update(write, budget, leased_nano=budgets.c.leased_nano - amount)
        await _lease(write, asking.holder, budget, granted_nano=leases.c.granted_nano - amount)
    if operation.name == "give_back":
        return standing
    return await _grant(write, operation, asking, {each: rows[each] for each in ids}, now)


async def _grant(
    write: Write,
    operation: Operation,
    asking: Asking,
    rows: dict[BudgetId, BudgetRow],
    now: float,
) -> Granted:
    for budget, limit in asking.given.items():
        if budget in rows and rows[budget].limit != limit:
            rows[budget].limit = limit
            await _update(write, budget, limit_nano=limit)
    for budget, want in await _wants(write, asking.holder, now, sorted(rows)):
        rows[budget].wants = [*rows[budget].wants, want]
    done_before = await _reserved(write, operation.asks)
    asks = [ask for ask in operation.asks if ask.id not in done_before]
    count = sa.select(sa.func.count()).select_from(holders).where(holders.c.live)
    live = max(1, (await write.execute(count)).scalar_one())
    done = decide.grant(rows, operation._replace(asks=asks), live, now)
    for ask in asks:
        if ask.reserves and ask.id in done.fit:
            await set_aside(write, asking.reservations[ask.id])
    done.fit.extend(done_before)
    had = await _granted(write, asking.holder)
    until = int((now + asking.want_seconds) * _MILLIS)
    for budget in sorted(rows):
        got, want = done.got.get(budget, 0), done.wants.get(budget)
        if got:
            await _update(write, budget, leased_nano=budgets.c.leased_nano + got)
        if got or want or budget in had:
            wanted, since = (want.amount, int(want.since * _MILLIS)) if want else (0, 0)
            wants = {"wanted_nano": wanted, "wanted_since": since, "wanted_until": until}
            scope, id_, period = budget
            lease = insert(write, leases).values(
                holder=asking.holder, scope=scope, id=id_, period=period, granted_nano=got, **wants
            )
            await write.execute(
                lease.on_conflict_do_update(
                    index_elements=["holder", "scope", "id", "period"],
                    set_={"granted_nano": leases.c.granted_nano + got, **wants},
                )
            )
    return done


async def _holder(write: Write, holder: str) -> HolderRow:
    query = sa.select(holders).where(holders.c.id == holder).with_for_update()
    row = (await write.execute(query)).one()
    return HolderRow(row.live, row.epoch, row.op, row.booked_seq)


async def _seconds(read: Read, clock: Clock) -> float:
    """Return the time of the database, which is this machine's for a file."""
    if read.dialect == "sqlite":
        return to_millis(clock.now()) / _MILLIS
    now = sa.select(sa.extract("epoch", sa.func.clock_timestamp()))
    return float((await read.execute(now)).scalar_one())


async def _granted(read: Read, holder: str) -> dict[BudgetId, int]:
    query = sa.select(*_LEASE, leases.c.granted_nano).where(leases.c.holder == holder)
    return {_id(row): row.granted_nano for row in await read.execute(query)}


async def _recalled(read: Read, holder: str, now: float) -> Collection[BudgetId]:
    """Return those of a holder's rows whose idle rights go back."""
    both = budgets.join(leases, sa.and_(*(b == c for b, c in zip(_ID, _LEASE, strict=True))))
    query = sa.select(budgets).select_from(both).where(leases.c.holder == holder)
    query = query.where(leases.c.granted_nano > 0)
    rows = {
        _id(row): BudgetRow(
            row.limit_nano, row.used_nano, row.reserved_nano, row.leased_nano
        )
        for row in await read.execute(query)
    }
    for budget, want in await _wants(read, holder, now, sorted(rows)):
        rows[budget].wants = [want]
    return [budget for budget, row in rows.items() if row.recalled]


async def _wants(
    read: Read, holder: str, now: float, ids: Sequence[BudgetId]
) -> Sequence[tuple[BudgetId, Want]]:
    """Return what other live holders lack of some rows."""
    if not ids:
        return []
    query = (
        sa.select(*_LEASE, leases.c.wanted_nano, leases.c.wanted_since)
        .select_from(leases.join(holders, holders.c.id == leases.c.holder))
        .where(
            sa.tuple_(*_LEASE).in_(ids),
            leases.c.holder != holder,
            holders.c.live,
            leases.c.wanted_nano > 0,
            leases.c.wanted_until >= int(now * _MILLIS),
        )
    )
    rows = await read.execute(query)
    return [(_id(row), Want(row.wanted_nano, row.wanted_since / _MILLIS)) for row in rows]


async def _lease(write: Write, holder: str, budget: BudgetId, **values: object) -> None:
    its = [column == value for column, value in zip(_LEASE, budget, strict=True)]
    await write.execute(sa.update(leases).where(leases.c.holder == holder, *its).values(**values))


async def _reserved(read: Read, asks: Iterable[Ask]) -> Collection[str]:
    """Return which batches have what they ask for: an answer was lost."""
    ids = [ask.id for ask in asks if ask.reserves]
    if not ids:
        return ()
    query = sa.select(reservations.c.id).where(reservations.c.id.in_(ids))
    return [*(await read.execute(query)).scalars()]


async def forget_all(write: Write) -> None:
    """Forget every row and lease: from now on one process spends alone."""
    await write.execute(sa.delete(leases))
    await write.execute(sa.delete(budgets))
    await write.execute(sa.update(holders).values(live=False))
