"""The folder that an intern keeps: made, given to a user, measured by a digest, flushed to disk.

What is in it was written by strangers. Nothing here follows a link, or waits for a pipe. All of it
takes as long as the folder is large: the functions that are `async` do it in a thread, the others
are to be called in one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tollhouse.interns.tree import KEPT_MODE, walk

if TYPE_CHECKING:
    from pathlib import Path

    from tollhouse.interns.tree import Entry

_PIECE_BYTES: Final = 1024 * 1024
_MODE: Final = 0o700
_KINDS: Final = {
    stat.S_IFREG: b"file",
    stat.S_IFDIR: b"folder",
    stat.S_IFLNK: b"link",
    stat.S_IFIFO: b"pipe",
}
_OTHER: Final = b"device"


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


async def digest(folder: Path) -> str:
    """Return the SHA-256 of what is in a workspace, in hexadecimal.

    It covers paths, kinds, modes, what links say and what files hold; not owners and times, and
    no sockets, which mean nothing once their program has ended.

    Raises:
        OSError: The folder is missing, or was changed meanwhile.
    """
    return await asyncio.to_thread(_digest, folder)


async def flush(folder: Path) -> None:
    """Wait until all of a workspace is on the disk.

    Raises:
        OSError: The disk refuses.
    """
    await asyncio.to_thread(_flush, folder)


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for entry in walk(folder):
        mode = entry.status.st_mode
        if stat.S_ISSOCK(mode):
            continue
        kind = _KINDS.get(stat.S_IFMT(mode), _OTHER)
        content = _content(entry, kind)
        for part in (entry.path, kind, b"%o" % (mode & KEPT_MODE), content):
            total.update(b"%d:" % len(part) + part)
    return total.hexdigest()


def _content(entry: Entry, kind: bytes) -> bytes:
    """Return what stands for the content of an entry, with a bound to its length."""
    if kind == b"link":
        return entry.target()
    if kind != b"file":
        return b""
    try:
        opened = entry.open()
    except PermissionError:
        return b"unreadable"
    held = hashlib.sha256()
    with open(opened, "rb", buffering=0) as file:  # noqa: PTH123 - a descriptor
        while piece := file.read(_PIECE_BYTES):
            held.update(piece)
    return held.digest()


def _flush(folder: Path) -> None:
    for entry in walk(folder):
        if stat.S_ISREG(entry.status.st_mode) or stat.S_ISDIR(entry.status.st_mode):
            with suppress(PermissionError):
                _sync(entry.open())
    _sync(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))


def _sync(opened: int) -> None:
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
