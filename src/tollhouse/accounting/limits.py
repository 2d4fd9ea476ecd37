"""Limits: the operator's numbers, when a limit starts anew, and what is left of a key's budgets.

A window of a limit begins at midnight UTC: of each day, of each Monday, of the first of each month.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from tollhouse.accounting.types import NO_SPEND, Budget, BudgetScope, KeyStatus, Reset
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.money import NANO_PER_CREDIT, format_credits, round_to_nano

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tollhouse.accounting.owner import OwnerLimit, OwnerUse
    from tollhouse.accounting.types import KeyLimit, KeyUsage, Spend
    from tollhouse.settings.sections import ByokSettings, LimitsSettings

_DAY = timedelta(days=1)
_WEEK = timedelta(weeks=1)
_LONGEST_MONTH = timedelta(days=31)
_ENFORCED = tuple(BudgetScope)
INTERVALS: Final = (*Reset, None)
"""The shortest first; None is for ever."""


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


def key_status(limit: KeyLimit, usage: KeyUsage, today: date, reserved_nano: int = 0) -> KeyStatus:
    """Return a key's use beside what it may use, on the UTC day that the usage is of."""
    if limit.limit_nano is None:
        return KeyStatus(usage, limit, (), reserved_nano)
    spend = spend_since_reset(usage, limit.reset)
    own = Budget(
        scope=BudgetScope.KEY_LIMIT,
        limit_nano=limit.limit_nano,
        spend_nano=spend.usage_nano + (spend.byok_usage_nano if limit.include_byok else 0),
        reset=limit.reset,
        resets_at=None if limit.reset is None else resets_at(limit.reset, today),
        include_byok=limit.include_byok,
        reserved_nano=reserved_nano,
    )
    return KeyStatus(usage, limit, (own,), reserved_nano)


def budget_of(limit: OwnerLimit, use: OwnerUse, today: date) -> Budget:
    """Return what is left of the limit of a workspace, a person or an end user on a UTC day."""
    spend, reset = use.total, limit.reset
    if reset is not None:
        start = window_start(reset, today)
        # As in admission, later days count too where a clock was set back.
        spend = sum((each for day, each in use.days.items() if day >= start), NO_SPEND)
    return Budget(
        scope=limit.owner.scope,
        limit_nano=limit.limit_nano,
        spend_nano=spend.usage_nano + (spend.byok_usage_nano if limit.include_byok else 0),
        reset=reset,
        resets_at=None if reset is None else resets_at(reset, today),
        include_byok=limit.include_byok,
        id=limit.id,
        reserved_nano=use.held_for_batches(include_byok=limit.include_byok),
    )


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


def spend_since_reset(usage: KeyUsage, reset: Reset | None) -> Spend:
    """Return what a key used in the current window; over all time where nothing is reset."""
    if reset is None:
        return usage.total
    if reset is Reset.DAILY:
        return usage.daily
    return usage.weekly if reset is Reset.WEEKLY else usage.monthly


def effective_budget(budgets: Iterable[Budget]) -> Budget | None:
    """Return the budget that refuses first; None where there is none.

    That is the first in the order of enforcement that is spent already, otherwise the one with
    the least left; of several with as little, the first in that order.

    Source: the public gateway's key information, `effective_budget`.
    """
    in_order = sorted(budgets, key=lambda budget: _ENFORCED.index(budget.scope))
    spent = next((budget for budget in in_order if budget.is_spent), None)
    return spent or min(in_order, key=lambda budget: budget.remaining_nano, default=None)
