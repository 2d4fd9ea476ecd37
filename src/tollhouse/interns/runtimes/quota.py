"""The size of a workspace: watched, since few file systems can limit a folder.

    every two seconds   how much is free on the disk?      cheap
    sometimes           how much does the workspace hold?  a walk: soon after the disk lost as much
                        as is left to the workspace, else once a minute

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
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tollhouse.interns.runtimes.filesize import below
from tollhouse.interns.size import BEYOND, Held, measure
from tollhouse.interns.tree import TreeTooLarge
from tollhouse.interns.walks.walker import WalkBroken, Walker, WalkRefused
from tollhouse.kernel.waiting import Patience

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from tollhouse.interns.runtimes.base import Launch
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 2.0
_WALK_SECONDS: Final = 60.0
_STALLED_SECONDS: Final = 60.0
_PACE: Final = 20.0
"""Between two walks passes as many times what a walk takes, unless the disk loses much."""
_LONGEST_PACE: Final = 20.0
"""But no more seconds: what a walk takes is, where many wait for their turn, mostly waiting."""
_FEW: Final = 2_000
"""Names that are counted in a thread; a process of its own takes as long to start."""
_COUNTED: Final = 2
"""A walk counts names up to so many times their limit."""
_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""What sandboxes leave free on the machine's disk."""
_AGAIN: Final = 0.95
"""Part of its limit below which a workspace may grow again."""
_BEYOND: Final = 1.1
_BEYOND_BYTES: Final = 64 * 1024 * 1024
_BEYOND_NAMES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Seen:
    """What a walk found."""

    at: float
    """Seconds of the monotonic clock."""
    seconds: float
    """That it took."""
    held: Held
    free: Held
    """What the disk had left, when it began."""


class Limits(NamedTuple):
    """What a workspace may hold."""

    disk_bytes: int
    names: int


def walk_is_due(seen: Seen, limit_bytes: int, now: float, free_bytes: int, *, full: bool) -> bool:
    """Tell whether the workspace has to be measured again."""
    passed, lost = now - seen.at, seen.free.disk_bytes - free_bytes
    left = max(0, limit_bytes - seen.held.disk_bytes)
    if lost > left and not full:
        return True  # it may be over its limit: there is nothing to wait for
    if passed < min(_PACE * seen.seconds, _LONGEST_PACE):
        return False
    return full or passed >= _WALK_SECONDS or lost > left // 2


def must_not_write(held: Held, limits: Limits, free_bytes: int, *, full: bool) -> bool:
    """Tell whether a sandbox may write no more; `full` says whether that is so already."""
    part = _AGAIN if full else 1
    return (
        held.disk_bytes > limits.disk_bytes * part
        or held.names > limits.names * part
        or free_bytes < _RESERVE_BYTES
    )


def goes_on(held: Held, when_stopped: Held, lost: Held, limits: Limits) -> bool:
    """Tell whether a workspace has grown for long though nothing may be written.

    Args:
        held: What it holds now.
        when_stopped: What it held when it was stopped.
        lost: What the disk has lost since; where a workspace cannot be measured, it was that one.
        limits: Of it.
    """
    if held == BEYOND:
        return lost.disk_bytes > limits.disk_bytes or lost.names > limits.names
    return (
        held.disk_bytes > when_stopped.disk_bytes * _BEYOND + _BEYOND_BYTES
        or held.names > when_stopped.names * _BEYOND + _BEYOND_NAMES
    )


class Scales:
    """Measures the workspaces of sandboxes."""

    def __init__(self) -> None:
        """Measure none yet."""
        self._walker = Walker()

    def watching(self, launch: Launch, first: int) -> Callable[[], Awaitable[Held]]:
        """Return what measures the workspace of a sandbox; see `weigh`."""
        return lambda: self.weigh(launch.workspace, first, _COUNTED * launch.limits.files)

    async def weigh(self, folder: Path, first: int, most: int) -> Held:
        """Return what a workspace holds.

        Args:
            folder: The workspace.
            first: The process that its programs descend from.
            most: Names that are counted; one that holds more holds `BEYOND`.

        Raises:
            WalkBroken: It could not be measured this time.
            OSError: The same.
        """
        processes = await asyncio.to_thread(lambda: [*below(first)])
        try:
            return await asyncio.to_thread(measure, folder, min(_FEW, most), processes)
        except TreeTooLarge:
            pass
        try:
            async with Patience(_STALLED_SECONDS) as patience:
                return await self._walker.measure(folder, most, processes, patience.goes_on)
        except WalkRefused:
            return BEYOND


class DiskWatch:
    """Watches one workspace."""

    def __init__(
        self,
        launch: Launch,
        weigh: Callable[[], Awaitable[Held]],
        limit_files: Callable[[int], None],
        clock: Clock,
    ) -> None:
        """Take what is watched.

        Args:
            launch: Of the sandbox.
            weigh: Measures its workspace.
            limit_files: Sets the largest size of files for its processes, in bytes; called in a
                thread.
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
        self._when_stopped = Held(0, 0), Held(0, 0)
        """What it held, and what the disk had left."""

    async def run(self, kill: Callable[[], None]) -> None:
        """Watch until cancelled."""
        while not self.killed:
            if await self._must_end():
                self.killed = True
                _log.warning("sandbox went on filling its disk", sandbox=self._name)
                kill()
            await asyncio.sleep(_LOOK_SECONDS)

    async def _must_end(self) -> bool:
        try:
            return await self.look()
        except (OSError, RuntimeError) as error:  # no process or thread to be had: look again
            _log.error("sandbox's disk not looked at", sandbox=self._name, reason=str(error))
            return False

    async def look(self) -> bool:
        """Look once; return whether the sandbox has to be killed."""
        try:
            status = await asyncio.to_thread(os.statvfs, self._folder)
        except OSError:
            return False
        free = Held(status.f_bavail * status.f_frsize, status.f_ffree)
        now = self._clock.monotonic()
        limit = self._limits.disk_bytes
        seen = self._seen
        if seen is None or walk_is_due(seen, limit, now, free.disk_bytes, full=self.full):
            held = await self._weighed(free)
            seen = self._seen = Seen(now, self._clock.monotonic() - now, held, free)
        held = seen.held
        full = must_not_write(held, self._limits, free.disk_bytes, full=self.full)
        if full != self.full:
            _log.warning("sandbox's disk", sandbox=self._name, full=full, **held._asdict())
            await asyncio.to_thread(self._limit_files, 0 if full else limit)
            self._when_stopped = held, free
            self.full = full
        elif full:
            await asyncio.to_thread(self._limit_files, 0)
        held_then, free_then = self._when_stopped
        lost = Held(free_then.disk_bytes - free.disk_bytes, free_then.names - free.names)
        return full and goes_on(held, held_then, lost, self._limits)

    async def _weighed(self, free: Held) -> Held:
        """Return what the workspace holds.

        One that cannot be measured, since its programs move folders about, is believed to have
        taken all that the disk has lost since it was.
        """
        try:
            return await self._weigh()
        except (WalkBroken, OSError) as error:  # a TimeoutError is an OSError
            _log.warning("sandbox not measured", sandbox=self._name, reason=repr(error))
            seen = Seen(0, 0, Held(0, 0), free) if self._seen is None else self._seen
            return Held(
                seen.held.disk_bytes + max(0, seen.free.disk_bytes - free.disk_bytes),
                seen.held.names + max(0, seen.free.names - free.names),
            )
