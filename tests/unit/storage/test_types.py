from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.clock import from_millis, to_millis

FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999  # of the years 1 and 9999


@given(st.integers(FIRST, LAST))
def test_an_instant_survives_storage(millis: int) -> None:
    assert to_millis(from_millis(millis)) == millis


def test_an_instant_is_stored_as_whole_milliseconds_rounded_down() -> None:
    assert to_millis(datetime(1970, 1, 1, 0, 0, 1, 1_999, tzinfo=UTC)) == 1_001


def test_an_instant_of_any_zone_comes_back_in_utc() -> None:
    eastern = datetime(2026, 3, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    assert from_millis(to_millis(eastern)) == eastern
    assert from_millis(to_millis(eastern)).tzinfo is UTC


def test_an_instant_that_utc_cannot_express_becomes_the_last_one_that_it_can() -> None:
    beyond = datetime.max.replace(tzinfo=timezone(timedelta(hours=-12)))
    assert to_millis(beyond) == LAST
    assert from_millis(LAST).year == 9999
