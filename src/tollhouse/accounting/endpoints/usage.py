"""The counters and limits that every description of a key carries."""

from typing import TypedDict

from tollhouse.accounting.types import KeyStanding
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reply


class UsageReply(Reply):
    """A key's limits and counters, in credits; days, weeks (from Monday) and months are UTC."""

    limit: float | None
    """Most credits that the key may use in one window of `limit_reset`; null: no limit."""
    limit_reset: str | None
    """How often the limit starts anew, at midnight UTC, weekly on Mondays; null: never."""
    limit_remaining: float | None
    """What is left of the limit; 0 where more was used; null: no limit."""
    include_byok_in_limit: bool
    """Whether own-provider-key use counts towards the limit."""
    usage: float
    """Credits used over all time."""
    usage_daily: float
    """Credits used in the current day."""
    usage_weekly: float
    """Credits used in the current week."""
    usage_monthly: float
    """Credits used in the current month."""
    byok_usage: float
    """Own-provider-key use over all time."""
    byok_usage_daily: float
    """Own-provider-key use in the current day."""
    byok_usage_weekly: float
    """Own-provider-key use in the current week."""
    byok_usage_monthly: float
    """Own-provider-key use in the current month."""


class Figures(TypedDict):
    """A key's limits and counters by their names on the wire."""

    limit: float | None
    limit_reset: str | None
    limit_remaining: float | None
    include_byok_in_limit: bool
    usage: float
    usage_daily: float
    usage_weekly: float
    usage_monthly: float
    byok_usage: float
    byok_usage_daily: float
    byok_usage_weekly: float
    byok_usage_monthly: float


def figures(standing: KeyStanding) -> Figures:
    """Return a key's limits and counters as they are shown."""
    limit, usage = standing.limit, standing.usage
    return Figures(
        limit=_shown(limit.limit_nano),
        limit_reset=None if limit.reset is None else limit.reset.value,
        limit_remaining=_shown(standing.remaining_nano),
        include_byok_in_limit=limit.include_byok,
        usage=nano_to_float(usage.total.usage_nano),
        usage_daily=nano_to_float(usage.daily.usage_nano),
        usage_weekly=nano_to_float(usage.weekly.usage_nano),
        usage_monthly=nano_to_float(usage.monthly.usage_nano),
        byok_usage=nano_to_float(usage.total.byok_usage_nano),
        byok_usage_daily=nano_to_float(usage.daily.byok_usage_nano),
        byok_usage_weekly=nano_to_float(usage.weekly.byok_usage_nano),
        byok_usage_monthly=nano_to_float(usage.monthly.byok_usage_nano),
    )


def _shown(nano: int | None) -> float | None:
    return None if nano is None else nano_to_float(nano)
