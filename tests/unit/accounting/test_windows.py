from datetime import UTC, date, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.seams.accounting import Reset, resets_at, window_start
from tests.support.tables import tables

CASES = tables(__file__)

DAY = timedelta(days=1)
days = st.dates(date(1900, 1, 1), date(2500, 12, 31))
resets = st.sampled_from(Reset)


def window(reset: Reset, day: date) -> tuple[date, date]:
    """Return the first day of a window and the first one after it."""
    start, end = window_start(reset, day), resets_at(reset, day)
    assert (end.tzinfo, end.time().isoformat()) == (UTC, "00:00:00")
    return start, end.date()


@pytest.mark.parametrize(
    ("reset", "day", "start", "end"), CASES["a_window_is_a_day_a_week_from_monday_or_a_month"]
)
def test_a_window_is_a_day_a_week_from_monday_or_a_month(
    reset: str, day: str, start: str, end: str
) -> None:
    found = window(Reset(reset), date.fromisoformat(day))
    assert found == (date.fromisoformat(start), date.fromisoformat(end))


@given(resets, days)
def test_all_days_of_a_window_have_the_same_window(reset: Reset, day: date) -> None:
    start, end = window(reset, day)
    assert {window(reset, start + n * DAY) for n in range((end - start).days)} == {(start, end)}


@given(days)
@example(date(2024, 2, 29))
@example(date(2026, 12, 31))
@example(date(2027, 1, 1))
def test_agree_with_the_calendar(day: date) -> None:
    next_day = day + DAY
    start, end = window(Reset.WEEKLY, day)
    assert (start.isoweekday(), (end - start).days) == (1, 7)
    assert start.isocalendar()[:2] == day.isocalendar()[:2]
    start, end = window(Reset.MONTHLY, day)
    assert (start.day, end.day) == (1, 1)
    assert (start.year, start.month) == (day.year, day.month)
    assert (end == next_day) == (next_day.day == 1)
    assert window(Reset.DAILY, day) == (day, next_day)
