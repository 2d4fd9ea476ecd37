import asyncio
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tollhouse.interns.runtimes import quota
from tollhouse.interns.runtimes.base import Launch, SandboxLimits
from tollhouse.interns.runtimes.quota import (
    DiskWatch,
    Measurement,
    WorkspaceLimits,
    ceiling,
    growth_per_second,
    is_over_limit,
    keeps_growing,
    measure_workspace,
    measurement_is_due,
    next_measurement_at,
    seconds_to_next_check,
)
from tollhouse.interns.workspaces.contents import UNCOUNTABLE, DiskUsage, measure
from tollhouse.interns.workspaces.jobs import JobBroken, WorkspaceJobs
from tollhouse.interns.workspaces.tree import TreeMoved

_MIB = 1024 * 1024
_FREE = DiskUsage(1000, 1000)
_LIMITS = WorkspaceLimits(100, 100)
_NOTHING = DiskUsage(0, 0)


def seen(seconds: float = 0, speed: DiskUsage = _NOTHING) -> Measurement:
    return Measurement(0, seconds, DiskUsage(60, 60), _FREE, speed)


def of_each(count: int, other: int = 0) -> list[DiskUsage]:
    """So much in bytes, and as much in names."""
    return [DiskUsage(count, other), DiskUsage(other, count)]


def due(
    now: float, lost: DiskUsage = _NOTHING, at: Measurement | None = None, *, full: bool = False
) -> bool:
    """Tell whether one is measured that had 40 bytes and 40 names left."""
    free = DiskUsage(_FREE.disk_bytes - lost.disk_bytes, _FREE.names - lost.names)
    return measurement_is_due(at or seen(), DiskUsage(40, 40), now, free, full=full)


def test_a_look_comes_before_more_than_half_of_what_is_left_can_be_used_up() -> None:
    speed = DiskUsage(4 * 1024 * _MIB, 1_000_000)
    assert seconds_to_next_check(DiskUsage(1024 * _MIB, 1 << 40), speed) == 1 / 8
    assert seconds_to_next_check(DiskUsage(1 << 50, 100_000), speed) == 1 / 20
    assert seconds_to_next_check(DiskUsage(1024 * _MIB, 100_000), speed) == 1 / 20


def test_one_that_has_not_grown_may_grow_at_any_time() -> None:
    assert seconds_to_next_check(DiskUsage(64 * _MIB, 1 << 40), _NOTHING) == 64 / 2048
    assert seconds_to_next_check(DiskUsage(1 << 50, 5_000), _NOTHING) == 5_000 / 200_000


def test_looks_are_neither_rare_nor_without_a_pause() -> None:
    assert seconds_to_next_check(DiskUsage(1 << 50, 1 << 40), _NOTHING) == 2
    assert seconds_to_next_check(_NOTHING, DiskUsage(1 << 50, 1 << 40)) == 0.02


def test_growth_is_told_by_the_second() -> None:
    assert growth_per_second(DiskUsage(10, 100), DiskUsage(30, 200), 4) == DiskUsage(5, 25)
    assert growth_per_second(DiskUsage(10, 100), DiskUsage(0, 0), 4) == _NOTHING


def test_a_workspace_is_measured_when_the_disk_lost_half_of_what_is_left_to_it() -> None:
    for little, enough in zip(of_each(20), of_each(21), strict=True):
        assert not due(0.1, little)
        assert due(0.1, enough)


def test_it_is_measured_when_it_would_have_grown_by_that_much() -> None:
    for speed in of_each(10):
        assert not due(1.9, at=seen(1, speed))
        assert due(2.1, at=seen(1, speed))


@pytest.mark.parametrize(
    ("took", "full", "after"),
    [
        (0, False, 2),
        (0.01, False, 4),
        (1, False, 60),
        (0, True, 2),
        (0.5, True, 10),
        (100, True, 20),
    ],
)
def test_where_nothing_calls_for_it_it_is_measured_the_less_often_the_longer_that_takes(
    took: float, after: float, *, full: bool
) -> None:
    assert not due(after - 0.01, at=seen(took), full=full)
    assert due(after, at=seen(took), full=full)


def test_measurements_take_a_fifth_of_the_time_at_most() -> None:
    now = paid = 0.0
    began: list[float] = []
    while now < 1000:
        began.append(now)
        now += 0.5
        paid = next_measurement_at(paid, now, 0.5)
        now = max(now, paid)
    assert len(began) * 0.5 / 1000 == pytest.approx(0.2, rel=0.02)


def test_one_that_was_not_measured_for_long_may_be_measured_several_times_at_once() -> None:
    now, paid, count = 1000.0, 0.0, 0
    while paid <= now:
        now, count = now + 0.1, count + 1
        paid = next_measurement_at(paid, now, 0.1)
    assert 20 <= count <= 30
    assert next_measurement_at(0, 1000, 0.5) <= 1000


@pytest.mark.parametrize(
    "held",
    [lambda count: DiskUsage(count, 0), lambda count: DiskUsage(0, count)],
    ids=["bytes", "names"],
)
def test_writing_ends_over_a_limit_and_begins_well_below_it(
    held: Callable[[int], DiskUsage],
) -> None:
    assert not is_over_limit(held(100), _LIMITS, full=False)
    assert is_over_limit(held(101), _LIMITS, full=False)
    assert is_over_limit(held(96), _LIMITS, full=True)
    assert not is_over_limit(held(95), _LIMITS, full=True)


def test_a_little_more_is_forgiven_and_much_more_is_not() -> None:
    stopped = DiskUsage(100 * _MIB, 10_000)
    assert ceiling(_LIMITS, None) == DiskUsage(100, 100)
    assert ceiling(_LIMITS, stopped) == DiskUsage(116 * _MIB, 11_000)
    large = WorkspaceLimits(10_000 * _MIB, 1_000_000)
    assert ceiling(large, stopped) == DiskUsage(200 * _MIB, 20_000)
    assert not keeps_growing(DiskUsage(116 * _MIB, 11_000), stopped, _NOTHING, _LIMITS)
    assert keeps_growing(DiskUsage(116 * _MIB + 1, 0), stopped, _NOTHING, _LIMITS)
    assert keeps_growing(DiskUsage(0, 11_001), stopped, _NOTHING, _LIMITS)


def test_one_that_cannot_be_measured_is_judged_by_what_the_disk_loses() -> None:
    assert not keeps_growing(UNCOUNTABLE, UNCOUNTABLE, DiskUsage(100, 100), _LIMITS)
    assert keeps_growing(UNCOUNTABLE, UNCOUNTABLE, DiskUsage(101, 0), _LIMITS)
    assert keeps_growing(UNCOUNTABLE, UNCOUNTABLE, DiskUsage(0, 101), _LIMITS)


def size(folder: Path) -> int:
    return measure(folder, 1000).disk_bytes


def test_each_name_counts_and_each_file_once(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"empty-{number}").touch()
    assert size(tmp_path) == 10 * 4096
    (tmp_path / "file").write_bytes(b"x" * _MIB)
    (tmp_path / "same").hardlink_to(tmp_path / "file")
    assert _MIB <= size(tmp_path) - 10 * 4096 < 2 * _MIB


def test_what_a_link_leads_to_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/usr")
    assert size(tmp_path) == 4096


@pytest.fixture
def moving(tmp_path: Path) -> Path:
    """A workspace of two folders, each with a megabyte in a folder below it."""
    for name in ("a", "z"):
        (tmp_path / "workspace" / name / "inner").mkdir(parents=True)
        (tmp_path / "workspace" / name / "inner" / "file").write_bytes(b"x" * _MIB)
    return tmp_path / "workspace"


@pytest.mark.parametrize("moment", [2, 3], ids=["just before it is read", "while it is read"])
def test_what_is_moved_away_is_found_by_another_look(moving: Path, moment: int) -> None:
    calls = count(1)

    def move() -> None:
        if next(calls) == moment:
            (moving / "a" / "inner").rename(moving / "0")

    whole = size(moving)
    assert measure(moving, 100, (), move).disk_bytes == whole


def test_folders_that_move_all_the_time_cannot_be_measured(moving: Path) -> None:
    places, calls = [moving / "a" / "inner", moving / "0"], count(1)

    def move() -> None:
        if next(calls) in {3, 5, 8}:  # just as it is in that folder, at each of three looks
            places[0].rename(places[1])
            places.reverse()

    with pytest.raises(TreeMoved):
        measure(moving, 100, (), move)


@pytest.mark.parametrize("in_thread", [2, 100], ids=["by a job", "here"])
async def test_what_is_on_a_disk_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_thread: int
) -> None:
    monkeypatch.setattr("tollhouse.interns.runtimes.quota._NAMES_IN_THREAD", in_thread)
    for number in range(5):
        (tmp_path / f"empty-{number}").touch()
    assert await measure_workspace(WorkspaceJobs(), tmp_path, os.getpid()) == DiskUsage(5 * 4096, 5)


Set = tuple[int, bool]
"""A largest size of files that was set, and whether processes stood still meanwhile."""


class Writers(list[Set]):
    """The processes of a sandbox, as far as they can be told how large files may be."""

    def __call__(self, limit_bytes: int, *, halt: bool) -> None:
        self.append((limit_bytes, halt))


def watching(
    folder: Path,
    writers: Writers,
    clock: FakeClock,
    measuring: Any = None,
    *,
    disk_bytes: int = _MIB,
    files: int = 1000,
) -> DiskWatch:
    bounds = SandboxLimits(1, 1, 1.0, disk_bytes, 1, files)
    unused: Any = None
    launch = Launch("s", 1, folder, folder, unused, {}, bounds)

    async def measured() -> DiskUsage:
        return measure(folder, 10_000)

    return DiskWatch(launch, measuring or measured, writers, clock)


async def test_one_that_keeps_growing_is_to_be_killed(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, Writers(), clock)
    (tmp_path / "filler").write_bytes(b"x" * 2 * _MIB)
    await watch.look()
    (tmp_path / "more").write_bytes(b"x" * 15 * _MIB)
    clock.advance(61)
    await watch.look()
    assert not watch.killed
    (tmp_path / "too-much").write_bytes(b"x" * 2 * _MIB)
    clock.advance(61)
    await watch.look()
    assert watch.killed


async def test_what_it_wrote_before_it_was_stopped_is_not_held_against_it(
    tmp_path: Path, clock: FakeClock
) -> None:
    class Late(Writers):
        def __call__(self, limit_bytes: int, *, halt: bool) -> None:
            super().__call__(limit_bytes, halt=halt)
            if halt:  # a write that was under way ends first
                (tmp_path / "under-way").write_bytes(b"x" * 40 * _MIB)

    watch = watching(tmp_path, Late(), clock)
    (tmp_path / "filler").write_bytes(b"x" * 2 * _MIB)
    for _ in range(3):
        await watch.look()
        assert watch.full
        assert not watch.killed
        clock.advance(61)


class MadeUpDisk:
    """A disk with as much free as a test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = DiskUsage(1 << 50, 1 << 40)
        monkeypatch.setattr(os, "statvfs", self)

    def __call__(self, _: object) -> Any:
        return SimpleNamespace(f_bavail=self.free.disk_bytes, f_frsize=1, f_ffree=self.free.names)

    def lose(self, disk_bytes: int = 0, names: int = 0) -> None:
        self.free = DiskUsage(self.free.disk_bytes - disk_bytes, self.free.names - names)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> MadeUpDisk:
    return MadeUpDisk(monkeypatch)


async def test_nobody_stands_still_because_the_disk_of_the_machine_fills_up(
    tmp_path: Path, clock: FakeClock, disk: MadeUpDisk
) -> None:
    writers = Writers()
    watch = watching(tmp_path, writers, clock)
    await watch.look()
    disk.free = DiskUsage(100 * _MIB, 1 << 40)
    for _ in range(3):
        clock.advance(3)
        await watch.look()
    assert watch.full
    assert not watch.killed
    assert set(writers) == {(0, False)}


@pytest.mark.parametrize("lost", of_each(_MIB * 3 // 4), ids=["bytes", "names"])
async def test_one_that_may_have_filled_up_is_measured_at_the_next_look(
    lost: DiskUsage, tmp_path: Path, clock: FakeClock, disk: MadeUpDisk
) -> None:
    measured = 0

    async def measure() -> DiskUsage:
        nonlocal measured
        measured += 1
        await asyncio.sleep(0)
        return DiskUsage(0, 0)

    watch = watching(tmp_path, Writers(), clock, measure, files=_MIB)
    soon = await watch.look()
    clock.advance(soon)
    await watch.look()
    assert measured == 1
    disk.lose(*lost)
    clock.advance(soon)
    await watch.look()
    assert measured == 2


async def test_one_whose_disk_loses_much_is_looked_at_more_often(
    tmp_path: Path, clock: FakeClock, disk: MadeUpDisk
) -> None:
    async def measure() -> DiskUsage:
        await asyncio.sleep(0)
        return DiskUsage(0, 0)

    watch = watching(tmp_path, Writers(), clock, measure, disk_bytes=1 << 40, files=10_000)
    await watch.look()
    clock.advance(1)
    usual = await watch.look()
    disk.lose(names=200_000)
    clock.advance(1)
    assert await watch.look() == usual / 2


async def test_one_that_cannot_be_measured_has_taken_what_the_disk_lost(
    tmp_path: Path, clock: FakeClock, disk: MadeUpDisk
) -> None:
    found: list[DiskUsage | Exception] = [DiskUsage(_MIB // 2, 1)]

    async def measure() -> DiskUsage:
        await asyncio.sleep(0)
        match found.pop(0):
            case DiskUsage() as held:
                return held
            case error:
                raise error

    watch = watching(tmp_path, Writers(), clock, measure)
    await watch.look()

    async def after(lost: int, *told: DiskUsage | Exception) -> bool:
        found.extend(told)
        disk.lose(lost)
        clock.advance(61)
        await watch.look()
        assert not found
        return watch.full

    assert not await after(_MIB // 2, JobBroken())
    assert await after(_MIB // 2, OSError(), OSError())
    assert not await after(0, DiskUsage(0, 1))


async def test_a_watch_goes_on_when_no_process_is_to_be_had(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_MOST_PAUSE", 0.001)
    monkeypatch.setattr(quota, "_LEAST_PAUSE", 0.001)
    tried = 0

    def limit_files(*_: object, **__: object) -> None:
        nonlocal tried
        tried += 1
        if tried == 1:
            raise BlockingIOError

    (tmp_path / "large").write_bytes(bytes(2 * _MIB))
    watch = watching(tmp_path, Writers(), clock)
    monkeypatch.setattr(watch, "_limit_files", limit_files)
    task = asyncio.create_task(watch.run(lambda: None))
    async with asyncio.timeout(30):
        while not watch.full:
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert tried >= 2
