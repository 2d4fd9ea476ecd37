import re
from datetime import UTC, datetime, timedelta, timezone

from tollhouse.kernel.clock import SystemClock, iso_utc, unix_seconds
from tollhouse.kernel.ids import RandomIds


def test_the_system_clock_is_aware_and_in_utc() -> None:
    assert SystemClock().now().utcoffset() == timedelta(0)


def test_the_monotonic_clock_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)


def test_unix_seconds_are_whole_and_rounded_down() -> None:
    assert unix_seconds(datetime(1970, 1, 1, 0, 0, 1, 999_999, tzinfo=UTC)) == 1


def test_wire_dates_have_milliseconds_and_a_z() -> None:
    instant = datetime(2026, 3, 1, 1, 0, 0, 123_456, tzinfo=timezone(timedelta(hours=2)))
    assert iso_utc(instant) == "2026-02-28T23:00:00.123Z"


def test_random_ids_have_the_shape_that_they_promise() -> None:
    ids = RandomIds()
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", ids.uuid()
    )
    assert re.fullmatch(r"gen-1700000000-[0-9a-f]{20}", ids.generation(1_700_000_000))
    assert re.fullmatch(r"[\w-]{43}", ids.key_material(), re.ASCII)


def test_random_ids_do_not_repeat() -> None:
    ids = RandomIds()
    assert len({ids.key_material() for _ in range(1_000)}) == 1_000
