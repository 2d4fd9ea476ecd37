"""A group of charges in the database: its rows, and the totals and budgets that they raise.

What is done is a sequence of steps, the same whoever runs them: a books process with its database's
own driver, or a transaction that changes other things too. A step is a statement; its rows are sent
back. SQLAlchemy would cost ten times what the statements do, and this is the one write on the way
of every request.

    generations    the rows of the group that are not there yet: they alone count from here on
    sums           what these add up to, by everything that a total is kept of
    totals         raised by the sums
    budgets        raised, where several processes spend together, and leases lowered

Both databases have the same statements, apart from the first two. All writers take rows in one
order, so that none waits for another in a circle.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import astuple

from tollhouse.accounting.leases import (
    ACCOUNT,
    FREE,
    KEY,
    BudgetId,
    BudgetRow,
    Charge,
    settle,
)
from tollhouse.accounting.settlement import statements as sql
from tollhouse.accounting.types import BudgetScope

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Generator, Mapping, Sequence

    from tollhouse.accounting.types import GenerationRecord

    Steps = Generator["Step", Sequence[Any], frozenset[str]]

Dialect = Literal["sqlite", "postgresql"]
Row = tuple[Any, ...]
END_USER: Final = BudgetScope.END_USER.value
MEMBER: Final = BudgetScope.MEMBER.value
WORKSPACE: Final = BudgetScope.WORKSPACE.value


class Step(NamedTuple):
    """A statement, with the values of its `?1`, `?2` and so on."""

    sql: str
    values: Sequence[Any] = ()
    """Of each of many rows if `is_many`."""
    is_many: bool = False
    """Whether it is run for each of these rows, and finds none."""

    @property
    def numbered(self) -> str:
        """The statement as PostgreSQL takes it."""
        return self.sql.replace("?", "$")


class Unbookable(Exception):
    """A charge that no database state would take: a foreign account, a number out of range."""


def advance(steps: Steps, found: Sequence[Any] | None = None) -> Step | frozenset[str]:
    """Return the step after one that found these rows (None: the first), or what was booked."""
    try:
        return next(steps) if found is None else steps.send(found)
    except StopIteration as done:
        return done.value


def booking(
    dialect: Dialect, records: Sequence[GenerationRecord], holder: str = "", last: int = 0
) -> Steps:
    """Book a group; of those with one id the first, and nothing for one that is booked already.

    `last` is the number of the holder's last charge in it; 0: they have none. It returns the ids of
    those that were not booked before.
    """
    if last:
        yield Step(sql.RAISE_BOOKED, (holder, last))
    if not records:
        return frozenset()
    # Two groups with some of the same generations must not wait for each other in a circle.
    rows = sorted([astuple(record)[:-1] for record in records], key=itemgetter(0))
    if dialect == "sqlite":
        [last_row] = yield Step(sql.LAST_ROW)
        yield Step(sql.ADD, rows, is_many=True)
        added = yield Step(sql.ADDED, last_row)
        if added:
            for statement in sql.NO_SUMS:
                yield Step(statement)
            yield Step(sql.SUM_UP, last_row)
            yield Step(sql.POST, last_row)
            for statement in sql.TOTALS:
                yield Step(statement)
    else:
        added = yield Step(sql.ADD_ALL, [*zip(*rows, strict=True)])
    new = frozenset(row[0] for row in added)
    if new:
        yield from _settling_budgets(dialect, records, new, holder if last else "")
    return new


def releasing(dialect: Dialect, holder: str) -> Steps:
    """End a holder: nothing is spent in its name from now on, and what it was granted is free.

    All of its charges are booked, and its process is gone or admits nothing more. Doing it again
    changes nothing that counts.
    """
    for statement in sql.RELEASE[dialect]:
        yield Step(statement, (holder,))
    return frozenset()


def _settling_budgets(
    dialect: Dialect, records: Sequence[GenerationRecord], new: Container[str], holder: str
) -> Generator[Step, Sequence[Any], None]:
    """Let budgets follow new charges, and the leases of `holder`; those of others are released."""
    # Not on PostgreSQL, where somebody may make rows just now: the lock is what tells of us.
    if dialect == "sqlite" and not (yield Step(sql.ANY_BUDGET)):
        return  # one process spends alone
    first = {record.id: record for record in reversed(records) if record.id in new}
    fresh = [*first.values()]
    keys = {key for record in fresh for key in record.key_hashes}
    people = yield Step(sql.PEOPLE[dialect], (_json(keys),))
    charges = budget_charges(fresh, dict(map(tuple, people)))
    owners = {owner for charge in charges for owner in charge.owners}
    # A batch's transaction goes on to lower what is reserved, in every window: all locks are one
    # step, or two of them could wait for each other.
    first_day = min(charge.day for charge in charges) if holder else ""
    found = yield Step(sql.BUDGETS[dialect], (_json(owners), first_day))
    rows = {BudgetId(*row[:3]): BudgetRow(None, include_byok=bool(row[3])) for row in found}
    has_rights = holder and any(charge.rights for charge in charges)
    mine = (yield Step(sql.LEASES, (holder,))) if has_rights else ()
    settled = settle(0, charges, rows, {BudgetId(*row) for row in mine})
    used, rights = settled.used, settled.rights
    # In the order of the locks.
    changes = [(used.get(each, 0), rights.get(each, 0), *each) for each in sorted({*used, *rights})]
    lowered = [(right, holder, *budget) for _, right, *budget in changes if right]
    if changes:
        yield Step(sql.CHANGE_BUDGET, changes, is_many=True)
    if lowered:
        yield Step(sql.CHANGE_LEASE, lowered, is_many=True)


def _json(names: Collection[object]) -> str:
    return msgspec.json.encode(names).decode()


def budget_charges(
    records: Sequence[GenerationRecord], people: Mapping[str, str]
) -> Sequence[Charge]:
    """Return what records say of budgets, as one charge where they count towards the same.

    `people` made those keys whose use counts to them.
    """
    sums: dict[Row, list[int]] = {}
    rights: defaultdict[Row, Counter[BudgetId]] = defaultdict(Counter)
    for record in records:
        place = (
            *(record.account_id, record.workspace_id, record.external_user),
            *(record.key_hash, record.payer_hash, record.utc_day, record.free_limited),
        )
        if (counts := sums.get(place)) is None:
            counts = sums[place] = [0, 0, 0]
        counts[0] += record.cost_nano
        counts[1] += record.spend.byok_usage_nano
        counts[2] += 1
        for scope, id_, window, nano in record.rights:
            rights[place][BudgetId(scope, id_, window)] += nano
    charges: list[Charge] = []
    for seq, (place, (usage, own, count)) in enumerate(sums.items(), 1):
        account, workspace, user, key, payer, day, is_free = place
        cost = usage, own
        owners = {(ACCOUNT, account): (usage, 0), (WORKSPACE, workspace): cost}
        if user:  # see `owner.end_user`
            owners[END_USER, f"{workspace}:{user}"] = cost
        for key_hash in (key,) if payer is None else (key, payer):
            owners[KEY, key_hash] = cost
            if (person := people.get(key_hash)) is not None:
                had = owners.get((MEMBER, person), (0, 0))
                owners[MEMBER, person] = had[0] + usage, had[1] + own
        if is_free:
            owners[FREE, account] = count, 0
        charges.append(Charge(seq, owners, day.isoformat(), [*rights[place].items()]))
    return charges
