"""The size of a workspace: watched, since few file systems can limit a folder.

    a look      how much is free on the disk?      cheap: before what is left could be half used up
    a weighing  how much does the workspace hold?  a walk: when half of what is left may be used up,
                                                   else now and then

Over its limit, or where the machine's disk is about to be full, a sandbox can write no more: the
largest size of a file becomes nothing for its processes. They can still delete, and may write
again when the workspace is small enough. One that keeps growing nonetheless (there are ways, such
as empty files) is killed. What it has written stays in any case.

Between two looks a sandbox can write more than its limit; how much depends on the disk's speed. So
it does with what no look sees, see `size`; the machine's reserve is kept from that too.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from tollhouse.interns.runtimes.filesize import below
from tollhouse.interns.size import BEYOND, Held, measure
from tollhouse.interns.tree import TreeTooLarge
from tollhouse.interns.walks.walker import WalkBroken, Walker, WalkRefused
from tollhouse.kernel.waiting import IdleDeadline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tollhouse.interns.runtimes.base import Launch
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)

_LEAST_SECONDS: Final = 0.02
_MOST_SECONDS: Final = 2.0
"""Between two looks."""
_ASSUMED: Final = Held(1 << 30, 100_000)
"""How fast a workspace may grow at any time, in a second. What it did before says little: a program
that has slept until now may write as fast as the disk takes it."""
_WEIGHING_SHARE: Final = 0.2
"""Part of the time that is spent on weighing one workspace at most."""
_WEIGHING_BURST_SECONDS: Final = 10.0
"""Time whose share may be spent at once."""
_SELDOM: Final = 400
"""Where nothing calls for it, a workspace is weighed after so many times what a weighing takes."""
_SELDOM_SECONDS: Final = 60.0
_FULL: Final = 20
_FULL_SECONDS: Final = 20.0
"""The same of a full one, which should soon learn that it has deleted enough."""
_STALLED_SECONDS: Final = 60.0
_FEW: Final = 10_000
"""Names that are counted in a thread; a process of its own takes as long to start."""
_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""What sandboxes leave free on the machine's disk."""
_AGAIN: Final = 0.95
"""Part of its limit below which a workspace may grow again."""
_FORGIVEN: Final = Held(16 * 1024 * 1024, 1_000)
"""What one may grow by after it was stopped, or so much of its limit if that is more."""
_FORGIVEN_PART: Final = 0.01
_LEAST_LEFT: Final = 0.05
"""Part of its limit that counts as left, so that one near its limit is not weighed all the time."""


class Limits(NamedTuple):
    """What a workspace may hold."""

    disk_bytes: int
    names: int


@dataclass(frozen=True, slots=True)
class Seen:
    """What a weighing found."""

    at: float
    """When it began, in seconds of the monotonic clock."""
    seconds: float
    """That it took."""
    held: Held
    free: Held
    """What the disk had left, when it began."""
    growth: Held
    """By which the workspace has grown in a second since the weighing before."""


def ceiling(limits: Limits, when_stopped: Held | None) -> Held:
    """Return what a workspace may hold before something is done.

    Args:
        limits: Of it.
        when_stopped: What it held when it was stopped; None while it may be written to.
    """
    if when_stopped is None:
        return Held(*limits)
    forgiven = (
        max(least, int(limit * _FORGIVEN_PART))
        for least, limit in zip(_FORGIVEN, limits, strict=True)
    )
    return Held(*(held + more for held, more in zip(when_stopped, forgiven, strict=True)))


def growth(before: Held, after: Held, seconds: float) -> Held:
    """Return by how much something has grown in a second, and never less than nothing."""
    return Held(
        *(
            max(0, int((late - early) / max(seconds, _LEAST_SECONDS)))
            for early, late in zip(before, after, strict=True)
        )
    )


def seconds_to_look(left: Held, grown: Held) -> float:
    """Return how long nobody need look: no more than half of what is left is used up by then.

    Args:
        left: What the workspace may still grow by.
        grown: How fast it may have grown lately, in a second. Less than `_ASSUMED` means nothing.
    """
    halves = (
        room / (2 * max(speed, assumed))
        for room, speed, assumed in zip(left, grown, _ASSUMED, strict=True)
    )
    return max(_LEAST_SECONDS, min(_MOST_SECONDS, *halves))


def weighing_is_due(seen: Seen, left: Held, now: float, free: Held, *, full: bool) -> bool:
    """Tell whether something calls for another weighing: half of what was left may be used up.

    Args:
        seen: The last one.
        left: What the workspace could grow by then.
        now: The present, as `seen.at`.
        free: What the disk has left.
        full: Whether nothing may be written.
    """
    passed = now - seen.at
    times, most = (_FULL, _FULL_SECONDS) if full else (_SELDOM, _SELDOM_SECONDS)
    return passed >= max(_MOST_SECONDS, min(most, times * seen.seconds)) or any(
        max(before - after, speed * passed) > room / 2
        for before, after, speed, room in zip(seen.free, free, seen.growth, left, strict=True)
    )


def weighing_is_paid_until(paid_until: float, now: float, seconds: float) -> float:
    """Return when the next weighing may begin, so that all of them keep to their share.

    Args:
        paid_until: What this returned for the one before.
        now: When this one ended.
        seconds: That it took.
    """
    return max(paid_until, now - _WEIGHING_BURST_SECONDS) + seconds / _WEIGHING_SHARE


def is_over(held: Held, limits: Limits, *, full: bool) -> bool:
    """Tell whether a workspace holds too much; `full` says whether it did already."""
    part = _AGAIN if full else 1
    return held.disk_bytes > limits.disk_bytes * part or held.names > limits.names * part


def goes_on(held: Held, when_stopped: Held, lost: Held, limits: Limits) -> bool:
    """Tell whether a workspace has gone on growing though nothing may be written.

    Args:
        held: What it holds now.
        when_stopped: What it held when it was stopped.
        lost: What the disk has lost since; where a workspace cannot be measured, it was that one.
        limits: Of it.
    """
    if held == BEYOND:
        return lost.disk_bytes > limits.disk_bytes or lost.names > limits.names
    most = ceiling(limits, when_stopped)
    return held.disk_bytes > most.disk_bytes or held.names > most.names


class LimitFiles(Protocol):
    """Sets the largest size of files for the processes of a sandbox. Called in a thread."""

    def __call__(self, limit_bytes: int, *, halt: bool) -> None:
        """Set it, in bytes; `halt` says whether they stand still until that is done."""


class Scales:
    """Measures the workspaces of sandboxes."""

    def __init__(self) -> None:
        """Measure none yet."""
        self._walker = Walker()

    def watching(self, launch: Launch, first: int) -> Callable[[], Awaitable[Held]]:
        """Return what measures the workspace of a sandbox; see `weigh`."""
        return lambda: self.weigh(launch.workspace, first)

    async def weigh(self, folder: Path, first: int) -> Held:
        """Return what a workspace holds; `BEYOND` where it is too much to be counted.

        Args:
            folder: The workspace.
            first: The process that its programs descend from.

        Raises:
            WalkBroken: It could not be measured this time.
            OSError: The same.
        """
        processes = await asyncio.to_thread(lambda: [*below(first)])
        try:
            return await asyncio.to_thread(measure, folder, _FEW, processes)
        except TreeTooLarge:
            pass
        try:
            async with IdleDeadline(_STALLED_SECONDS) as patience:
                return await self._walker.measure(folder, processes, patience.reset)
        except WalkRefused:
            return BEYOND


class DiskWatch:
    """Watches one workspace."""

    def __init__(
        self,
        launch: Launch,
        weigh: Callable[[], Awaitable[Held]],
        limit_files: LimitFiles,
        clock: Clock,
    ) -> None:
        """Take what is watched.

        Args:
            launch: Of the sandbox.
            weigh: Measures its workspace.
            limit_files: Keeps its processes from writing, and lets them again.
            clock: For how often it is looked at.
        """
        self.full = False
        """Whether its processes may not write."""
        self.killed = False
        """Whether they were killed for that they did all the same."""
        self._name = launch.name
        self._folder = launch.workspace
        self._limits = Limits(launch.limits.disk_bytes, launch.limits.files)
        self._weigh = weigh
        self._limit_files = limit_files
        self._clock = clock
        self._seen: Seen | None = None
        self._paid_until = 0.0
        self._looked: tuple[float, Held] | None = None
        """When it was looked at last, and what the disk had left."""
        self._when_stopped = Held(0, 0), Held(0, 0)
        """What it held, and what the disk had left."""

    async def run(self, kill: Callable[[], None]) -> None:
        """Watch until cancelled."""
        while True:
            seconds = _MOST_SECONDS
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

        Raises:
            OSError: It could not be looked at.
            RuntimeError: The same.
        """
        status = await asyncio.to_thread(os.statvfs, self._folder)
        free = Held(status.f_bavail * status.f_frsize, status.f_ffree)
        now = self._clock.monotonic()
        seen = self._seen
        weighs = seen is None or (
            now >= self._paid_until
            and weighing_is_due(seen, self._left(seen), now, free, full=self.full)
        )
        if seen is None or weighs:
            seen = await self._weighed(free)
        over = is_over(seen.held, self._limits, full=self.full)
        full = over or free.disk_bytes < _RESERVE_BYTES
        if full != self.full:
            seen = await self._turn(seen, full=full, over=over)
        elif full:
            held_then, free_then = self._when_stopped
            lost = Held(free_then.disk_bytes - free.disk_bytes, free_then.names - free.names)
            self.killed = goes_on(seen.held, held_then, lost, self._limits)
            grown = any(late > early for late, early in zip(seen.held, held_then, strict=True))
            if weighs and grown and not self.killed:  # a process may have slipped through
                await asyncio.to_thread(self._limit_files, 0, halt=False)
        return self._seconds(seen, now, free)

    async def _turn(self, seen: Seen, *, full: bool, over: bool) -> Seen:
        """Let it write no more, or again; return what it holds then.

        Only one that is over its own limit stands still meanwhile, and is weighed again: what it
        goes on to do is told by what it held when it could write no more.
        """
        _log.warning("sandbox's disk", sandbox=self._name, full=full, **seen.held._asdict())
        size = 0 if full else self._limits.disk_bytes
        await asyncio.to_thread(self._limit_files, size, halt=over)
        if over:
            seen = await self._weighed(seen.free)
        self.full, self._when_stopped = full, (seen.held, seen.free)
        return seen

    def _left(self, seen: Seen) -> Held:
        """Return what it may grow by before something is done."""
        most = ceiling(self._limits, self._when_stopped[0] if self.full else None)
        return Held(
            *(
                max(int(limit * _LEAST_LEFT), end - held)
                for limit, end, held in zip(self._limits, most, seen.held, strict=True)
            )
        )

    def _seconds(self, seen: Seen, now: float, free: Held) -> float:
        """Return how long nobody need look."""
        grown = Held(0, 0)
        if self._looked is not None:
            before, had = self._looked
            grown = growth(free, had, now - before)  # what the disk has lost
        self._looked = now, free
        left = self._left(seen)
        reserve = abs(free.disk_bytes - _RESERVE_BYTES)
        return seconds_to_look(left._replace(disk_bytes=min(left.disk_bytes, reserve)), grown)

    async def _weighed(self, free: Held) -> Seen:
        """Weigh the workspace.

        One that cannot be measured, since its programs move folders about, is believed to have
        taken all that the disk has lost since it was.
        """
        begun, last = self._clock.monotonic(), self._seen
        try:
            held = await self._weigh()
        except (WalkBroken, OSError) as error:  # a TimeoutError is an OSError
            _log.warning("sandbox not measured", sandbox=self._name, reason=repr(error))
            held = Held(0, 0)
            if last is not None:
                lost = zip(last.held, last.free, free, strict=True)
                held = Held(*(all_then + max(0, had - has) for all_then, had, has in lost))
        seconds = self._clock.monotonic() - begun
        speed = Held(0, 0) if last is None else growth(last.held, held, begun - last.at)
        self._seen = Seen(begun, seconds, held, free, speed)
        # Where many wait for their turn, what it takes is mostly waiting.
        spent = min(seconds, _FULL_SECONDS * _WEIGHING_SHARE)
        self._paid_until = weighing_is_paid_until(self._paid_until, begun + seconds, spent)
        return self._seen
