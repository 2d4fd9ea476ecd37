"""Budgets in memory: of keys, and of what their requests have in common.

Methods do not wait, so that a check and the hold that follows it are one step.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.types import (
    BudgetFacts,
    CreditLimit,
    LimitLabel,
    Source,
    label_of,
)
from tollhouse.accounting.leases import BudgetId, window_of
from tollhouse.accounting.limits import INTERVALS, interval_name, resets_at, window_start
from tollhouse.accounting.types import KeyLimit, Reset, Spend

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import date

    from tollhouse.accounting.admission.types import OwnerFacts
    from tollhouse.accounting.owner import Owner
    from tollhouse.accounting.types import GenerationRecord


@dataclass(slots=True, eq=False)
class BudgetState:
    """What counts towards a limit: booked, on its way to the books, held, reserved.

    What batches have reserved counts in whichever window.
    """

    scope: str
    """`key`, or that of its owner."""
    id: str
    limit: KeyLimit = field(default_factory=KeyLimit)
    held_nano: int = 0
    reserved_nano: int = 0
    days: defaultdict[date, Spend] = field(default_factory=lambda: defaultdict(Spend))
    _total: Spend = field(default_factory=Spend)
    _start: date | None = None
    """Of the window that was looked at last."""
    _used: int | None = None
    """What counts in it; None where that has to be reckoned anew."""

    @property
    def name(self) -> str:
        """What it is called among all budgets of its account."""
        return f"{self.scope}:{self.id}:{interval_name(self.limit.reset)}"

    def budget_id(self, today: date) -> BudgetId:
        """Return what the database calls it in the window of a day."""
        return BudgetId(self.scope, self.id, window_of(self.limit.reset, today))

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not self.held_nano

    def load(self, facts: BudgetFacts, unbooked: Iterable[GenerationRecord]) -> None:
        """Replace the facts by what the books say now, and add what is on its way to them."""
        self.limit = facts.limit
        self.reserved_nano = facts.reserved_nano
        self._total = facts.total
        self.days = defaultdict(Spend, facts.days)
        for record in unbooked:
            self._add(record.utc_day, record.spend)
        self._used = None

    def used_nano(self, today: date) -> int:
        """Return what counts towards the limit in the window of a day."""
        reset = self.limit.reset
        start = None if reset is None else window_start(reset, today)
        if start != self._start:
            self._start, self._used = start, None
        if self._used is None:
            spends = (spend for day, spend in self.days.items() if start is None or day >= start)
            self._used = self._nano(self._total if start is None else sum(spends, Spend()))
        return self._used

    def left_nano(self, limit_nano: int, today: date) -> int:
        """Return what is left of a limit for requests, those under way included."""
        return limit_nano - self.used_nano(today) - self.reserved_nano

    def credit_limit(self, today: date, source: Source) -> CreditLimit | None:
        """Return the limit as it stands; None where there is none."""
        if self.limit.limit_nano is None:
            return None
        return CreditLimit(
            source,
            self.limit.limit_nano,
            self.used_nano(today),
            self.held_nano + self.reserved_nano,
            None if self.limit.reset is None else resets_at(self.limit.reset, today),
        )

    def charged(self, day: date, spend: Spend) -> None:
        """Count what a generation cost that the books will count to a UTC day."""
        if self._used is not None and (self._start is None or day >= self._start):
            self._used += self._nano(spend)
        self._add(day, spend)

    def _add(self, day: date, spend: Spend) -> None:
        self._total += spend
        self.days[day] += spend

    def _nano(self, spend: Spend) -> int:
        own = spend.byok_usage_nano if self.limit.include_byok else 0
        return spend.usage_nano + own


LabelledBudget = tuple[BudgetState, LimitLabel]


@dataclass(slots=True, eq=False)
class KeyState(BudgetState):
    """The budget of a key; what interns use whose key it answers for counts as its own."""

    people: Sequence[LabelledBudget] = ()
    """What requests with it draw on of who made it."""
    workspace: Sequence[LabelledBudget] = ()
    """The same of its workspace."""


@dataclass(slots=True, eq=False)
class OwnerState:
    """The budgets of a workspace, a person or an end user, one for each interval."""

    owner: Owner
    budgets: dict[Reset | None, BudgetState] = field(
        default_factory=dict[Reset | None, BudgetState]
    )
    """Also those whose limit was taken away: requests that draw on them still run."""
    limited: Sequence[LabelledBudget] = ()
    """Those that have a limit, the shortest interval first."""

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return all(budget.idle for budget in self.budgets.values())

    def load(self, facts: OwnerFacts, unbooked: Sequence[GenerationRecord]) -> None:
        """Replace the facts by what the books say now, and add what is on its way to them."""
        use, (scope, name) = facts.use, self.owner
        limits = {each.reset: each for each in facts.limits}
        for reset in {*self.budgets, *limits}:
            if (budget := self.budgets.get(reset)) is None:
                budget = self.budgets[reset] = BudgetState(scope.value, name)
            limit, found = KeyLimit(reset=reset), limits.get(reset)
            if found is not None:
                limit = KeyLimit(found.limit_nano, reset, found.include_byok)
            reserved = use.held_for_batches(include_byok=limit.include_byok)
            budget.load(BudgetFacts(limit, use.total, use.days, reserved), unbooked)
        self.limited = tuple(
            (self.budgets[reset], label_of(scope, reset)) for reset in INTERVALS if reset in limits
        )
