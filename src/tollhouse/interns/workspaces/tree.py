"""Reads a folder that a stranger filled: names of any bytes, folders in folders, sparse files.

A folder is entered through its parent's descriptor and never through a link, and left through
`..`: two descriptors are open at a time, and no path is ever longer than a name. If somebody moves
a folder meanwhile, the walk ends with an error; so it does if there are more names than the caller
takes, since those of a folder are sorted in memory.

Folders may be nested to any depth, also deeper than a path can say: each level costs a few words
of memory, and an entry's path has a bound. Below that bound, paths begin again at a folder, their
base: a walk takes time and memory in proportion to the names, not to the sum of the paths.

Of a sparse file, only what holds data is read, in blocks of `BLOCK`: a file of small pieces between
small holes costs at most 16 times its data, and its list of pieces stays short.

Source: openat(2), path_resolution(7); lseek(2), SEEK_DATA and SEEK_HOLE.
"""

from __future__ import annotations

import errno
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


class TreeEntry(NamedTuple):
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

        Raises `OSError` where it cannot be read, even by who owns it.
        """
        flags = _FOLDER if stat.S_ISDIR(self.status.st_mode) else _FILE
        try:
            return os.open(self.name, flags, dir_fd=self.parent)
        except PermissionError:
            if self.status.st_uid != os.geteuid():
                raise
        # Its owner has taken the right to read from itself: a moment with it changes nothing.
        mode = stat.S_IMODE(self.status.st_mode)
        held = os.open(self.name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.parent)
        try:
            itself = f"/proc/self/fd/{held}"
            os.chmod(itself, mode | _ENTER)  # noqa: PTH101 - a child that walks does without pathlib
            try:
                return os.open(itself, flags & ~os.O_NOFOLLOW)
            finally:
                os.chmod(itself, mode)  # noqa: PTH101 - the same
        finally:
            os.close(held)

    def target(self) -> bytes:
        """Return what a link says."""
        return os.readlink(self.name, dir_fd=self.parent)


def walk(
    top: Path | str,
    *,
    strict: bool = False,
    most: int = ANY_NUMBER,
    missed: Callable[[], None] = lambda: None,
) -> Iterator[TreeEntry]:
    """Yield all that stands in a folder, sorted by the bytes of names, each folder before its own.

    Ended before its end, it may leave folders open for their owner that this one had shut.

    Unless it is `strict`, a folder that cannot be read is yielded, and nothing in it. `missed` is
    called for each name that was gone before it could be looked at.

    Raises:
        TreeMoved: A folder was moved meanwhile.
        TreeTooLarge: There are more names than `most`.
        OSError: The top cannot be read, or where it is strict a folder.
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
                current = _leave(current, which, mode)
                mode = outer_mode
                paths.leave()
            name = names.pop()
            try:
                status = os.stat(name, dir_fd=current, follow_symlinks=False)
            except FileNotFoundError:
                missed()
                continue
            entry = TreeEntry(paths.folder + name, paths.base, name, status, current)
            yield entry
            if stat.S_ISDIR(status.st_mode):
                try:
                    entered = entry.open()
                    above.append((names, _inode_of(current), mode))
                    os.close(current)
                    current, names = entered, []
                    paths.enter(entry.path)
                    mode = _make_enterable(current, status)
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


def _make_enterable(folder: int, status: os.stat_result) -> int | None:
    """Let its owner, if that is us, into a folder; return the mode that it gets back, if any."""
    mode = stat.S_IMODE(status.st_mode)
    if mode & _ENTER == _ENTER or os.geteuid() == 0 or status.st_uid != os.geteuid():
        return None
    os.fchmod(folder, mode | _ENTER)
    return mode


def _leave(folder: int, which: tuple[int, int], mode: int | None) -> int:
    parent = os.open("..", _FOLDER, dir_fd=folder)
    if mode is not None:
        os.fchmod(folder, mode)
    if _inode_of(parent) != which:
        os.close(parent)
        raise TreeMoved
    os.close(folder)
    return parent


def _inode_of(folder: int) -> tuple[int, int]:
    status = os.fstat(folder)
    return status.st_dev, status.st_ino


BLOCK: Final = 64 * 1024
_ZEROS: Final = bytes(BLOCK)


class FileChanged(OSError):
    """Somebody made a file shorter while it was read."""


def extents(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where a file holds data: begin and end, in their order, with a hole between two.

    Begins are multiples of `BLOCK`, and so are ends but for the last one. A file system that knows
    nothing of holes has one piece of data.
    """
    begin = end = 0
    for data, hole in _data_ranges(file, size):
        from_block, to_block = data - data % BLOCK, min(size, -(-hole // BLOCK) * BLOCK)
        if from_block > end:
            if end > begin:
                yield begin, end
            begin = from_block
        end = max(end, to_block)
    if end > begin:
        yield begin, end


def blocks(file: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the blocks of a file that hold anything but zeros, each with its place.

    Equal content yields the same, with holes or without. Raises `OSError` where it cannot be read,
    `FileChanged` where it is shorter by now.
    """
    for begin, end in extents(file, size):
        for at in range(begin, end, BLOCK):
            block = read_at(file, at, min(BLOCK, end - at))
            if block != _ZEROS[: len(block)]:
                yield at, block


def read_at(file: int, at: int, size: int) -> bytes:
    """Return so many bytes of a file; raises `FileChanged` where it is shorter by now."""
    found = os.pread(file, size, at)
    while len(found) < size:
        more = os.pread(file, size - len(found), at + len(found))
        if not more:
            raise FileChanged
        found += more
    return found


def _data_ranges(file: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield where the file system says that data begins and ends."""
    at = 0
    while at < size:
        try:
            data = os.lseek(file, at, os.SEEK_DATA)
            hole = os.lseek(file, data, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:
                return  # a hole up to the end
            if error.errno != errno.EINVAL:
                raise
            data, hole = at, size
        if data >= size:
            return
        yield data, hole
        at = hole
