"""The size of a workspace: watched, since few file systems can limit a folder.

    a look         how much is free on the disk?      cheap: before half of what is left is used up
    a measurement  how much does the workspace hold?  when half of what is left may be used up, else
                                                      now and then

Over its limit, or where the machine's disk is about to be full, a sandbox can write no more: the
largest size of a file becomes nothing for its processes. They can still delete, and may write
again when the workspace is small enough. One that keeps growing nonetheless (there are ways, such
as empty files) is killed. What it has written stays in any case.

Between two looks a sandbox can write more than its limit; how much depends on the disk's speed. So
it does with what no look sees, see `contents`; the machine's reserve is kept from that too.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from tollhouse.interns.runtimes.filesize import descendants
from tollhouse.interns.workspaces.contents import UNCOUNTABLE, DiskUsage, measure
from tollhouse.interns.workspaces.jobs import JobBroken, JobRefused, WorkspaceJobs
from tollhouse.interns.workspaces.tree import TreeTooLarge
from tollhouse.kernel.concurrency import IdleDeadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tollhouse.interns.runtimes.base import Launch
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)

_LEAST_PAUSE: Final = 0.02
_MOST_PAUSE: Final = 2.0
"""Between two looks."""
_ASSUMED_GROWTH: Final = DiskUsage(1 << 30, 100_000)
"""How fast a workspace may grow at any time, in a second. What it did before says little: a program
that has slept until now may write as fast as the disk takes it."""
_MEASURING_SHARE: Final = 0.2
"""Part of the time that is spent on measuring one workspace at most."""
_MEASURING_BURST_SECONDS: Final = 10.0
"""Time whose share may be spent at once."""
_IDLE_FACTOR: Final = 400
"""Otherwise, a workspace is measured after so many times what a measurement takes."""
_IDLE_SECONDS: Final = 60.0
_FULL_FACTOR: Final = 20
_FULL_SECONDS: Final = 20.0
"""The same of a full one, which should soon learn that it has deleted enough."""
_STALLED_SECONDS: Final = 60.0
_NAMES_IN_THREAD: Final = 10_000
"""Names that are counted in a thread; a process of its own takes as long to start."""
_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""What sandboxes leave free on the machine's disk."""
_RESUME_SHARE: Final = 0.95
"""Part of its limit below which a workspace may grow again."""
_TOLERANCE: Final = DiskUsage(16 * 1024 * 1024, 1_000)
"""What one may grow by after it was stopped, or so much of its limit if that is more."""
_TOLERANCE_SHARE: Final = 0.01
_LEAST_HEADROOM: Final = 0.05
"""Part of its limit that counts as left, so that one near it is not measured all the time."""


class WorkspaceLimits(NamedTuple):
    """What a workspace may hold."""

    disk_bytes: int
    names: int


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a measurement found."""

    at: float
    """When it began, in seconds of the monotonic clock."""
    seconds: float
    """That it took."""
    held: DiskUsage
    free: DiskUsage
    """What the disk had left, when it began."""
    growth: DiskUsage
    """By which the workspace has grown in a second since the measurement before."""


def ceiling(limits: WorkspaceLimits, when_stopped: DiskUsage | None) -> DiskUsage:
    """Return what a workspace may hold before something is done.

    `when_stopped` is what it held when it was stopped; None while it may be written to.
    """
    if when_stopped is None:
        return DiskUsage(*limits)
    forgiven = (
        max(least, int(limit * _TOLERANCE_SHARE))
        for least, limit in zip(_TOLERANCE, limits, strict=True)
    )
    return DiskUsage(*(held + more for held, more in zip(when_stopped, forgiven, strict=True)))


def growth_per_second(before: DiskUsage, after: DiskUsage, seconds: float) -> DiskUsage:
    """Return by how much something has grown in a second, and never less than nothing."""
    return DiskUsage(
        *(
            max(0, int((late - early) / max(seconds, _LEAST_PAUSE)))
            for early, late in zip(before, after, strict=True)
        )
    )


def seconds_to_next_check(left: DiskUsage, grown: DiskUsage) -> float:
    """Return how long nobody need look: no more than half of what is left is used up by then.

    `grown` is by how much it grew lately, in a second; less than `_ASSUMED_GROWTH` means nothing.
    """
    halves = (
        room / (2 * max(speed, assumed))
        for room, speed, assumed in zip(left, grown, _ASSUMED_GROWTH, strict=True)
    )
    return max(_LEAST_PAUSE, min(_MOST_PAUSE, *halves))


def measurement_is_due(
    seen: Measurement, left: DiskUsage, now: float, free: DiskUsage, *, full: bool
) -> bool:
    """Tell whether half of what was `left` at the last measurement may be used up.

    `now` is as `seen.at`, `free` what the disk has left, `full` whether nothing may be written.
    """
    passed = now - seen.at
    times, most = (_FULL_FACTOR, _FULL_SECONDS) if full else (_IDLE_FACTOR, _IDLE_SECONDS)
    return passed >= max(_MOST_PAUSE, min(most, times * seen.seconds)) or any(
        max(before - after, speed * passed) > room / 2
        for before, after, speed, room in zip(seen.free, free, seen.growth, left, strict=True)
    )


def next_measurement_at(paid_until: float, now: float, seconds: float) -> float:
    """Return when the next measurement may begin, so that all of them keep to their share.

    The last one ended `now` and took so many seconds; `paid_until` is what this returned before.
    """
    return max(paid_until, now - _MEASURING_BURST_SECONDS) + seconds / _MEASURING_SHARE


def is_over_limit(held: DiskUsage, limits: WorkspaceLimits, *, full: bool) -> bool:
    """Tell whether a workspace holds too much; `full` says whether it did already."""
    part = _RESUME_SHARE if full else 1
    return held.disk_bytes > limits.disk_bytes * part or held.names > limits.names * part


def keeps_growing(
    held: DiskUsage, when_stopped: DiskUsage, lost: DiskUsage, limits: WorkspaceLimits
) -> bool:
    """Tell whether a workspace has gone on growing though nothing may be written.

    What the disk has `lost` since it was stopped counts where it cannot be measured.
    """
    if held == UNCOUNTABLE:
        return lost.disk_bytes > limits.disk_bytes or lost.names > limits.names
    most = ceiling(limits, when_stopped)
    return held.disk_bytes > most.disk_bytes or held.names > most.names


class FileSizeLimiter(Protocol):
    """Sets the largest size of files for the processes of a sandbox. Called in a thread."""

    def __call__(self, limit_bytes: int, *, halt: bool) -> None:
        """Set it, in bytes; `halt` says whether they stand still until that is done."""


async def measure_workspace(jobs: WorkspaceJobs, folder: Path, first: int) -> DiskUsage:
    """Return what a workspace holds; `UNCOUNTABLE` where it is too much to be counted.

    Its programs descend from the process `first`. Raises `JobBroken` or `OSError` where it could
    not be measured this time.
    """
    processes = await asyncio.to_thread(lambda: [*descendants(first)])
    try:
        return await asyncio.to_thread(measure, folder, _NAMES_IN_THREAD, processes)
    except TreeTooLarge:
        pass
    try:
        async with IdleDeadline(_STALLED_SECONDS) as patience:
            return await jobs.measure(folder, processes, patience.reset)
    except JobRefused:
        return UNCOUNTABLE


class DiskWatch:
    """Watches one workspace."""

    def __init__(
        self,
        launch: Launch,
        measure: Callable[[], Awaitable[DiskUsage]],
        limit_files: FileSizeLimiter,
        clock: Clock,
    ) -> None:
        """Watch what `measure` finds; `limit_files` keeps processes from writing, or lets them."""
        self.full = False
        """Whether its processes may not write."""
        self.killed = False
        """Whether they were killed for that they did all the same."""
        self._name = launch.name
        self._folder = launch.workspace
        self._limits = WorkspaceLimits(launch.limits.disk_bytes, launch.limits.files)
        self._measure = measure
        self._limit_files = limit_files
        self._clock = clock
        self._seen: Measurement | None = None
        self._paid_until = 0.0
        self._looked: tuple[float, DiskUsage] | None = None
        """When it was looked at last, and what the disk had left."""
        self._when_stopped = DiskUsage(0, 0), DiskUsage(0, 0)
        """What it held, and what the disk had left."""

    async def run(self, kill: Callable[[], None]) -> None:
        """Watch until cancelled."""
        while True:
            seconds = _MOST_PAUSE
            try:
                seconds = await self.look()
            except (OSError, RuntimeError) as error:  # no process or thread to be had: look again
                _log.error("sandbox's disk not looked at", sandbox=self._name, reason=str(error))
            if self.killed:
                _log.warning("sandbox went on filling its disk", sandbox=self._name)
                kill()
                return
            await asyncio.sleep(seconds)

    async def look(self) -> float:
        """Look once; return after how many seconds to look again, unless it has to be `killed`.

        Raises `OSError` or `RuntimeError` where it could not be looked at.
        """
        status = await asyncio.to_thread(os.statvfs, self._folder)
        free = DiskUsage(status.f_bavail * status.f_frsize, status.f_ffree)
        now = self._clock.monotonic()
        seen = self._seen
        measures = seen is None or (
            now >= self._paid_until
            and measurement_is_due(seen, self._left(seen), now, free, full=self.full)
        )
        if seen is None or measures:
            seen = await self._measured(free)
        over = is_over_limit(seen.held, self._limits, full=self.full)
        full = over or free.disk_bytes < _RESERVE_BYTES
        if full != self.full:
            seen = await self._turn(seen, full=full, over=over)
        elif full:
            held_then, free_then = self._when_stopped
            lost = DiskUsage(free_then.disk_bytes - free.disk_bytes, free_then.names - free.names)
            self.killed = keeps_growing(seen.held, held_then, lost, self._limits)
            grown = any(late > early for late, early in zip(seen.held, held_then, strict=True))
            if measures and grown and not self.killed:  # a process may have slipped through
                await asyncio.to_thread(self._limit_files, 0, halt=False)
        return self._seconds(seen, now, free)

    async def _turn(self, seen: Measurement, *, full: bool, over: bool) -> Measurement:
        """Let it write no more, or again; return what it holds then.

        Only one that is over its own limit stands still meanwhile, and is measured again: what it
        goes on to do is told by what it held when it could write no more.
        """
        _log.warning("sandbox's disk", sandbox=self._name, full=full, **seen.held._asdict())
        size = 0 if full else self._limits.disk_bytes
        await asyncio.to_thread(self._limit_files, size, halt=over)
        if over:
            seen = await self._measured(seen.free)
        self.full, self._when_stopped = full, (seen.held, seen.free)
        return seen

    def _left(self, seen: Measurement) -> DiskUsage:
        """Return what it may grow by before something is done."""
        most = ceiling(self._limits, self._when_stopped[0] if self.full else None)
        return DiskUsage(
            *(
                max(int(limit * _LEAST_HEADROOM), end - held)
                for limit, end, held in zip(self._limits, most, seen.held, strict=True)
            )
        )

    def _seconds(self, seen: Measurement, now: float, free: DiskUsage) -> float:
        """Return how long nobody need look."""
        grown = DiskUsage(0, 0)
        if self._looked is not None:
            before, had = self._looked
            grown = growth_per_second(free, had, now - before)  # what the disk has lost
        self._looked = now, free
        left = self._left(seen)
        reserve = abs(free.disk_bytes - _RESERVE_BYTES)
        return seconds_to_next_check(left._replace(disk_bytes=min(left.disk_bytes, reserve)), grown)

    async def _measured(self, free: DiskUsage) -> Measurement:
        """Measure the workspace.

        One that cannot be measured, since its programs move folders about, is believed to have
        taken all that the disk has lost since it was.
        """
        begun, last = self._clock.monotonic(), self._seen
        try:
            held = await self._measure()
        except (JobBroken, OSError) as error:  # a TimeoutError is an OSError
            _log.warning("sandbox not measured", sandbox=self._name, reason=repr(error))
            held = DiskUsage(0, 0)
            if last is not None:
                lost = zip(last.held, last.free, free, strict=True)
                held = DiskUsage(*(all_then + max(0, had - has) for all_then, had, has in lost))
        seconds = self._clock.monotonic() - begun
        speed = (
            DiskUsage(0, 0) if last is None else growth_per_second(last.held, held, begun - last.at)
        )
        self._seen = Measurement(begun, seconds, held, free, speed)
        # Where many wait for their turn, what it takes is mostly waiting.
        spent = min(seconds, _FULL_SECONDS * _MEASURING_SHARE)
        self._paid_until = next_measurement_at(self._paid_until, begun + seconds, spent)
        return self._seen
