"""The size of a workspace: watched, since few file systems can limit a folder.

    every two seconds   how much is free on the disk?      cheap
    sometimes           how much does the workspace hold?  a walk: soon after the disk lost as much
                        as is left to the workspace, else once a minute

Over its limit, or where the machine's disk is about to be full, a sandbox can write no more: the
largest size of a file becomes nothing for its processes. They can still delete, and may write
again when the workspace is small enough. One that keeps growing nonetheless (there are ways, such
as empty files) is killed. What it has written stays in any case.

Between two looks a sandbox can write more than its limit; how much depends on the disk's speed.
"""

from __future__ import annotations

import asyncio
import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.interns.tree import TreeTooDeep, walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 2.0
_WALK_SECONDS: Final = 60.0
_PACE: Final = 20.0
"""Between two walks passes as many times what a walk takes."""
_BLOCK_BYTES: Final = 4096
_STATUS_BLOCK_BYTES: Final = 512
"""What `st_blocks` counts in, whatever the file system's blocks are; see stat(2)."""
_RESERVE_BYTES: Final = 512 * 1024 * 1024
"""What sandboxes leave free on the machine's disk."""
_AGAIN: Final = 0.95
"""Part of its limit below which a workspace may grow again."""
_BEYOND: Final = 1.1
_BEYOND_ANY: Final = 1 << 62
_BEYOND_BYTES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Seen:
    """What a walk found."""

    at: float
    """Seconds of the monotonic clock."""
    seconds: float
    """That it took."""
    held_bytes: int
    free_bytes: int
    """Of the disk, when it began."""


def walk_is_due(
    seen: Seen | None, limit_bytes: int, now: float, free_bytes: int, *, full: bool
) -> bool:
    """Tell whether the workspace has to be measured."""
    if seen is None:
        return True
    passed = now - seen.at
    if passed < _PACE * seen.seconds:
        return False
    left = max(0, limit_bytes - seen.held_bytes)
    return full or passed >= _WALK_SECONDS or seen.free_bytes - free_bytes > left // 2


def must_not_write(held_bytes: int, limit_bytes: int, free_bytes: int, *, full: bool) -> bool:
    """Tell whether a sandbox may write no more; `full` says whether that is so already."""
    allowed = limit_bytes * _AGAIN if full else limit_bytes
    return held_bytes > allowed or free_bytes < _RESERVE_BYTES


def goes_on(held_bytes: int, when_stopped_bytes: int) -> bool:
    """Tell whether a workspace has grown for long though nothing may be written."""
    return held_bytes > when_stopped_bytes * _BEYOND + _BEYOND_BYTES


def measure(folder: Path) -> int:
    """Return how many bytes of disk a folder holds, each name in it at least a block. A walk.

    Where its programs move folders meanwhile, it counts what it has seen until then. A folder that
    is nested too deep counts as more than any limit.
    """
    held = 0
    counted: set[int] = set()
    try:
        for entry in walk(folder):
            status = entry.status
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                if status.st_ino in counted:
                    continue
                counted.add(status.st_ino)
            held += max(_BLOCK_BYTES, status.st_blocks * _STATUS_BLOCK_BYTES)
    except TreeTooDeep:
        return _BEYOND_ANY
    except OSError:
        return held
    return held


class DiskWatch:
    """Watches one workspace."""

    def __init__(
        self,
        name: str,
        folder: Path,
        limit_bytes: int,
        limit_files: Callable[[int], None],
        clock: Clock,
    ) -> None:
        """Take what is watched.

        Args:
            name: Of the sandbox.
            folder: Its workspace.
            limit_bytes: Of it.
            limit_files: Sets the largest size of files for its processes, in bytes; called in a
                thread.
            clock: For how often it is looked at.
        """
        self.full = False
        """Whether its processes may not write."""
        self.killed = False
        """Whether they were killed for that they did all the same."""
        self._name = name
        self._folder = folder
        self._limit = limit_bytes
        self._limit_files = limit_files
        self._clock = clock
        self._seen: Seen | None = None
        self._when_stopped = 0

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
            return await asyncio.to_thread(self.look)
        except (OSError, RuntimeError) as error:  # no process or thread to be had: look again
            _log.error("sandbox's disk not looked at", sandbox=self._name, reason=str(error))
            return False

    def look(self) -> bool:
        """Look once; return whether the sandbox has to be killed."""
        try:
            status = os.statvfs(self._folder)
        except OSError:
            return False
        free = status.f_bavail * status.f_frsize
        now = self._clock.monotonic()
        if walk_is_due(self._seen, self._limit, now, free, full=self.full):
            held = measure(self._folder)
            self._seen = Seen(now, self._clock.monotonic() - now, held, free)
        held = 0 if self._seen is None else self._seen.held_bytes
        full = must_not_write(held, self._limit, free, full=self.full)
        if full != self.full:
            _log.warning("sandbox's disk", sandbox=self._name, full=full, held_bytes=held)
            self._limit_files(0 if full else self._limit)
            self._when_stopped = held
            self.full = full
        elif full:
            self._limit_files(0)
        return full and goes_on(held, self._when_stopped)
