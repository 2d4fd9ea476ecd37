"""Files that are sent: complete under their name, or not there at all.

What arrives is written to `.intern/uploads` of the workspace, and renamed once it is on the disk.
The folder is emptied when the daemon starts, so that a kill leaves nothing for ever.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.files.entries import Entry, entry
from tollhouse.sandbox.daemon.files.work import beside

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Sequence

    from tollhouse.sandbox.daemon.files.tree import Tree

_UPLOADS: Final = (".intern", "uploads")
_GATHERED: Final = 256 * 1024
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MODE: Final = 0o644


class Uploads:
    """Takes files into the workspace."""

    def __init__(self, tree: Tree, largest: int) -> None:
        """Take where to, and how many bytes a file may have."""
        self._tree = tree
        self._largest = largest

    def sweep(self) -> None:
        """Remove what a killed daemon has left."""
        with suppress(OSError, Refused), self._tree.place((*_UPLOADS, "x")) as place:
            folder = os.open(".", os.O_RDONLY | os.O_CLOEXEC, dir_fd=place.folder)
            try:
                for name in os.listdir(folder):  # noqa: PTH208 - a path knows no descriptors
                    with suppress(OSError):
                        os.unlink(name, dir_fd=folder)
            finally:
                os.close(folder)

    async def put(
        self,
        names: Sequence[str],
        body: AsyncIterable[bytes],
        *,
        size: int | None,
        mode: int | None,
    ) -> tuple[Entry, bool]:
        """Write a file, and replace what has its name.

        Args:
            names: Of the file, from the workspace's folder on; folders are made.
            body: What it holds.
            size: Of the body in bytes, where it is known.
            mode: Permissions; None for those of the file that is replaced, else 0644.

        Returns:
            The file, and whether it is new.

        Raises:
            Refused: It is too large, no file can have this name, or a link leads out.
            OSError: The disk is full, say.
        """
        if not names:
            raise Refused(409, "The workspace itself is a folder.")
        self._check(size or 0)
        if size is not None and size > self._tree.space():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with self._tree.place(names, make=True) as place:
            old = _existing(place.folder, place.name)
            wanted = mode if mode is not None else _MODE if old is None else stat.S_IMODE(old)
            with self._tree.place((*_UPLOADS, secrets.token_hex(16)), make=True) as draft:
                file = os.open(draft.name, _NEW, 0o600, dir_fd=draft.folder)
                try:
                    await self._write(file, body)
                    os.fchmod(file, wanted)
                    await beside(partial(os.fsync, file))
                    status = os.fstat(file)
                    os.rename(
                        draft.name,
                        place.name,
                        src_dir_fd=draft.folder,
                        dst_dir_fd=place.folder,
                    )
                except BaseException:
                    with suppress(OSError):
                        os.unlink(draft.name, dir_fd=draft.folder)
                    raise
                finally:
                    os.close(file)
        return entry(names[-1], status), old is None

    async def _write(self, file: int, body: AsyncIterable[bytes]) -> None:
        gathered = bytearray()
        size = 0
        async for piece in body:
            size += len(piece)
            self._check(size)
            gathered += piece
            if len(gathered) >= _GATHERED:
                await beside(partial(_write_all, file, gathered))
                gathered = bytearray()
        await beside(partial(_write_all, file, gathered))

    def _check(self, size: int) -> None:
        if size > self._largest:
            raise Refused(413, f"A file may have {self._largest} bytes at most.")


def _existing(folder: int, name: str) -> int | None:
    """Return the mode of what a file would replace.

    Raises:
        Refused: It is none that can be replaced.
    """
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(mode):
        raise Refused(409, "There is a folder of this name.")
    if not stat.S_ISREG(mode):
        raise Refused(409, "There is something of this name that is no file.")
    return mode


def _write_all(file: int, data: bytearray) -> None:
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(file, view[done:])
