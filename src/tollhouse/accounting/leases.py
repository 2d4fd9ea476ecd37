"""Budgets that several processes spend: what the database grants to each of them.

A process that admits requests is a *holder*. Of each budget it has *rights*, which were granted to
it: its lease. `used + reserved + leased <= limit` holds of a row at every grant, where `leased` is
the sum of what all holders have. Here is what a transaction decides by the rows that it has locked;
`rights.py` has the process's side. The caller brings time, rows and SQL:
docs/development/budgets-over-processes.md says which.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from tollhouse.accounting.limits import BudgetId, resets_at, window_start

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import date

    from tollhouse.accounting.types import Reset

_NO_LIMIT: Final = 1 << 62
ACCOUNT: Final = "account"
KEY: Final = "key"
FREE: Final = "free_requests"
"""Of an account on a day: it counts requests, and settings say how many there may be."""
IN_FLIGHT: Final = "in_flight"
"""What all requests of an account under way may hold: nothing uses it up, and settings say how much
of the balance that is."""


def window_of(reset: Reset | None, day: date) -> str:
    """Return the window of a limit that a UTC day is in."""
    if reset is None:
        return ""
    return f"{window_start(reset, day)}..{resets_at(reset, day).date()}"


# What a process asks, and what it is answered


class Ask(NamedTuple):
    """A claim as a transaction is told of it."""

    id: str
    amounts: Mapping[BudgetId, int]
    waited: float
    last: bool
    """Whether its wait is over, so that it is refused if it is short."""
    reserves: bool
    short: Collection[BudgetId] = ()
    """Of which budgets it was short before: it keeps its place there until its wait ends."""


_NOTHING: Final[Mapping[BudgetId, int]] = MappingProxyType({})
Name = Literal["register", "poll", "fence", "give_back", "grant"]


class Operation(NamedTuple):
    """A transaction of a holder.

    `register` inserts its row, unless there is one, and `poll` looks which rows are recalled.
    `fence` raises `op`, so that what was sent before and comes late fails, and reads the leases.
    `give_back` returns idle rights. `grant` does that, too, and then asks for what claims lack. For
    a batch it reserves, and that is idempotent by its id: all idle rights of its budgets go back.
    """

    name: Name
    epoch: int
    op: int
    """Both as the process knows them of its row."""
    returned: Mapping[BudgetId, int] = _NOTHING
    """Idle rights; the process has them no more from now on, whatever the answer is."""
    asks: Sequence[Ask] = ()
    idle: Mapping[BudgetId, int] = _NOTHING
    wishes: Mapping[BudgetId, int] = _NOTHING


class Standing(Enum):
    """Whether an operation may go on; also the answer of `give_back`, and of one that may not."""

    MINE = "mine"
    STALE = "stale"
    """Another operation came in between: a fence is next."""
    CUT_OFF = "cut off"


class Polled(NamedTuple):
    """Those of a holder's rows whose idle rights are to go back."""

    recalled: Collection[BudgetId]


class Fenced(NamedTuple):
    """The holder's rows in one snapshot."""

    op: int
    booked_seq: int
    granted: Mapping[BudgetId, int]


class Want(NamedTuple):
    """What a holder lacks of a row: of all that waits there the sum, and the age of the oldest."""

    amount: int
    since: float
    """In the database's time."""


@dataclass(slots=True)
class Granted:
    """What a grant does; of the claims that fit those of batches are reserved."""

    got: dict[BudgetId, int] = field(default_factory=dict[BudgetId, int])
    fit: list[str] = field(default_factory=list[str])
    hopeless: list[str] = field(default_factory=list[str])
    """Refused at once: not even what every holder has would suffice."""
    short: dict[str, set[BudgetId]] = field(default_factory=dict[str, set[BudgetId]])
    """Of the others, what each has a place for; see `Ask.short`."""
    wants: dict[BudgetId, Want] = field(default_factory=dict[BudgetId, Want])
    """What goes into the own lease: all that waits for the row, and since when."""
    recalled: dict[BudgetId, bool] = field(default_factory=dict[BudgetId, bool])
    """Of each row that was looked at."""


Answer = Standing | Polled | Fenced | Granted


# Rows


@dataclass(slots=True)
class BudgetRow:
    """A row of `budgets`, and what other live holders want of it, unless they said so long ago."""

    limit: int | None
    used: int = 0
    reserved: int = 0
    leased: int = 0
    wants: Sequence[Want] = ()
    include_byok: bool = False
    """Whether what providers take from customers with own keys counts, too."""

    @property
    def room(self) -> int:
        """What may be granted."""
        if self.limit is None:
            return _NO_LIMIT
        return self.limit - self.used - self.reserved - self.leased

    @property
    def recalled(self) -> bool:
        """Whether idle rights of it go back: others want some, or its limit was lowered."""
        return self.room < 0 or bool(self.wants)

    def ahead(self, ask: Ask, now: float) -> int:
        """Return how much goes to those who have waited longer; nobody has where a wait is over."""
        since = now - ask.waited
        return 0 if ask.last else sum(want.amount for want in self.wants if want.since < since)


@dataclass(slots=True)
class HolderRow:
    """A row of `holders`; what was written off or has left is not live."""

    live: bool = True
    epoch: int = 0
    op: int = 0
    booked_seq: int = 0


class Charge(NamedTuple):
    """What the journal's record says of budgets."""

    seq: int
    owners: Mapping[tuple[str, str], tuple[int, int]]
    """What it costs, and what a provider took from the customer besides: by scope and id of
    everything that it counts towards, limited or not."""
    day: str
    """Of its admission."""
    rights: Sequence[tuple[BudgetId, int]]


class Settlement(NamedTuple):
    """What is booked of a group, and what changes in rows by it."""

    charges: Sequence[Charge]
    used: Mapping[BudgetId, int]
    rights: Mapping[BudgetId, int]
    """What `leased` and the lease lose."""


def standing(holder: HolderRow, operation: Operation) -> Standing:
    """Return whether an operation may go on; one that writes then raises `op`."""
    if not holder.live or holder.epoch != operation.epoch:
        return Standing.CUT_OFF
    unordered = operation.name in {"register", "poll", "fence"}
    return Standing.MINE if unordered or holder.op == operation.op else Standing.STALE


def grant(
    rows: Mapping[BudgetId, BudgetRow], operation: Operation, live: int, now: float
) -> Granted:
    """Go through all that waits in a process, the oldest first: all rows of a claim, or none.

    What is returned is back in the rows. Batches that were reserved already are not asked for.

    With one live holder it gets all that is left. Else it gets what it needs, and if nobody wants
    the row a part of what is left beyond that: k credits admit exactly k requests of one.
    """
    done = Granted(recalled={budget: row.recalled for budget, row in rows.items()})
    room, idle = {budget: row.room for budget, row in rows.items()}, {**operation.idle}
    for ask in operation.asks:
        amounts = ask.amounts
        if any(rows[each].room + rows[each].leased < amount for each, amount in amounts.items()):
            done.hopeless.append(ask.id)
            continue
        needs = {budget: max(0, amount - idle[budget]) for budget, amount in amounts.items()}
        lacking = [
            budget
            for budget, need in needs.items()
            if room[budget] < need
            or (budget in done.wants and not ask.last)
            or room[budget] + idle[budget] - rows[budget].ahead(ask, now) < amounts[budget]
        ]
        if lacking:
            done.short[ask.id] = places = {*lacking, *ask.short}
            for budget in () if ask.last else places:
                before = done.wants.get(budget, Want(0, now - ask.waited))
                done.wants[budget] = Want(before.amount + amounts[budget], before.since)
            continue
        done.fit.append(ask.id)
        for budget, need in needs.items():
            room[budget] -= need
            if not ask.reserves:
                done.got[budget] = done.got.get(budget, 0) + need
                idle[budget] += need - amounts[budget]
    for budget in done.got:
        row, left = rows[budget], room[budget]
        if row.limit is not None and left > 0 and not row.wants and budget not in done.wants:
            part = min(operation.wishes[budget], left // (2 * live))
            done.got[budget] += left if live == 1 else part
    return done


def settle(
    booked_seq: int,
    group: Sequence[Charge],
    rows: Mapping[BudgetId, BudgetRow],
    leases: Collection[BudgetId],
) -> Settlement:
    """Return what is still to be booked of a group: what follows the last number in the books.

    What was used counts by the charge's own facts, in every row that there is of them. The rights
    that it uses up leave the lease that they came from, if that is still there.
    """
    of_owner: defaultdict[tuple[str, str], list[BudgetId]] = defaultdict(list)
    for budget in rows:
        of_owner[budget[:2]].append(budget)
    used: defaultdict[BudgetId, int] = defaultdict(int)
    rights: defaultdict[BudgetId, int] = defaultdict(int)
    charges = [charge for charge in group if charge.seq > booked_seq]
    if charges and charges[0].seq != booked_seq + 1:
        charges = []  # the caller goes on after `booked_seq`
    for charge in charges:
        for owner, (cost, own) in charge.owners.items():
            for budget in of_owner[owner]:
                if budget.covers(charge.day):
                    used[budget] += cost + (own if rows[budget].include_byok else 0)
        for budget, right in charge.rights:
            if budget in leases:
                rights[budget] += right
    return Settlement(charges, used, rights)
