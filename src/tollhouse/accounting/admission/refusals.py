"""How a refusal for want of credits or room looks to the caller.

Source: the public gateway's tables of 402 and 429 errors; `limits` beyond them is ours.
"""

from __future__ import annotations

from datetime import timedelta
from math import ceil
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.types import FREE_PER_DAY, limit_source
from tollhouse.accounting.types import Reset
from tollhouse.accounting.windows import resets_at
from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.errors import PaymentRequired, RateLimited, RateWindow

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date, datetime

    from tollhouse.accounting.admission.types import AdmissionRefusal, CreditLimit, Rate


def payment_required(
    refusal: AdmissionRefusal, limits: Sequence[CreditLimit], prefix: str
) -> PaymentRequired:
    """Return the 402 of a refusal.

    Args:
        refusal: Why.
        limits: Every limit of credits, the binding one first.
        prefix: What every `limit_source` begins with.
    """
    return PaymentRequired(
        refusal.message,
        metadata={
            "error_type": PaymentRequired.code,
            "reason": refusal.reason,
            "limit_source": limit_source(refusal.source, prefix),
            "remedy_hint": refusal.remedy,
            "limits": [shown(limit, prefix) for limit in limits],
        },
        retry_after=None if refusal.retry_after is None else max(1, ceil(refusal.retry_after)),
    )


def shown(limit: CreditLimit, prefix: str) -> dict[str, object]:
    """Return a limit in credits, as metadata shows it."""
    return {
        "limit_source": limit_source(limit.source, prefix),
        "payer": limit.is_payers,
        **limit.amounts(),
        "resets_at": None if limit.resets_at is None else iso_utc_seconds(limit.resets_at),
    }


def too_many_a_minute(rate: Rate, wait: float, now: datetime) -> RateLimited:
    """Return the 429 of a limit of requests in a minute.

    Args:
        rate: The limit.
        wait: Seconds until another request fits.
        now: The time of day.
    """
    return _limited(
        f"Rate limit exceeded: {rate.bucket}. Wait {ceil(wait)} seconds.",
        RateWindow(rate.per_minute, 0, now + timedelta(seconds=wait)),
    )


def too_many_a_day(limit: int, raised: int, today: date) -> RateLimited:
    """Return the 429 of the daily limit of requests to free models.

    Args:
        limit: The account's.
        raised: That of accounts that bought credits.
        today: The UTC day that is used up.
    """
    more = f" Purchased credits raise it to {raised} requests a day." if limit < raised else ""
    return _limited(
        f"Rate limit exceeded: {FREE_PER_DAY}. Wait for the next UTC day.{more}",
        RateWindow(limit, 0, resets_at(Reset.DAILY, today)),
    )


def _limited(message: str, window: RateWindow) -> RateLimited:
    metadata = {"error_type": RateLimited.code, "headers": window.headers()}
    return RateLimited(message, metadata=metadata, window=window)
