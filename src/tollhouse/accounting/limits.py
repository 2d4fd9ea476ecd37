"""Limits: the operator's numbers, when a limit starts anew, and budgets: what counts towards one.

A window of a limit begins at midnight UTC: of each day, of each Monday, of the first of each month.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from tollhouse.accounting.types import BudgetScope, KeyLimit, KeyUsage, Reset
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.money import NANO_PER_CREDIT, format_credits, round_to_nano

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tollhouse.accounting.owner import OwnerLimit, OwnerUse
    from tollhouse.accounting.types import GenerationRecord, Spend
    from tollhouse.settings.sections import ByokSettings, LimitsSettings

_DAY = timedelta(days=1)
_WEEK = timedelta(weeks=1)
_LONGEST_MONTH = timedelta(days=31)
_ENFORCED = tuple(BudgetScope)
INTERVALS: Final = (*Reset, None)
"""The shortest first; None is for ever."""
UNLIMITED: Final = 1 << 100
"""The limit of a budget that has none: nobody uses so much up, so that nothing asks for it."""


@dataclass(frozen=True, slots=True)
class AccountingRules:
    """The numbers that the operator may set; amounts in nano-credits."""

    fraction: Fraction = Fraction(1, 2)
    """The part of the balance that requests in flight may hold."""
    ceiling_nano: int = 50 * NANO_PER_CREDIT
    request_cap_nano: int = 2 * NANO_PER_CREDIT
    """The most that is held for one request; what is held where it names no output limit."""
    threshold_nano: int = 500 * NANO_PER_CREDIT
    """The balance from which no in-flight budget applies."""
    new_accounts: bool = False
    """Whether it applies, whatever the balance, to accounts that never used anything."""
    settlement_seconds: float = 5.0
    """How long a request's cost stays in the budget after its end."""
    wait_seconds: float = 2.0
    """How long a request waits for room that others hold."""
    hold_seconds: float = 3_600.0
    """When a hold ends whose request never did."""
    free_per_minute: int = 20
    free_per_day: int = 50
    free_per_day_raised: int = 1_000
    raised_from_nano: int = 9 * NANO_PER_CREDIT
    """Purchases from which the higher daily ceiling holds."""
    source_prefix: str = "service_"
    own_fee: Fraction = Fraction(0)
    """The part of its price that a request costs that an own provider key serves."""
    free_own_a_month: int = 0
    """How many of those of an account in a UTC month cost nothing."""


def rules_of(settings: LimitsSettings, byok: ByokSettings) -> AccountingRules:
    """Return the rules that the settings give."""
    enough = settings.free_raised_from - settings.free_raised_tolerance
    return AccountingRules(
        fraction=Fraction(settings.in_flight_fraction),
        ceiling_nano=round_to_nano(settings.in_flight_ceiling),
        request_cap_nano=round_to_nano(settings.in_flight_request_cap),
        threshold_nano=round_to_nano(settings.in_flight_threshold),
        new_accounts=settings.in_flight_new_accounts,
        settlement_seconds=settings.settlement_seconds,
        wait_seconds=settings.admission_wait_seconds,
        free_per_minute=settings.free_requests_per_minute,
        free_per_day=settings.free_requests_per_day,
        free_per_day_raised=settings.free_requests_per_day_raised,
        raised_from_nano=round_to_nano(max(enough, Decimal(0))),
        source_prefix=settings.limit_source_prefix,
        own_fee=Fraction(byok.fee_percent) / 100,
        free_own_a_month=byok.free_requests_a_month,
    )


def window_start(reset: Reset, today: date) -> date:
    """Return the first day of the window that a UTC day is in."""
    if reset is Reset.DAILY:
        return today
    return today - today.weekday() * _DAY if reset is Reset.WEEKLY else today.replace(day=1)


def resets_at(reset: Reset, today: date) -> datetime:
    """Return the midnight UTC at which the window that a UTC day is in ends.

    The day is before the last month of the year 9999.
    """
    start = window_start(reset, today)
    if reset is Reset.MONTHLY:
        following = (start + _LONGEST_MONTH).replace(day=1)
    else:
        following = start + (_DAY if reset is Reset.DAILY else _WEEK)
    return datetime.combine(following, time(), UTC)


class BudgetId(NamedTuple):
    """What the database calls a limit in one of its windows."""

    scope: str
    id: str
    window: str = ""
    """Its first day and the day after its last, `2026-11-01..2026-12-01`; empty for ever."""

    def covers(self, day: str) -> bool:
        """Tell whether what is admitted on a UTC day counts."""
        return not self.window or self.window[:10] <= day < self.window[12:]


@dataclass(slots=True)
class Budget:
    """A limit that requests draw on, and what counts towards it.

    Admission keeps one for each limit, which follows the days, charges and what requests hold. Of
    one that was read for an answer what counts is of that moment.
    """

    scope: BudgetScope
    limit_nano: int = UNLIMITED
    spend_nano: int = 0
    """Used in its window."""
    reset: Reset | None = None
    resets_at: datetime | None = None
    include_byok: bool = False
    id: str | None = None
    """Of a workspace's, a person's or an end user's limit; None of a key's."""
    reserved_nano: int = 0
    """What batches have reserved: it counts in whichever window."""
    held_nano: int = 0
    """What requests under way hold."""
    owner_id: str = ""
    """Whose it is: a key's hash, the id of an account, of a workspace and so on."""
    named: tuple[date, BudgetId] | None = field(default=None, repr=False, compare=False)
    """A UTC day, and its name in the window of that day, once somebody asked for it."""
    left_nano: int = field(init=False, repr=False, compare=False)
    """What is left for requests, those under way included. Kept, since each asks several times."""
    _day: date | None = field(default=None, repr=False, compare=False)
    """The UTC day whose window it is in."""
    _start: date = field(default=date.max, repr=False, compare=False)
    _days: dict[date, int] = field(default_factory=dict[date, int], repr=False, compare=False)

    def __post_init__(self) -> None:
        self._spent(self.spend_nano)

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self.limit_nano != UNLIMITED

    @property
    def remaining_nano(self) -> int:
        """What is left; negative where the limit was lowered below what is used.

        Source: the public gateway's clients, which document `remaining_usd` as this difference.
        """
        return self.limit_nano - self.spend_nano

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left."""
        return self.remaining_nano <= 0

    def load(
        self,
        limit: KeyLimit | OwnerLimit,
        total: Spend,
        days: Mapping[date, Spend],
        reserved_nano: int,
        unbooked: Iterable[GenerationRecord] = (),
    ) -> Self:
        """Replace all but what is held by what the books say, and what is on its way to them.

        It is in the window that it was in, if it was in one, and in none otherwise: call `on` then.
        """
        before = self._day
        self.limit_nano = UNLIMITED if limit.limit_nano is None else limit.limit_nano
        self.reset, self.include_byok = limit.reset, limit.include_byok
        self.reserved_nano, self.resets_at = reserved_nano, None
        self._days = {day: self._nano(spend) for day, spend in days.items()}
        self._day, self._start, self.named = None, date.max, None
        self._spent(self._nano(total))
        for record in unbooked:
            self.charged(record)
        return self if before is None else self.on(before)

    def on(self, day: date) -> Self:
        """Go to the window that a UTC day is in.

        Later days count, too: they are there where a clock was set back.
        """
        if self.reset is not None and day != self._day:
            self._day, self._start = day, window_start(self.reset, day)
            self.resets_at = resets_at(self.reset, day)
            self._spent(sum(nano for at, nano in self._days.items() if at >= self._start))
        return self

    def charged(self, record: GenerationRecord, nano: int | None = None) -> None:
        """Count a generation on its way to the books; `nano` in place of what it cost."""
        if self.limit_nano == UNLIMITED:
            return
        if nano is None:
            nano = self._nano(record.spend) if self.include_byok else record.cost_nano
        if self.reset is not None:
            day = record.utc_day
            self._days[day] = self._days.get(day, 0) + nano
            if day < self._start:
                return
        self.spend_nano += nano
        self.left_nano -= nano

    def _spent(self, nano: int) -> None:
        self.spend_nano = nano
        self.left_nano = self.limit_nano - nano - self.reserved_nano

    def _nano(self, spend: Spend) -> int:
        return spend.usage_nano + (spend.byok_usage_nano if self.include_byok else 0)


@dataclass(frozen=True, slots=True)
class KeyStatus:
    """A key's use beside what it may use."""

    usage: KeyUsage = field(default_factory=KeyUsage)
    limit: KeyLimit = field(default_factory=KeyLimit)
    budgets: tuple[Budget, ...] = ()
    reserved_nano: int = 0

    @property
    def remaining_nano(self) -> int | None:
        """What is left of the key's own limit, without what is reserved; None where it has none."""
        own = self.own_budget
        return None if own is None else max(0, own.remaining_nano - self.reserved_nano)

    @property
    def own_budget(self) -> Budget | None:
        """The budget that the key's own limit makes; None where it has none."""
        own = (each for each in self.budgets if each.scope is BudgetScope.KEY_LIMIT)
        return next(own, None)


def key_status(limit: KeyLimit, usage: KeyUsage, today: date, reserved_nano: int = 0) -> KeyStatus:
    """Return a key's use beside what it may use, on the UTC day that the usage is of."""
    if limit.limit_nano is None:
        return KeyStatus(usage, limit, (), reserved_nano)
    own = Budget(BudgetScope.KEY_LIMIT)
    own.load(limit, usage.since(limit.reset), {}, reserved_nano)
    own.resets_at = None if limit.reset is None else resets_at(limit.reset, today)
    return KeyStatus(usage, limit, (own,), reserved_nano)


def budget_of(limit: OwnerLimit, use: OwnerUse, today: date) -> Budget:
    """Return what is left of the limit of a workspace, a person or an end user on a UTC day."""
    reserved = use.held_for_batches(include_byok=limit.include_byok)
    budget = Budget(limit.owner.scope, id=limit.id, owner_id=limit.owner.id)
    return budget.load(limit, use.total, use.days, reserved).on(today)


def check_nested(limit_nano: int, reset: Reset | None, others: Iterable[OwnerLimit]) -> None:
    """Refuse a limit unless it is larger than those of shorter intervals, and smaller than others.

    Source: the public gateway's budgets: "must strictly decrease as the interval narrows".

    Raises:
        Invalid: It is not.
    """
    place = INTERVALS.index(reset)
    for other in others:
        shorter = INTERVALS.index(other.reset) < place
        fits = other.limit_nano < limit_nano if shorter else other.limit_nano > limit_nano
        if other.reset is not reset and not fits:
            raise Invalid(
                f"limit_usd: must be {'more' if shorter else 'less'} than the "
                f"{interval_name(other.reset)} limit of {format_credits(other.limit_nano)}."
            )


def interval_name(reset: Reset | None) -> str:
    """Return what an interval is called in the database and on the wire."""
    return "lifetime" if reset is None else reset.value


def interval_of(name: str) -> Reset | None:
    """Return the interval of a name."""
    return None if name == "lifetime" else Reset(name)


def effective_budget(budgets: Iterable[Budget]) -> Budget | None:
    """Return the budget that refuses first; None where there is none.

    That is the first in the order of enforcement that is spent already, otherwise the one with
    the least left; of several with as little, the first in that order.

    Source: the public gateway's key information, `effective_budget`.
    """
    in_order = sorted(budgets, key=lambda budget: _ENFORCED.index(budget.scope))
    spent = next((budget for budget in in_order if budget.is_spent), None)
    return spent or min(in_order, key=lambda budget: budget.remaining_nano, default=None)
