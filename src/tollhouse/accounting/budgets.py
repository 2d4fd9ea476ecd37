"""What the requests of a key may still spend: each limit that holds for them, and its use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.accounting.types import Budget, BudgetScope, KeyStanding, Reset
from tollhouse.accounting.windows import resets_at

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from tollhouse.accounting.types import KeyLimit, KeyUsage, Spend

_ENFORCED = tuple(BudgetScope)


def key_standing(
    limit: KeyLimit, usage: KeyUsage, today: date, reserved_nano: int = 0
) -> KeyStanding:
    """Return a key's use beside what it may use.

    Args:
        limit: What it may use.
        usage: What it used until now.
        today: The UTC day that the usage's current day, week and month belong to.
        reserved_nano: What its batches have reserved.
    """
    own = key_budget(limit, usage, today)
    return KeyStanding(usage, limit, () if own is None else (own,), reserved_nano)


def key_budget(limit: KeyLimit, usage: KeyUsage, today: date) -> Budget | None:
    """Return the budget that a key's own limit makes, or None where it has no limit."""
    if limit.limit_nano is None:
        return None
    spend = spend_since_reset(usage, limit.reset)
    return Budget(
        scope=BudgetScope.KEY_LIMIT,
        limit_nano=limit.limit_nano,
        spend_nano=spend.usage_nano + (spend.byok_usage_nano if limit.include_byok else 0),
        reset=limit.reset,
        resets_at=resets_at(limit.reset, today),
        include_byok=limit.include_byok,
    )


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
