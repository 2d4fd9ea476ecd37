"""What a process may admit by itself, and which transaction is next.

A process has rights of each budget; running requests hold a part of them, and the rest is idle. It
admits by idle rights alone. Where these do not suffice a request waits, and the process asks the
database for more, one operation at a time. Whoever has waited longest is served first, whichever
process it waits in. No I/O and no clock: the caller runs the operations and tells the time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.accounting.leases import Ask, Fenced, Granted, Operation, Polled, Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from tollhouse.accounting.leases import Answer
    from tollhouse.accounting.limits import BudgetId


MOST_AT_ONCE: Final = 100
"""Claims that a transaction asks for, the oldest first, and budgets of which it gives back."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things last, in the caller's unit of time."""

    wait: float = 2.0
    """How long a request waits for rights."""
    retry: float = 0.1
    """Between two tries of a request that waits."""
    poll: float = 1.0
    """Between two looks at the rows; notices of a change may be lost."""
    lease: float = 30.0
    """How long rights should last at the rate at which they are spent: the next grant is far, and
    what others need of them comes back within a poll."""


@dataclass(slots=True, eq=False)
class Claim:
    """A request, or a batch that reserves, and what it holds of each of its budgets.

    While it waits the caller may change `amounts`, and then calls `Rights.serve`.
    """

    id: str
    amounts: Mapping[BudgetId, int]
    """What it may cost, of each of its budgets."""
    reserves: bool = False
    short: frozenset[BudgetId] = frozenset()
    """Of which budgets the database said that it is short."""
    since: float = 0
    ask_at: float = 0


@dataclass(slots=True)
class Lease:
    """A process's part of a budget."""

    rights: int = 0
    """Granted, and not used up by a charge."""
    held: int = 0
    spent: int = 0
    """Admitted since `since`, which is when rights were last asked for."""
    since: float = 0

    @property
    def idle(self) -> int:
        """What requests may be admitted by."""
        return self.rights - self.held


class Decided(NamedTuple):
    """Claims whose wait is over."""

    admitted: Sequence[Claim] = ()
    refused: Sequence[Claim] = ()


class Rights:
    """What a process has of every budget, and who waits for more; one operation at a time."""

    def __init__(self, timing: Timing) -> None:
        self.waiting: list[Claim] = []
        """In the order in which they came."""
        self.lane: Operation | None = None
        """The operation under way."""
        self.registered = self.cut_off = False
        """Cut off, it admits nothing more: the caller ends what runs, books it, and goes."""
        self.in_doubt = False
        """Whether an answer is missing, so that a fence comes next."""
        self._timing = timing
        self._leases: dict[BudgetId, Lease] = {}
        self._recalled: set[BudgetId] = set()
        self._past: set[BudgetId] = set()
        self._lacked: set[BudgetId] = set()
        """What somebody waits for, and those that come later leave alone."""
        self._unbooked: deque[tuple[int, Sequence[tuple[BudgetId, int]]]] = deque()
        self._epoch = self._op = self._acknowledged = 0
        self._poll_at = self._not_before = 0.0
        self._today = ""

    def lease(self, budget: BudgetId) -> Lease:
        """Return the own part of a budget."""
        return self._leases.get(budget) or self._leases.setdefault(budget, Lease())

    def held(self) -> int:
        """Return how much running requests hold, of all budgets together."""
        return sum(lease.held for lease in self._leases.values())

    @property
    def is_pressed(self) -> bool:
        """Whether what becomes idle is for others, or for somebody who waits."""
        return bool(self.waiting or self._recalled or self._past)

    # Requests

    def try_begin(self, claim: Claim) -> bool:
        """Tell whether a claim is admitted at once; else nothing has changed."""
        fits = not self.cut_off and self._lacked.isdisjoint(claim.amounts)
        if not fits or claim.reserves or self._lacking(claim):
            return False
        self._hold(claim)
        return True

    def begin(self, claim: Claim, now: float) -> bool:
        """Tell whether a claim is admitted at once; else it waits from now on."""
        claim.since = claim.ask_at = now
        if self.try_begin(claim):
            return True
        if not claim.reserves and self._lacked.isdisjoint(claim.amounts):
            self._lacked.update(self._lacking(claim))
        self.waiting.append(claim)
        return False

    def serve(self, granted: Collection[str] = ()) -> list[Claim]:
        """Admit what idle rights now suffice for: who was just granted some, then by age.

        Nobody takes what an older claim lacks.
        """
        self._lacked = set()
        if not self.waiting:
            return []
        admitted: dict[str, Claim] = {}
        in_order = self.waiting
        if granted:
            in_order = sorted(self.waiting, key=lambda claim: claim.id not in granted)
        for claim in in_order:
            lacking = self._lacking(claim, granted=claim.id in granted)
            if lacking or claim.reserves or not self._lacked.isdisjoint(claim.amounts):
                self._lacked.update(lacking, claim.short)
            else:
                self._hold(claim)
                admitted[claim.id] = claim
        if admitted:
            self.waiting = [claim for claim in self.waiting if claim.id not in admitted]
        return [*admitted.values()]

    def withdraw(self, claim: Claim) -> None:
        """Forget a claim that waits, whose client has gone; then call `serve`."""
        self.waiting.remove(claim)

    def used_by(
        self, claim: Claim, costs: Mapping[BudgetId, int]
    ) -> Sequence[tuple[BudgetId, int]]:
        """Return which rights the charge of a request uses up that costs so much of its budgets.

        What it costs beyond its hold takes idle rights, as far as there are any. The rest is in
        what the budget has used, and in nobody's rights.
        """
        return [
            (budget, min(costs[budget], amount + max(0, self.lease(budget).idle)))
            for budget, amount in claim.amounts.items()
        ]

    def end(self, claim: Claim, used: Sequence[tuple[BudgetId, int]] = (), seq: int = 0) -> None:
        """End an admitted request, without a charge or with that number. Then call `serve`."""
        for budget, amount in claim.amounts.items():
            self.lease(budget).held -= amount
        for budget, right in used:
            self.lease(budget).rights -= right
        if used:
            self._unbooked.append((seq, used))

    def acknowledge(self, booked_seq: int) -> None:
        """Learn from the books up to which number the own charges are in the database."""
        self._acknowledged = max(self._acknowledged, booked_seq)
        while self._unbooked and self._unbooked[0][0] <= booked_seq:
            self._unbooked.popleft()

    def forget(self) -> Sequence[Claim]:
        """Return all that waits, and forget it: the database does not answer."""
        waiting, self.waiting, self._lacked = self.waiting, [], set()
        return waiting

    def _lacking(self, claim: Claim, *, granted: bool = False) -> list[BudgetId]:
        """Return of which budgets idle rights do not suffice; those recalled are for a grant."""
        return [
            budget
            for budget, amount in claim.amounts.items()
            if (lease := self._leases.get(budget)) is None
            or lease.rights - lease.held < amount
            or (budget in self._recalled and not granted)
        ]

    def _hold(self, claim: Claim) -> None:
        for budget, amount in claim.amounts.items():
            lease = self._leases[budget]
            lease.held += amount
            lease.spent += amount

    # Operations

    def next_operation(self, now: float, today: str) -> Operation | None:
        """Return the transaction to run now; None while one is under way, or if there is none."""
        if self.lane is not None or self.cut_off or now < self._not_before:
            return None
        if today > self._today:
            self._today = today
            self._past = {budget for budget in self._leases if not budget.covers(today)}
        self.lane = self._next(now)
        return self.lane

    def wakes_at(self) -> float:
        """Return when to ask for the next operation, if nothing happens before."""
        asking = (each.ask_at for each in self.waiting[:MOST_AT_ONCE])
        return max(self._not_before, min([self._poll_at, *asking]))

    def notice(self, budget: BudgetId | None, now: float) -> None:
        """Hear that a row is wanted, or that something has changed: only a reason to look."""
        if budget is None:
            self._poll_at = now
        elif budget in self._leases:
            self._recalled.add(budget)
            self._poll_at = min(self._poll_at, now + self._timing.poll / 2)

    def unanswered(self, operation: Operation, now: float) -> None:
        """Learn that the connection broke: whether the operation was done is not known."""
        if operation is self.lane:
            self.lane = None
            self._not_before = now + self._timing.retry / 2
            self.in_doubt = self.registered

    def answered(self, operation: Operation, answer: Answer) -> Decided:
        """Take the answer; return whose wait it ends."""
        if operation is not self.lane:
            return Decided()  # it was given up
        self.lane = None
        if answer is Standing.CUT_OFF:
            self.cut_off = True
            for lease in self._leases.values():
                lease.rights = lease.held
            return Decided()
        if answer is Standing.STALE:
            self.in_doubt = True
        elif isinstance(answer, Polled):
            self.registered = True
            self._recalled = set(answer.recalled)
        elif isinstance(answer, Fenced):
            self._reread(answer)
        else:
            self._op += 1
            if isinstance(answer, Granted):
                return self._decided(operation, answer)
        return Decided(self.serve())

    def _next(self, now: float) -> Operation | None:
        me = (self._epoch, self._op)
        if not self.registered:
            return Operation("register", *me)
        if self.in_doubt:
            return Operation("fence", *me)
        if now >= self._poll_at:
            self._poll_at = now + self._timing.poll
            return Operation("poll", *me)
        due, asking = self._taken(self._recalled | self._past), self.waiting[:MOST_AT_ONCE]
        if not any(claim.ask_at <= now for claim in asking):
            return Operation("give_back", *me, due) if due else None
        due |= self._taken({b for claim in asking if claim.reserves for b in claim.amounts})
        budgets = {budget for claim in asking for budget in claim.amounts}
        idle = {budget: max(0, self.lease(budget).idle) for budget in budgets}
        wishes = {budget: self._wish(budget, now) for budget in budgets}
        asks = [self._ask(claim, now) for claim in asking]
        return Operation("grant", *me, due, asks, idle, wishes)

    def _ask(self, claim: Claim, now: float) -> Ask:
        waited, claim.ask_at = now - claim.since, now + self._timing.retry
        last = waited >= self._timing.wait
        short = claim.short.intersection(claim.amounts)
        return Ask(claim.id, claim.amounts, waited, last, claim.reserves, short)

    def _taken(self, budgets: Iterable[BudgetId]) -> dict[BudgetId, int]:
        """Take the idle rights of some budgets away, and return them."""
        found: dict[BudgetId, int] = {}
        for budget in budgets:
            if len(found) == MOST_AT_ONCE:
                break  # the rest is for the next transaction
            lease = self._leases.get(budget)
            if lease is not None and (idle := lease.idle) > 0:
                found[budget] = idle
                lease.rights -= idle
                if not lease.rights:
                    del self._leases[budget]
        return found

    def _wish(self, budget: BudgetId, now: float) -> int:
        """Return how much beyond the need would last a while, and measure anew."""
        lease = self.lease(budget)
        elapsed, lease.since = max(now - lease.since, self._timing.retry), now
        spent, lease.spent = lease.spent, 0
        return int(spent * self._timing.lease / elapsed)

    def _reread(self, answer: Fenced) -> None:
        if answer.booked_seq < self._acknowledged:
            return  # charges that it does not count are forgotten here: the fence is sent again
        self.in_doubt, self._op, self._today = False, answer.op, ""
        unbooked: defaultdict[BudgetId, int] = defaultdict(int)
        for seq, used in self._unbooked:
            for budget, right in used if seq > answer.booked_seq else ():
                unbooked[budget] += right
        for budget in {*self._leases, *answer.granted}:
            self.lease(budget).rights = answer.granted.get(budget, 0) - unbooked[budget]

    def _decided(self, operation: Operation, answer: Granted) -> Decided:
        for budget, amount in answer.got.items():
            self.lease(budget).rights += amount
            if not budget.covers(self._today):
                self._past.add(budget)
        self._recalled.difference_update(answer.recalled)
        self._recalled.update(budget for budget, recalled in answer.recalled.items() if recalled)
        # Those that were asked for are the first ones, still.
        asked, fit = self.waiting[:MOST_AT_ONCE], frozenset(answer.fit)
        for claim in asked:
            claim.short = claim.short.union(answer.short.get(claim.id, ()))
        over = {ask.id for ask in operation.asks if ask.last}.union(answer.hopeless) - fit
        reserved = [each for each in asked if each.reserves and each.id in fit]
        admitted = [*reserved, *self.serve(fit)]
        refused = [claim for claim in self.waiting[:MOST_AT_ONCE] if claim.id in over]
        gone = {claim.id for claim in (*reserved, *refused)}
        if not gone:
            return Decided(admitted)
        self.waiting = [claim for claim in self.waiting if claim.id not in gone]
        return Decided([*admitted, *self.serve()], refused)
