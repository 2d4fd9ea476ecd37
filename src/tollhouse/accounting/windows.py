"""When a limit started anew last, and when it does next.

A window begins at midnight UTC: of each day, of each Monday, of the first of each month.
"""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, overload

from tollhouse.accounting.types import Reset

if TYPE_CHECKING:
    from datetime import date

_DAY = timedelta(days=1)
_WEEK = timedelta(weeks=1)
_LONGEST_MONTH = timedelta(days=31)


@overload
def window_start(reset: Reset, today: date) -> date: ...


@overload
def window_start(reset: Reset | None, today: date) -> date | None: ...


def window_start(reset: Reset | None, today: date) -> date | None:
    """Return the first day of the window that a day is in.

    Args:
        reset: How often a window begins.
        today: A UTC day.

    Returns:
        The day; None for a window without a beginning, where nothing is ever reset.
    """
    if reset is None:
        return None
    if reset is Reset.DAILY:
        return today
    return today - today.weekday() * _DAY if reset is Reset.WEEKLY else today.replace(day=1)


@overload
def resets_at(reset: Reset, today: date) -> datetime: ...


@overload
def resets_at(reset: Reset | None, today: date) -> datetime | None: ...


def resets_at(reset: Reset | None, today: date) -> datetime | None:
    """Return the instant at which the window that a day is in ends and the next one begins.

    Args:
        reset: How often a window begins.
        today: A UTC day before the last month of the year 9999.

    Returns:
        Midnight UTC; None where nothing is ever reset.
    """
    if reset is None:
        return None
    if reset is Reset.DAILY:
        following = today + _DAY
    elif reset is Reset.WEEKLY:
        following = window_start(reset, today) + _WEEK
    else:
        following = (window_start(reset, today) + _LONGEST_MONTH).replace(day=1)
    return datetime.combine(following, time(), UTC)
