"""What a workspace holds: a digest of it, and how much disk it takes.

What is in it was written by strangers. Nothing here follows a link, or waits for a pipe. Both take
as long as the folder is large: `workspaces.jobs` runs them in a process that can be killed.

The disk is measured while programs may be writing. A file without a name takes disk for as long as
a program holds it open, so files that programs of the sandbox hold are counted too. Not seen is
what they hold only as mapped memory or in a message that nobody has taken, and what a program hides
by moving it about just as it is read. Measuring again finds what was missed, unless that was moved
again.

Source: stat(2), proc_pid_fd(5).
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from tollhouse.interns.workspaces.tree import KEPT_MODE, TreeEntry, TreeTooLarge, blocks, walk
from tollhouse.kernel.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path


PLAIN_ZEROS: Final = 1024 * 1024 * 1024
"""Bytes of whole blocks of zeros in one workspace that are digested as they are."""
_ZEROS: Final = bytes(1024 * 1024)
_MODE: Final = 0o700
_KINDS: Final = {
    stat.S_IFREG: b"file",
    stat.S_IFDIR: b"folder",
    stat.S_IFLNK: b"link",
    stat.S_IFIFO: b"pipe",
}
_OTHER: Final = b"device"


def make_workspace(folder: Path) -> None:
    """Make a workspace, if it is not there; nobody but its owner may enter it."""
    folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
    folder.chmod(_MODE)


def chown(folder: Path, user: int) -> None:
    """Give a workspace to a user, with all that is in it. Only root can.

    The folder itself comes last: a workspace that belongs to the user does so as a whole.
    """
    if folder.lstat().st_uid != user:
        chown_tree(folder, user)


def chown_tree(folder: Path, user: int) -> None:
    """Give a folder to a user, whoever owns it now. Only root can."""
    for entry in walk(folder):
        if (entry.status.st_uid, entry.status.st_gid) != (user, user):
            os.chown(entry.name, user, user, dir_fd=entry.parent, follow_symlinks=False)
    os.chown(folder, user, user, follow_symlinks=False)


def digest(
    folder: Path | str, alive: Callable[[], None] = lambda: None, *, flush: bool = False
) -> str:
    """Return the SHA-256 of what is in a workspace, in hexadecimal.

    It covers paths, kinds, modes, what links say and what files hold; not owners and times, and
    no sockets, which mean nothing once their program has ended. A hole holds zeros, as for who
    reads it. `PLAIN_ZEROS` of a workspace are digested as they are; further whole blocks of
    zeros stand for themselves by place and number, so that a large hole costs nothing.

    `alive` is called while it goes on. With `flush`, all of it is on the disk when this returns.

    Raises:
        OSError: The folder is missing, or was changed meanwhile.
    """
    total, contents = hashlib.sha256(), _ContentDigests(alive, flush=flush)
    for entry in walk(folder):
        alive()
        mode = entry.status.st_mode
        if stat.S_ISSOCK(mode):
            continue
        if flush and stat.S_ISDIR(mode):
            with suppress(PermissionError):
                _sync(entry.open())
        kind = _KINDS.get(stat.S_IFMT(mode), _OTHER)
        content = contents.of(entry, kind)
        path = b"\0%d/" % entry.base + entry.path if entry.base else entry.path
        for part in (path, kind, b"%o" % (mode & KEPT_MODE), content):
            total.update(b"%d:" % len(part) + part)
    if flush:
        sync_folder(folder)
    return total.hexdigest()


class _Hasher(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _ContentDigests:
    """What stands for the contents of the entries of one walk, with a bound to its length."""

    def __init__(self, alive: Callable[[], None], *, flush: bool) -> None:
        self._alive = alive
        self._flush = flush
        self._zeros_left = PLAIN_ZEROS
        self._linked: dict[tuple[int, int], bytes] = {}
        """Of files with several names, which are read once."""

    def of(self, entry: TreeEntry, kind: bytes) -> bytes:
        if kind == b"link":
            return entry.target()
        if kind != b"file":
            return b""
        status = entry.status
        if status.st_nlink == 1:
            return self._read(entry)
        which = status.st_dev, status.st_ino
        if which not in self._linked:
            self._linked[which] = self._read(entry)
        return self._linked[which]

    def _read(self, entry: TreeEntry) -> bytes:
        try:
            opened = entry.open()
        except PermissionError:
            return b"unreadable"
        try:
            if self._flush:
                os.fsync(opened)
            return self._digest(opened, os.fstat(opened).st_size)
        finally:
            os.close(opened)

    def _digest(self, file: int, size: int) -> bytes:
        held, left_out, all_left_out, at = hashlib.sha256(), hashlib.sha256(), 0, 0
        for place, block in chain(blocks(file, size), [(size, b"")]):
            self._alive()
            if count := self._pass_zeros(held, place - at):
                left_out.update(b"%d+%d " % (place - count, count))
                all_left_out += count
            held.update(block)
            at = place + len(block)
        if not all_left_out:
            return held.digest()
        return hashlib.sha256(b"zeros" + left_out.digest() + held.digest()).digest()

    def _pass_zeros(self, held: _Hasher, count: int) -> int:
        """Digest so many zeros as they are, as far as that goes; return how many are left out."""
        plain = min(count, self._zeros_left)
        self._zeros_left -= plain
        for done in range(0, plain, len(_ZEROS)):
            held.update(_ZEROS[: plain - done])
        return count - plain


def _sync(opened: int) -> None:
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


_BLOCK_BYTES: Final = 4096
_STATUS_BLOCK_BYTES: Final = 512
"""What `st_blocks` counts in, whatever the file system's blocks are; see stat(2)."""
_ATTEMPTS: Final = 3
_BEYOND_ANY: Final = 1 << 62


class DiskUsage(NamedTuple):
    """What a workspace holds."""

    disk_bytes: int
    """Each name in it takes at least a block."""
    names: int


UNCOUNTABLE: Final = DiskUsage(_BEYOND_ANY, _BEYOND_ANY)
"""What counts as more than any limit."""


def measure(
    folder: Path | str,
    most: int,
    processes: Iterable[int] = (),
    alive: Callable[[], None] = lambda: None,
) -> DiskUsage:
    """Return what a workspace holds, with what `processes` have deleted and hold open.

    Where something is moved away meanwhile it is looked at again, and the larger result counts.

    Raises:
        TreeTooLarge: There are more names than `most`, or more files held open.
        OSError: No look came to its end, since folders were moved each time.
    """
    found = DiskUsage(0, 0)
    ended: OSError | None = None
    for _ in range(_ATTEMPTS):
        try:
            look, is_whole = _measure_once(folder, most, processes, alive)
        except OSError as error:
            ended = error
            continue
        found, ended = max(found, look), None
        if is_whole:
            break
    if ended is not None:
        raise ended
    return found


def _measure_once(
    folder: Path | str, most: int, processes: Iterable[int], alive: Callable[[], None]
) -> tuple[DiskUsage, bool]:
    """Return what one look finds, and whether every name was there to be looked at."""
    disk = names = 0
    missed: list[None] = []
    counted: set[tuple[int, int]] = set()
    for entry in walk(folder, most=most, missed=lambda: missed.append(None)):
        alive()
        names += 1
        disk += max(_BLOCK_BYTES, _disk_bytes(entry.status, counted))
    device = os.stat(folder).st_dev  # noqa: PTH116 - without pathlib's cost at a start
    for status in _deleted_files(processes, device, most):
        alive()
        disk += _disk_bytes(status, counted)
    return DiskUsage(disk, names), not missed


def _disk_bytes(status: os.stat_result, counted: set[tuple[int, int]]) -> int:
    """Return what a file takes, once where it is found several times."""
    if status.st_nlink != 1 and not stat.S_ISDIR(status.st_mode):
        which = status.st_dev, status.st_ino
        if which in counted:
            return 0
        counted.add(which)
    return status.st_blocks * _STATUS_BLOCK_BYTES


def _deleted_files(processes: Iterable[int], device: int, most: int) -> Iterator[os.stat_result]:
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
