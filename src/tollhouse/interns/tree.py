"""Walking a folder that a stranger filled: names of any bytes, folders in folders.

A folder is entered through its parent's descriptor and never through a link, and left through
`..`: two descriptors are open at a time, and no path is ever longer than a name. Where somebody
moves a folder meanwhile the walk ends, and says so; so it does where there are more names than the
caller takes, since those of a folder are sorted in memory.

Folders may be nested to any depth, also deeper than a path can say: each level costs a few words
of memory, and an entry's path has a bound. Below that bound, paths begin again at a folder, their
base: a walk takes time and memory in proportion to the names, not to the sum of the paths.

Source: openat(2), path_resolution(7).
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

KEPT_MODE: Final = 0o1777
"""Bits of a mode that are a workspace's: the right to run as somebody else is none, and is lost
with any change of owner."""
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ENTER: Final = 0o500
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


ANY_NUMBER: Final = 1 << 62
"""As a bound, none."""
LONGEST_PATH: Final = 3_584
"""Bytes of a folder's path from its base; a longer one is itself the base of what it holds. With a
name and a few words more, such a path is one that every system takes."""
DEEPEST: Final = 256
"""Folders on such a path."""


class TreeTooLarge(Exception):
    """There are more names than the caller takes."""


class TreeMoved(OSError):
    """Somebody moved a folder while it was walked through."""


class Entry(NamedTuple):
    """A name in a folder."""

    path: bytes
    """From its base, without a slash before it."""
    base: int
    """The folder that its path begins at: 0 for the top, else counted in the order of the walk."""
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


def walk(
    top: Path,
    *,
    strict: bool = False,
    most: int = ANY_NUMBER,
    missed: Callable[[], None] = lambda: None,
) -> Iterator[Entry]:
    """Yield all that stands in a folder, sorted by the bytes of names, each folder before its own.

    Ended before its end, it may leave folders open for their owner that this one had shut.

    Args:
        top: The folder.
        strict: Whether a folder that cannot be read is an error. Where it is none, that folder is
            yielded, and nothing in it.
        most: Names that it takes.
        missed: Called for each name that was gone before it could be looked at.

    Raises:
        TreeMoved: A folder was moved meanwhile.
        TreeTooLarge: There are more names.
        OSError: The top cannot be read, or a folder where it is an error.
    """
    current = os.open(top, _FOLDER)
    above: list[tuple[list[bytes], tuple[int, int], int | None]] = []
    paths, names, mode = _Paths(), list[bytes](), None
    try:
        names = _names(current, most)
        most -= len(names)
        while True:
            while not names:
                if not above:
                    return
                names, which, outer_mode = above.pop()
                current = _left(current, which, mode)
                mode = outer_mode
                paths.leave()
            name = names.pop()
            try:
                status = os.stat(name, dir_fd=current, follow_symlinks=False)
            except FileNotFoundError:
                missed()
                continue
            entry = Entry(paths.folder + name, paths.base, name, status, current)
            yield entry
            if stat.S_ISDIR(status.st_mode):
                try:
                    entered = entry.open()
                    above.append((names, _identity(current), mode))
                    os.close(current)
                    current, names = entered, []
                    paths.enter(entry.path)
                    mode = _opened_up(current, status)
                    names = _names(current, most)
                    most -= len(names)
                except OSError as error:
                    if strict:
                        raise
                    if isinstance(error, FileNotFoundError):
                        missed()
    finally:
        os.close(current)


def is_base(path: bytes) -> bool:
    """Tell whether the paths of what a folder holds begin at that folder."""
    return len(path) > LONGEST_PATH or path.count(b"/") >= DEEPEST


class _Paths:
    """The path of the folder that a walk is in."""

    def __init__(self) -> None:
        self.base = 0
        self.folder = b""
        """From the base, with a slash behind it."""
        self._last_base = 0
        self._outside: list[tuple[int, bytes]] = []

    def enter(self, path: bytes) -> None:
        if is_base(path):
            self._outside.append((self.base, self.folder))
            self._last_base += 1
            self.base, self.folder = self._last_base, b""
        else:
            self.folder = path + b"/"

    def leave(self) -> None:
        if self.folder:
            self.folder = self.folder[: self.folder.rfind(b"/", 0, -1) + 1]
        else:
            self.base, self.folder = self._outside.pop()


def _names(folder: int, most: int) -> list[bytes]:
    """Return the names in a folder, the last one first; as many are held, not more."""
    with os.scandir(folder) as found:
        names = [os.fsencode(each.name) for each in islice(found, most + 1)]
    if len(names) > most:
        raise TreeTooLarge
    names.sort(reverse=True)
    return names


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
        itself = f"/proc/self/fd/{held}"
        os.chmod(itself, mode | _ENTER)  # noqa: PTH101 - a child that walks does without pathlib
        try:
            return os.open(itself, flags & ~os.O_NOFOLLOW)
        finally:
            os.chmod(itself, mode)  # noqa: PTH101 - the same
    finally:
        os.close(held)
