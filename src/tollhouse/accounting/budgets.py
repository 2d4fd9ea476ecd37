"""The rows of budgets, leases and holders, and the transactions of a holder.

A budget's row is made when one of several processes first needs it. From then on it changes in
every transaction that changes what it is derived from: credits, limits, reservations, charges.
Decisions are `leases`'; the SQL is the same on both databases.

    locks       holder, totals, budgets by (scope, id, period), leases
    a new row   is summed up while nobody writes to the table: who has charged before is in the sum,
                who charges later finds the row
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, timedelta
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
from tollhouse.accounting.limits import interval_of
from tollhouse.accounting.settlement.booking import budget_changes, budget_charges, owners_of
from tollhouse.accounting.types import BudgetScope
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.clock import from_millis, to_millis
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
    owner_days,
    rates,
    reservations,
)
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tollhouse.accounting.leases import Answer, Ask, Granted, Operation
    from tollhouse.accounting.types import GenerationRecord, Reservation, Reset
    from tollhouse.kernel.clock import Clock

_ID = (budgets.c.scope, budgets.c.id, budgets.c.period)
_LEASE = (leases.c.scope, leases.c.id, leases.c.period)
_MILLIS: Final = 1_000
_MINUTE: Final = 60 * _MILLIS
_KEPT: Final = timedelta(days=62)
"""How long a window is kept after its first day: a month, and as long again for late charges."""
_ALONE: Final = sa.text("LOCK TABLE budgets IN EXCLUSIVE MODE")
"""No weaker: who has locked rows to change them would wait for us, and we for them."""


class MissingRows(Exception):
    """Budgets that have no row yet; nothing of the transaction may be kept."""

    def __init__(self, missing: Collection[BudgetId]) -> None:
        super().__init__(f"{len(missing)} budgets have no row")
        self.missing = missing


# Rows follow what they are derived from


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
    long_ago = (date.fromisoformat(budget.window[:10]) - _KEPT).isoformat()
    for table, unused in ((leases, leases.c.granted_nano == 0), (budgets, LEASED == 0)):
        its = table.c.scope == budget.scope, table.c.id == budget.id
        past = table.c.period != "", table.c.period < long_ago, unused
        await write.execute(sa.delete(table).where(*its, *past))


async def _alone(write: Write) -> None:
    if write.dialect == "postgresql":
        await write.execute(_ALONE)


async def _derive(write: Write, budget: BudgetId) -> None:
    """Give a row what it has to be."""
    if budget.scope == ACCOUNT:
        await _update(write, budget, limit_nano=TOTAL)
    elif budget.scope != FREE:
        query = sa.select(limits).where(
            limits.c.scope == budget.scope, limits.c.owner_id == budget.id
        )
        limit, with_own = None, False
        for row in await write.execute(query):
            if is_window_of(interval_of(row.reset_interval), budget):
                limit, with_own = row.limit_nano, row.include_byok
        await _update(write, budget, limit_nano=limit, include_byok=with_own)
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
_of_person = sa.select(api_keys.c.hash).where(
    api_keys.c.creator_user_id == budgets.c.id, api_keys.c.kind != KeyKind.INTERN.value
)
"""What an intern's key uses counts to the key that answers for it."""
_its_keys = _of_person.correlate(budgets)
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
    leases.c.granted_nano, *(lease == its for lease, its in zip(_LEASE, _ID, strict=True))
)


async def credits_changed(write: Write, account_id: str, by_nano: int) -> None:
    """Let a balance's budget follow what came into an account, or left it."""
    await _change(write, ACCOUNT, account_id, limit_nano=budgets.c.limit_nano + by_nano)


async def limit_changed(write: Write, scope: str, owner_id: str) -> None:
    """Let budgets follow a limit; call it before other budgets are locked."""
    await _alone(write)
    query = sa.select(*_ID).where(budgets.c.scope == scope, budgets.c.id == owner_id)
    for row in (await write.execute(query)).all():
        await _derive(write, _id(row))


async def reserved_changed(
    write: Write, reservation: Reservation, by_nano: int, with_own_by_nano: int
) -> None:
    """Let budgets follow what is set aside: of the account, and of all that limits it."""
    if not (by_nano or with_own_by_nano):
        return
    reserved = budgets.c.reserved_nano
    of_limit = reserved + sa.case((budgets.c.include_byok, with_own_by_nano), else_=by_nano)
    for scope, id_ in await _owners_of(write, reservation):
        after = reserved + by_nano if scope == ACCOUNT else of_limit
        await _change(write, scope, id_, reserved_nano=after)


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


async def set_aside(write: Write, reservation: Reservation) -> bool:
    """Store credits that are set aside, and let budgets follow.

    Returns false where processes have too much of these for it: nothing of it may be kept then.
    """
    await repository.add_reservation(write, reservation)
    await reserved_changed(write, reservation, reservation.amount_nano, reservation.with_own_nano)
    if not reservation.amount_nano:
        return True
    today = reservation.created_at.date().isoformat()
    owners = await _owners_of(write, reservation)
    rows = await _locked(write, sa.tuple_(budgets.c.scope, budgets.c.id).in_(owners))
    return all(row.room >= 0 for budget, row in rows.items() if budget.covers(today))


async def charged(write: Write, records: Sequence[GenerationRecord]) -> None:
    """Let budgets follow charges that were booked just now in the same transaction."""
    keys = [key for record in records for key in record.key_hashes]
    charges = budget_charges(records, await people_of(write, keys))
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
        gone = to_millis(clock.now() - _KEPT)
        has_rights = sa.exists().where(leases.c.holder == holders.c.id)
        ended = ~holders.c.live, holders.c.started_at < gone, ~has_rights
        await write.execute(sa.delete(holders).where(*ended))
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
            write.notify(Topic.LEASE, json.dumps([asking.holder, *budget]))
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
    has = leases.c.granted_nano != 0
    counted = sa.func.coalesce(sa.func.sum(sa.case((has, 1), else_=0)), 0).label("budgets")
    query = (
        sa.select(holders, sa.func.coalesce(sa.func.sum(of_balances), 0).label("nano"), counted)
        .select_from(holders.outerjoin(leases, leases.c.holder == holders.c.id))
        .group_by(holders.c.id)
        .order_by(holders.c.started_at.desc(), holders.c.id)
    )
    if holder is None:
        query = query.having(sa.or_(holders.c.live, counted.element > 0))
    else:
        query = query.where(holders.c.id == holder)
    return [
        Holder(
            row.id,
            row.machine,
            row.live,
            from_millis(row.started_at),
            int(row.nano),
            int(row.budgets),
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
        its = sa.select(leases).where(leases.c.holder == holder).order_by(*_LEASE)
        for row in (await write.execute(its)).all():
            left = budgets.c.leased_nano - row.granted_nano
            await _update(write, _id(row), leased_nano=left)
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
