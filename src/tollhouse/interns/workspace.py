"""The folder that an intern keeps: made, given to a user, measured by a digest, flushed to disk.

What is in it was written by strangers. Nothing here follows a link, or waits for a pipe. A digest
takes as long as the folder is large: `walks` makes it in a process that can be killed.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol

from tollhouse.interns.holes import blocks
from tollhouse.interns.tree import KEPT_MODE, walk
from tollhouse.kernel.folders import sync_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tollhouse.interns.tree import Entry

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


def _still() -> None:
    """Nobody wants to know that it goes on."""


def make(folder: Path) -> None:
    """Make a workspace, if it is not there; nobody but its owner may enter it."""
    folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
    folder.chmod(_MODE)


def give(folder: Path, user: int) -> None:
    """Give a workspace to a user, with all that is in it. Only root can.

    The folder itself comes last: a workspace that belongs to the user does so as a whole.
    """
    if folder.lstat().st_uid != user:
        give_all(folder, user)


def give_all(folder: Path, user: int) -> None:
    """Give a folder to a user, whoever owns it now. Only root can."""
    for entry in walk(folder):
        if (entry.status.st_uid, entry.status.st_gid) != (user, user):
            os.chown(entry.name, user, user, dir_fd=entry.parent, follow_symlinks=False)
    os.chown(folder, user, user, follow_symlinks=False)


def digest(folder: Path, alive: Callable[[], None] = _still, *, flush: bool = False) -> str:
    """Return the SHA-256 of what is in a workspace, in hexadecimal.

    It covers paths, kinds, modes, what links say and what files hold; not owners and times, and
    no sockets, which mean nothing once their program has ended. A hole holds zeros, as for who
    reads it. `PLAIN_ZEROS` of a workspace are digested as they are; further whole blocks of
    zeros stand for themselves by place and number, so that a large hole costs nothing.

    Args:
        folder: The workspace.
        alive: Called again and again while it goes on.
        flush: Whether all of it is to be on the disk when this returns.

    Raises:
        OSError: The folder is missing, or was changed meanwhile.
    """
    total, contents = hashlib.sha256(), _Contents(alive, flush=flush)
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


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


class _Contents:
    """What stands for the contents of the entries of one walk, with a bound to its length."""

    def __init__(self, alive: Callable[[], None], *, flush: bool) -> None:
        self._alive = alive
        self._flush = flush
        self._zeros_left = PLAIN_ZEROS
        self._linked: dict[tuple[int, int], bytes] = {}
        """Of files with several names, which are read once."""

    def of(self, entry: Entry, kind: bytes) -> bytes:
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

    def _read(self, entry: Entry) -> bytes:
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

    def _pass_zeros(self, held: _Hash, count: int) -> int:
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
