"""Blobs in a folder of this machine.

    put     ~k3x9.tmp ──write──> fsync ──link──> 00003.jsonl.zst ──> unlink ~k3x9.tmp
                                                                 ──> fsync of the folders

A blob appears under its key by a hard link: that is one step, and it fails where the key is taken.
(A rename would overwrite it; the rename that does not is Linux's own, and Python has no name for
it.) A process that is killed leaves a temporary file at most. Its name begins with `~`, which no
key may hold, and `sweep` removes it at the next start.

Every folder up to the root is flushed, not only those that were made now: one that is there already
may have been made a moment ago by another thread, or by a process that was killed before its flush.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.folders import sync_folder
from tollhouse.storage.blobs.port import (
    PIECE,
    BlobExists,
    BlobMissing,
    BlobsFull,
    BlobsUnavailable,
    InvalidKey,
    check_key,
    check_prefix,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator, Iterable, Iterator, Sequence

_TEMPORARY: Final = "~"
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class LocalBlobs:
    """Blobs as files below a folder; fulfils `storage.blobs.port.Blobs`.

    The folder's file system has to know hard links. All work on files happens in threads.
    """

    def __init__(self, root: Path) -> None:
        """Name the folder, inside one that exists; nothing is touched yet."""
        self._root = root

    async def put(self, key: str, data: bytes) -> None:
        """Create a blob; see `Blobs.put`."""
        check_key(key)
        await asyncio.to_thread(self._put, key, data)

    async def get(self, key: str) -> bytes:
        """Return all of a blob; see `Blobs.get`."""
        check_key(key)
        return await asyncio.to_thread(self._read, key)

    async def stream(self, key: str) -> AsyncGenerator[bytes]:
        """Give a blob in pieces; see `Blobs.stream`."""
        check_key(key)
        offset, size = 0, PIECE
        while size == PIECE:
            piece = await asyncio.to_thread(self._read, key, offset, PIECE)
            size = len(piece)
            offset += size
            if piece:
                yield piece

    async def list(self, prefix: str) -> Sequence[str]:
        """Return the keys in a folder; see `Blobs.list`."""
        check_prefix(prefix)
        return await asyncio.to_thread(self._list, prefix)

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs; see `Blobs.delete`."""
        keys = tuple(keys)
        for key in keys:
            check_key(key)
        await asyncio.to_thread(self._delete, keys)

    async def delete_all(self, prefix: str) -> None:
        """Delete every blob in a folder; see `Blobs.delete_all`."""
        check_key(prefix)
        await asyncio.to_thread(self._delete_all, prefix)

    async def sweep(self) -> int:
        """Remove what writers that were killed left behind; at a start, before anyone writes.

        Returns:
            How many files that were.

        Raises:
            BlobsUnavailable: The disk fails.
        """
        return await asyncio.to_thread(self._sweep)

    def _put(self, key: str, data: bytes) -> None:
        path = self._root / key
        with _failures():
            if path.exists():  # saves the writing; whether the key is free, the link decides
                raise BlobExists(key)
            self._make_folder(key)
            temporary = _write_temporary(path.parent, data)
            try:
                os.link(temporary, path)
            except FileExistsError:
                raise BlobExists(key) from None
            finally:
                temporary.unlink()
            self._sync_folders(path.parent)

    def _make_folder(self, key: str) -> None:
        folder = self._root
        try:
            for name in ["", *key.split("/")[:-1]]:
                folder /= name
                folder.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            raise InvalidKey(key, "one of its folders is a blob") from None

    def _sync_folders(self, folder: Path) -> None:
        """Flush a folder and those it stands in, up to the entry of the root."""
        while folder != self._root.parent:
            sync_folder(folder)
            folder = folder.parent
        sync_folder(folder)

    def _read(self, key: str, offset: int = 0, size: int = -1) -> bytes:
        with _failures():
            try:
                # Opened for each piece: a reader who walks away leaves nothing open.
                with (self._root / key).open("rb") as file:
                    file.seek(offset)
                    return file.read(size)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise BlobMissing(key) from None

    def _list(self, prefix: str) -> Sequence[str]:
        with _failures():
            files = _files(self._root / prefix)
            return sorted(
                path.relative_to(self._root).as_posix()
                for path in files
                if not path.name.startswith(_TEMPORARY)
            )

    def _delete(self, keys: Sequence[str]) -> None:
        with _failures():
            folders: set[Path] = set()
            for key in keys:
                path = self._root / key
                with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                    path.unlink()
                    folders.add(path.parent)
            for folder in folders:
                with suppress(FileNotFoundError):
                    sync_folder(folder)

    def _delete_all(self, prefix: str) -> None:
        top = self._root / prefix
        with _failures():
            for folder, _, names in os.walk(top, topdown=False, onerror=_unless_gone):
                for name in names:
                    Path(folder, name).unlink(missing_ok=True)
                with suppress(OSError):  # somebody writes there, or deletes it too
                    Path(folder).rmdir()
            with suppress(FileNotFoundError, NotADirectoryError):
                sync_folder(top.parent)

    def _sweep(self) -> int:
        removed = 0
        with _failures():
            for path in _files(self._root):
                if path.name.startswith(_TEMPORARY):
                    path.unlink(missing_ok=True)
                    removed += 1
        return removed


def _write_temporary(folder: Path, data: bytes) -> Path:
    """Write a file of its own name, flushed; nothing is left of it where that fails."""
    descriptor, name = tempfile.mkstemp(prefix=_TEMPORARY, suffix=".tmp", dir=folder)
    try:
        try:
            rest = memoryview(data)
            while rest:  # a disk that is nearly full takes a part, and refuses the next one
                rest = rest[os.write(descriptor, rest) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        Path(name).unlink()
        raise
    return Path(name)


def _files(top: Path) -> Iterator[Path]:
    """Give every file in a folder and the folders below it; a folder that is missing has none."""
    for folder, _, names in os.walk(top, onerror=_unless_gone):
        for name in names:
            yield Path(folder, name)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


@contextmanager
def _failures() -> Generator[None]:
    """Make errors of the disk ours."""
    try:
        yield
    except OSError as error:
        kind = BlobsFull if error.errno in _NO_ROOM else BlobsUnavailable
        raise kind(f"the folder of blobs: {error}") from error
