"""Walking a folder that a stranger filled: names of any bytes, folders in folders.

A folder is entered through its parent's descriptor and never through a link, and left through
`..`: two descriptors are open at a time, and no path is ever longer than a name. Where somebody
moves a folder meanwhile the walk ends, and says so; so it does below `DEEPEST` folders, since each
level costs memory.

Source: openat(2), path_resolution(7).
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

KEPT_MODE: Final = 0o1777
"""Bits of a mode that are a workspace's: the right to run as somebody else is none, and is lost
with any change of owner."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTER: Final = 0o500
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


DEEPEST: Final = 256
"""Folders in one another that a walk goes through."""


class TreeTooDeep(OSError):
    """There are folders below `DEEPEST` others."""


class TreeMoved(OSError):
    """Somebody moved a folder while it was walked through."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder."""

    path: bytes
    """From the top, without a slash before it."""
    name: bytes
    status: os.stat_result
    """Of the name itself; a link is not followed."""
    parent: int
    """Descriptor of the folder that it stands in; open until the next entry is asked for."""

    def open(self) -> int:
        """Return a descriptor that reads it, a regular file or a folder.

        Raises:
            OSError: It cannot be read, even by who owns it.
        """
        return _opened(self.name, self.status, self.parent)

    def target(self) -> bytes:
        """Return what a link says."""
        return os.readlink(self.name, dir_fd=self.parent)


def walk(top: Path, *, strict: bool = False) -> Iterator[Entry]:
    """Yield all that stands in a folder, sorted by the bytes of names, each folder before its own.

    Args:
        top: The folder.
        strict: Whether a folder that cannot be read is an error. Where it is none, that folder is
            yielded, and nothing in it.

    Raises:
        TreeMoved: A folder was moved meanwhile.
        TreeTooDeep: One stands too deep.
        OSError: The top cannot be read, or a folder where it is an error.
    """
    current = os.open(top, _FOLDER)
    above: list[tuple[bytes, list[bytes], tuple[int, int], int | None]] = []
    path, names, mode = b"", _names(current), None
    try:
        while True:
            while not names:
                if not above:
                    return
                path, names, which, outer_mode = above.pop()
                current = _left(current, which, mode)
                mode = outer_mode
            name = names.pop()
            try:
                status = os.stat(name, dir_fd=current, follow_symlinks=False)
            except FileNotFoundError:
                continue
            entry = Entry(path + name, name, status, current)
            yield entry
            if stat.S_ISDIR(status.st_mode):
                if len(above) >= DEEPEST:
                    raise TreeTooDeep
                with suppress(*(() if strict else (OSError,))):
                    entered = entry.open()
                    above.append((path, names, _identity(current), mode))
                    os.close(current)
                    current, path, names = entered, entry.path + b"/", []
                    mode = _opened_up(current, status)
                    names = _names(current)
    finally:
        os.close(current)


def _names(folder: int) -> list[bytes]:
    """Return the names in a folder, the last one first."""
    return sorted((os.fsencode(each) for each in os.listdir(folder)), reverse=True)


def _opened_up(folder: int, status: os.stat_result) -> int | None:
    """Let its owner, if that is us, into a folder; return the mode that it gets back, if any."""
    mode = stat.S_IMODE(status.st_mode)
    if mode & _ENTER == _ENTER or os.geteuid() == 0 or status.st_uid != os.geteuid():
        return None
    os.fchmod(folder, mode | _ENTER)
    return mode


def _left(folder: int, which: tuple[int, int], mode: int | None) -> int:
    parent = os.open("..", _FOLDER, dir_fd=folder)
    if mode is not None:
        os.fchmod(folder, mode)
    if _identity(parent) != which:
        os.close(parent)
        raise TreeMoved
    os.close(folder)
    return parent


def _identity(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


def _opened(name: bytes, status: os.stat_result, parent: int) -> int:
    flags = _FOLDER if stat.S_ISDIR(status.st_mode) else _FILE
    try:
        return os.open(name, flags, dir_fd=parent)
    except PermissionError:
        if status.st_uid != os.geteuid():
            raise
    # Its owner has taken the right to read from itself: a moment with it changes nothing.
    mode = stat.S_IMODE(status.st_mode)
    held = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        itself = Path(f"/proc/self/fd/{held}")
        itself.chmod(mode | _ENTER)
        try:
            return os.open(itself, flags & ~os.O_NOFOLLOW)
        finally:
            itself.chmod(mode)
    finally:
        os.close(held)
