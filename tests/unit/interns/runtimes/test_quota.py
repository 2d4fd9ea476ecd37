import asyncio
from pathlib import Path

import pytest

from tollhouse.interns.runtimes import quota
from tollhouse.interns.runtimes.quota import (
    DiskWatch,
    Seen,
    goes_on,
    measure,
    must_not_write,
    walk_is_due,
)
from tollhouse.testing.clock import FakeClock

_MIB = 1024 * 1024
_PLENTY = 1 << 40


def test_a_workspace_is_measured_when_the_disk_lost_half_of_what_is_left_to_it() -> None:
    seen = Seen(at=0, seconds=0, held_bytes=60, free_bytes=1000)
    assert not walk_is_due(seen, 100, 2, 990, full=False)
    assert walk_is_due(seen, 100, 2, 970, full=False)


def test_it_is_measured_at_least_once_a_minute() -> None:
    seen = Seen(at=0, seconds=0, held_bytes=0, free_bytes=1000)
    assert not walk_is_due(seen, 100, 59, 1000, full=False)
    assert walk_is_due(seen, 100, 60, 1000, full=False)


def test_one_that_is_full_is_measured_each_time_so_that_it_may_soon_go_on() -> None:
    seen = Seen(at=0, seconds=0, held_bytes=200, free_bytes=1000)
    assert walk_is_due(seen, 100, 2, 1000, full=True)


def test_a_slow_walk_is_rare() -> None:
    seen = Seen(at=0, seconds=5, held_bytes=0, free_bytes=1000)
    assert not walk_is_due(seen, 100, 99, 0, full=True)
    assert walk_is_due(seen, 100, 100, 0, full=True)


def test_writing_ends_over_the_limit_and_begins_well_below_it() -> None:
    assert not must_not_write(100, 100, _PLENTY, full=False)
    assert must_not_write(101, 100, _PLENTY, full=False)
    assert must_not_write(96, 100, _PLENTY, full=True)
    assert not must_not_write(95, 100, _PLENTY, full=True)


def test_writing_ends_before_the_machine_has_no_space_left() -> None:
    assert must_not_write(0, 100, 100 * _MIB, full=False)


def test_a_little_more_is_forgiven_and_much_more_is_not() -> None:
    assert not goes_on(150 * _MIB, 100 * _MIB)
    assert goes_on(175 * _MIB, 100 * _MIB)


def test_each_name_counts_and_each_file_once(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"empty-{number}").touch()
    assert measure(tmp_path) == 10 * 4096
    (tmp_path / "file").write_bytes(b"x" * _MIB)
    (tmp_path / "same").hardlink_to(tmp_path / "file")
    assert _MIB <= measure(tmp_path) - 10 * 4096 < 2 * _MIB


def test_what_a_link_leads_to_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert measure(tmp_path) == 4096


def test_a_watch_stops_and_lets_go_again(tmp_path: Path, clock: FakeClock) -> None:
    limits: list[int] = []
    watch = DiskWatch("s", tmp_path, _MIB, limits.append, clock)
    assert not watch.look()
    assert (watch.full, limits) == (False, [])
    (tmp_path / "filler").write_bytes(b"x" * 2 * _MIB)
    clock.advance(61)
    assert not watch.look()
    assert (watch.full, limits) == (True, [0])
    (tmp_path / "filler").unlink()
    clock.advance(61)
    assert not watch.look()
    assert (watch.full, limits) == (False, [0, _MIB])


def test_one_that_keeps_growing_is_to_be_killed(tmp_path: Path, clock: FakeClock) -> None:
    watch = DiskWatch("s", tmp_path, _MIB, lambda _: None, clock)
    (tmp_path / "filler").write_bytes(b"x" * 2 * _MIB)
    assert not watch.look()
    (tmp_path / "more").write_bytes(b"x" * 80 * _MIB)
    clock.advance(61)
    assert watch.look()


async def test_a_watch_goes_on_when_no_process_is_to_be_had(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_LOOK_SECONDS", 0.001)
    tried: list[int] = []
    limited = asyncio.Event()
    loop = asyncio.get_running_loop()

    def limit(size: int) -> None:
        tried.append(size)
        if len(tried) == 1:
            raise BlockingIOError
        loop.call_soon_threadsafe(limited.set)

    (tmp_path / "large").write_bytes(bytes(2 * _MIB))
    watch = DiskWatch("s", tmp_path, _MIB, limit, clock)
    watching = asyncio.create_task(watch.run(lambda: None))
    async with asyncio.timeout(30):
        await limited.wait()
        while not watch.full:
            await asyncio.sleep(0.001)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    assert tried[:2] == [0, 0]
