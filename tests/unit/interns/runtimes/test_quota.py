import asyncio
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tollhouse.interns.runtimes import quota
from tollhouse.interns.runtimes.base import Launch, SandboxLimits
from tollhouse.interns.runtimes.quota import (
    DiskWatch,
    Limits,
    Scales,
    Seen,
    goes_on,
    must_not_write,
    walk_is_due,
)
from tollhouse.interns.size import BEYOND, Held, measure
from tollhouse.interns.tree import TreeMoved, TreeTooLarge
from tollhouse.interns.walks.walker import WalkBroken
from tollhouse.testing.clock import FakeClock

_MIB = 1024 * 1024
_PLENTY = 1 << 40
_FREE = Held(1000, 1000)
_LIMITS = Limits(100, 100)


def seen(held_bytes: int, seconds: float = 0) -> Seen:
    return Seen(0, seconds, Held(held_bytes, 1), _FREE)


def test_a_workspace_is_measured_when_the_disk_lost_half_of_what_is_left_to_it() -> None:
    assert not walk_is_due(seen(60), 100, 2, 990, full=False)
    assert walk_is_due(seen(60), 100, 2, 970, full=False)


def test_it_is_measured_at_least_once_a_minute() -> None:
    assert not walk_is_due(seen(0), 100, 59, 1000, full=False)
    assert walk_is_due(seen(0), 100, 60, 1000, full=False)


def test_one_that_is_full_is_measured_each_time_so_that_it_may_soon_go_on() -> None:
    assert walk_is_due(seen(200), 100, 2, 1000, full=True)


def test_a_slow_walk_is_rare() -> None:
    assert not walk_is_due(seen(0, 0.5), 100, 9, 940, full=False)
    assert walk_is_due(seen(0, 0.5), 100, 10, 940, full=False)
    assert not walk_is_due(seen(200, 0.5), 100, 9, 0, full=True)


def test_one_that_waited_long_for_its_walk_need_not_wait_as_long_again() -> None:
    assert not walk_is_due(seen(0, 100), 100, 19, 940, full=False)
    assert walk_is_due(seen(0, 100), 100, 20, 940, full=False)


def test_it_is_measured_at_once_when_the_disk_lost_all_that_is_left_to_it() -> None:
    assert not walk_is_due(seen(60, 100), 100, 2, 960, full=False)
    assert walk_is_due(seen(60, 100), 100, 2, 959, full=False)


@pytest.mark.parametrize(
    "held", [lambda count: Held(count, 0), lambda count: Held(0, count)], ids=["bytes", "names"]
)
def test_writing_ends_over_a_limit_and_begins_well_below_it(held: Callable[[int], Held]) -> None:
    assert not must_not_write(held(100), _LIMITS, _PLENTY, full=False)
    assert must_not_write(held(101), _LIMITS, _PLENTY, full=False)
    assert must_not_write(held(96), _LIMITS, _PLENTY, full=True)
    assert not must_not_write(held(95), _LIMITS, _PLENTY, full=True)


def test_writing_ends_before_the_machine_has_no_space_left() -> None:
    assert must_not_write(Held(0, 0), _LIMITS, 100 * _MIB, full=False)


def test_a_little_more_is_forgiven_and_much_more_is_not() -> None:
    nothing = Held(0, 0)
    stopped = Held(100 * _MIB, 1000)
    assert not goes_on(Held(150 * _MIB, 1000), stopped, nothing, _LIMITS)
    assert goes_on(Held(175 * _MIB, 1000), stopped, nothing, _LIMITS)
    assert not goes_on(Held(0, 11_000), stopped, nothing, _LIMITS)
    assert goes_on(Held(0, 11_101), stopped, nothing, _LIMITS)


def test_one_that_cannot_be_measured_is_judged_by_what_the_disk_loses() -> None:
    assert not goes_on(BEYOND, BEYOND, Held(100, 100), _LIMITS)
    assert goes_on(BEYOND, BEYOND, Held(101, 0), _LIMITS)
    assert goes_on(BEYOND, BEYOND, Held(0, 101), _LIMITS)


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


def test_a_second_name_of_a_file_takes_a_block_and_no_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * _MIB)
    alone = size(tmp_path)
    for number in range(5):
        (tmp_path / f"same-{number}").hardlink_to(tmp_path / "file")
    assert size(tmp_path) == alone + 5 * 4096


def test_a_deleted_file_counts_for_as_long_as_it_is_open(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with path.open("wb") as first, path.open("rb"):
        first.write(b"x" * _MIB)
        first.flush()
        path.unlink()
        assert measure(tmp_path, 1000).disk_bytes == 0
        assert _MIB <= measure(tmp_path, 1000, [os.getpid()]).disk_bytes < 2 * _MIB


def test_only_so_many_names_are_counted(tmp_path: Path) -> None:
    for number in range(3):
        (tmp_path / f"empty-{number}").touch()
    assert measure(tmp_path, 3) == Held(3 * 4096, 3)
    with pytest.raises(TreeTooLarge):
        measure(tmp_path, 2)


@pytest.fixture
def moving(tmp_path: Path) -> Path:
    """A workspace of two folders, each with a megabyte in a folder below it."""
    for name in ("a", "z"):
        (tmp_path / "workspace" / name / "inner").mkdir(parents=True)
        (tmp_path / "workspace" / name / "inner" / "file").write_bytes(b"x" * _MIB)
    return tmp_path / "workspace"


def test_what_is_moved_away_just_before_it_is_read_is_found_by_another_look(moving: Path) -> None:
    calls = count(1)

    def move() -> None:
        if next(calls) == 2:
            (moving / "a" / "inner").rename(moving / "0")

    whole = size(moving)
    assert measure(moving, 100, (), move).disk_bytes == whole


def test_a_folder_that_moves_while_it_is_read_does_not_hide_the_rest(moving: Path) -> None:
    calls = count(1)

    def move() -> None:
        if next(calls) == 3:
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


async def test_what_is_small_is_measured_without_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert await Scales().weigh(tmp_path, os.getpid(), 1000) == Held(4096, 1)


async def test_one_of_many_names_is_measured_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tollhouse.interns.runtimes.quota._FEW", 2)
    for number in range(5):
        (tmp_path / f"empty-{number}").touch()
    assert await Scales().weigh(tmp_path, os.getpid(), 1000) == Held(5 * 4096, 5)
    assert await Scales().weigh(tmp_path, os.getpid(), 4) == BEYOND


def watching(
    folder: Path, limits: list[int], clock: FakeClock, weigh: Any = None, files: int = 1000
) -> DiskWatch:
    bounds = SandboxLimits(1, 1, 1.0, _MIB, 1, files)
    unused: Any = None
    launch = Launch("s", 1, folder, folder, unused, {}, bounds)

    async def measured() -> Held:
        return measure(folder, 10_000)

    return DiskWatch(launch, weigh or measured, limits.append, clock)


async def test_a_watch_stops_and_lets_go_again(tmp_path: Path, clock: FakeClock) -> None:
    limits: list[int] = []
    watch = watching(tmp_path, limits, clock)
    assert not await watch.look()
    assert (watch.full, limits) == (False, [])
    (tmp_path / "filler").write_bytes(b"x" * 2 * _MIB)
    clock.advance(61)
    assert not await watch.look()
    assert (watch.full, limits) == (True, [0])
    (tmp_path / "filler").unlink()
    clock.advance(61)
    assert not await watch.look()
    assert (watch.full, limits) == (False, [0, _MIB])


async def test_names_alone_fill_a_disk_too(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, [], clock, files=3)
    for number in range(4):
        (tmp_path / f"empty-{number}").touch()
    assert not await watch.look()
    assert watch.full


async def test_one_that_keeps_growing_is_to_be_killed(tmp_path: Path, clock: FakeClock) -> None:
    watch = watching(tmp_path, [], clock)
    (tmp_path / "filler").write_bytes(b"x" * 2 * _MIB)
    assert not await watch.look()
    (tmp_path / "more").write_bytes(b"x" * 80 * _MIB)
    clock.advance(61)
    assert await watch.look()


async def test_one_that_cannot_be_measured_has_taken_what_the_disk_lost(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[Held | Exception] = [Held(_MIB // 2, 1), WalkBroken(), OSError(), Held(0, 1)]
    free = iter([100, 100 - 1, 100 - 3, 100])

    def statvfs(_: object) -> Any:
        return SimpleNamespace(f_bavail=next(free) * _MIB // 2 + (1 << 40), f_frsize=1, f_ffree=9)

    async def weigh() -> Held:
        await asyncio.sleep(0)
        match found.pop(0):
            case Held() as held:
                return held
            case error:
                raise error

    monkeypatch.setattr(os, "statvfs", statvfs)
    watch = watching(tmp_path, [], clock, weigh)
    seen: list[bool] = []
    for _ in range(4):
        await watch.look()
        seen.append(watch.full)
        clock.advance(61)
    assert seen == [False, False, True, False]


async def test_a_watch_goes_on_when_no_process_is_to_be_had(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota, "_LOOK_SECONDS", 0.001)
    limited = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Tried(list[int]):
        def append(self, size: int, /) -> None:
            super().append(size)
            if len(self) == 1:
                raise BlockingIOError
            loop.call_soon_threadsafe(limited.set)

    tried = Tried()

    (tmp_path / "large").write_bytes(bytes(2 * _MIB))
    watch = watching(tmp_path, tried, clock)
    task = asyncio.create_task(watch.run(lambda: None))
    async with asyncio.timeout(30):
        await limited.wait()
        while not watch.full:
            await asyncio.sleep(0.001)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert tried[:2] == [0, 0]
