"""How much disk a workspace takes, by a walk, while its programs may be writing to it.

What has no name any more takes disk for as long as a program holds it open: files that programs of
the sandbox hold are counted too. Not seen is what they hold only as mapped memory or in a message
that nobody has taken, and what a program hides by moving it about just as it is read. Another look
finds what the first one missed, unless that was moved again.

Source: stat(2), proc_pid_fd(5).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from tollhouse.interns.tree import TreeTooLarge, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

_BLOCK_BYTES: Final = 4096
_STATUS_BLOCK_BYTES: Final = 512
"""What `st_blocks` counts in, whatever the file system's blocks are; see stat(2)."""
_LOOKS: Final = 3
BEYOND_ANY: Final = 1 << 62


class Held(NamedTuple):
    """What a workspace holds."""

    disk_bytes: int
    """Each name in it takes at least a block."""
    names: int


BEYOND: Final = Held(BEYOND_ANY, BEYOND_ANY)
"""What counts as more than any limit."""


def measure(
    folder: Path,
    most: int,
    processes: Iterable[int] = (),
    alive: Callable[[], None] = lambda: None,
) -> Held:
    """Return what a workspace holds.

    Where something is moved away meanwhile it is looked at again, and the larger result counts.

    Args:
        folder: The workspace.
        most: Names that it may hold, and files that its programs may hold open.
        processes: Those that may hold open what they have deleted.
        alive: Called again and again while it goes on.

    Raises:
        TreeTooLarge: There are more.
        OSError: No look came to its end, since folders were moved each time.
    """
    found = Held(0, 0)
    ended: OSError | None = None
    for _ in range(_LOOKS):
        missed: list[None] = []
        try:
            look = _look(folder, most, processes, alive, lambda kept=missed: kept.append(None))
        except OSError as error:
            ended = error
            continue
        found, ended = max(found, look), None
        if not missed:
            break
    if ended is not None:
        raise ended
    return found


def _look(
    folder: Path,
    most: int,
    processes: Iterable[int],
    alive: Callable[[], None],
    missed: Callable[[], None],
) -> Held:
    disk = names = 0
    counted: set[tuple[int, int]] = set()
    for entry in walk(folder, most=most, missed=missed):
        alive()
        names += 1
        disk += max(_BLOCK_BYTES, _taken(entry.status, counted))
    device = os.stat(folder).st_dev  # noqa: PTH116 - without pathlib's cost at a start
    for status in _nameless(processes, device, most):
        alive()
        disk += _taken(status, counted)
    return Held(disk, names)


def _taken(status: os.stat_result, counted: set[tuple[int, int]]) -> int:
    """Return what a file takes, once where it is found several times."""
    if status.st_nlink != 1 and not stat.S_ISDIR(status.st_mode):
        which = status.st_dev, status.st_ino
        if which in counted:
            return 0
        counted.add(which)
    return status.st_blocks * _STATUS_BLOCK_BYTES


def _nameless(processes: Iterable[int], device: int, most: int) -> Iterator[os.stat_result]:
    """Yield the files of a device that processes hold open, and that have no name any more."""
    for process in processes:
        with suppress(OSError), os.scandir(f"/proc/{process}/fd") as opened:
            for each in opened:
                most -= 1
                if most < 0:
                    raise TreeTooLarge
                with suppress(OSError):
                    status = os.stat(each.path)  # noqa: PTH116 - the same
                    if status.st_nlink == 0 and status.st_dev == device:
                        yield status
