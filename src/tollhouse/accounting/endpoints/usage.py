"""The counters and limits that every description of a key carries."""

from typing import TypedDict

from tollhouse.accounting.types import KeyUsage
from tollhouse.kernel.money import nano_to_float
from tollhouse.kernel.wire import Reply


class UsageReply(Reply):
    """A key's limits and counters, in credits; days, weeks (from Monday) and months are UTC."""

    limit: float | None = None
    """Most credits that the key may use; null: no limit."""
    limit_reset: str | None = None
    """When the limit starts anew: daily, weekly, monthly; null: never."""
    limit_remaining: float | None = None
    """What is left of the limit; null: no limit."""
    include_byok_in_limit: bool = False
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


class Counters(TypedDict):
    """The eight counters by their names on the wire."""

    usage: float
    usage_daily: float
    usage_weekly: float
    usage_monthly: float
    byok_usage: float
    byok_usage_daily: float
    byok_usage_weekly: float
    byok_usage_monthly: float


def counters(usage: KeyUsage) -> Counters:
    """Return a key's counters as they are shown."""
    return Counters(
        usage=nano_to_float(usage.total.usage_nano),
        usage_daily=nano_to_float(usage.daily.usage_nano),
        usage_weekly=nano_to_float(usage.weekly.usage_nano),
        usage_monthly=nano_to_float(usage.monthly.usage_nano),
        byok_usage=nano_to_float(usage.total.byok_usage_nano),
        byok_usage_daily=nano_to_float(usage.daily.byok_usage_nano),
        byok_usage_weekly=nano_to_float(usage.weekly.byok_usage_nano),
        byok_usage_monthly=nano_to_float(usage.monthly.byok_usage_nano),
    )
