"""Files that are too large for rows: written once, read often, deleted by whole folders.

A blob is whole or not there. It is written once: a key that is taken stays as it is, so that of two
workers who write the same key exactly one goes on. Nothing is ever changed, only deleted.

    Bug
     ├─ InvalidKey          no relative path of safe names
     ├─ BlobExists          the key is taken: another writer was first
     └─ BlobMissing         there is none of that key
    Unavailable
     └─ BlobsUnavailable    the disk fails, the store cannot be reached or refuses us
         └─ BlobsFull       there is no room for it

Keys are ours and never a caller's. Whoever writes or reads knows what a taken or a missing key
means there; where nobody expected it, it is our own fault.

`LocalBlobs` is a folder on this machine. `s3_blobs` is for many machines; only who builds one
imports it, since its library is 15 MB that a single machine never needs.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tollhouse.kernel.errors import Bug, Unavailable
from tollhouse.kernel.failpoints import failpoint
from tollhouse.kernel.files import sync_folder

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Generator,
        Iterable,
        Iterator,
        Sequence,
    )

PIECE: Final = 1024 * 1024
"""Most bytes that `Blobs.stream` gives at once."""
LONGEST_KEY: Final = 700
"""Characters; with a prefix before it, S3 takes 1024."""
LONGEST_NAME: Final = 200
"""Characters of one segment; file systems take 255."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_TEMPORARY: Final = "~"
_NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class InvalidKey(Bug):
    """A key is no relative path of safe names."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"{key!r} is no key of a blob: {reason}")
        self.key = key


class BlobExists(Bug):
    """The key is taken: another writer was first, and what it wrote stays."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is a blob {key} already")
        self.key = key


class BlobMissing(Bug):
    """There is no blob of that key, or no longer."""

    def __init__(self, key: str) -> None:
        super().__init__(f"there is no blob {key}")
        self.key = key


class BlobsUnavailable(Unavailable):
    """The disk fails, or the store cannot be reached or refuses us."""

    def __init__(self, reason: str) -> None:
        """Tell the caller to come back, and keep the reason for the operator's log."""
        super().__init__("stored files cannot be read or written at the moment; try again later")
        self.reason = reason


class BlobsFull(BlobsUnavailable):
    """There is no room for it."""


class Blobs(Protocol):
    """Blobs by key, for as long as nobody deletes them.

    A key is a relative path like `batches/7f3a/input/00003.jsonl.zst`: names of letters, digits,
    `.`, `_` and `-`, none of them `.` or `..`. No key is a folder of another one.

    Every method raises `InvalidKey` for a key or a prefix that is none, before anything happens,
    and `BlobsUnavailable` where the store fails.
    """

    async def put(self, key: str, data: bytes) -> None:
        """Create a blob; when this returns, it survives a power failure.

        After `BlobsUnavailable`, or when the caller was cancelled, the blob is there whole, or will
        be, or not at all. Put it again: `BlobExists` says that it was there.

        Raises:
            BlobExists: The key is taken; its blob is as it was.
            BlobsFull: There is no room; nothing is left behind.
        """
        ...

    def staging(self) -> Path:
        """Return the folder for files that `put_file` is to take.

        Their names begin with `~`. What a killed process leaves there is removed at a start, if
        the store is local.
        """
        ...

    async def put_file(self, key: str, path: Path) -> None:
        """Create a blob of a file in `staging`, which is gone then, whatever happens; see `put`."""
        ...

    async def get(self, key: str) -> bytes:
        """Return all of a blob.

        Raises:
            BlobMissing: There is none.
        """
        ...

    def stream(self, key: str) -> AsyncIterator[bytes]:
        """Give a blob in pieces of at most `PIECE` bytes, the first when it is asked for.

        Nothing is held open between two pieces, however slow the reader is.

        Raises:
            BlobMissing: There is none, or it was deleted between two pieces.
        """
        ...

    async def list(self, prefix: str) -> Sequence[str]:
        """Return the keys in a folder and the folders below it, sorted; of "", every key.

        A prefix is whole names: `batches/1` holds nothing of `batches/10`.
        """
        ...

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs; those that are missing are fine."""
        ...

    async def delete_all(self, prefix: str) -> None:
        """Delete every blob in a folder, which is not "", and the folders below it; none is fine.

        Nobody may write there meanwhile: what is put at the same time may stay.
        """
        ...


def check_key(key: str) -> None:
    """Raise `InvalidKey` for a key that may not be used."""
    if len(key) > LONGEST_KEY:
        raise InvalidKey(key, f"it is longer than {LONGEST_KEY} characters")
    for name in key.split("/"):
        if not _NAME.fullmatch(name) or name in {".", ".."}:
            raise InvalidKey(key, f"{name!r} is no safe name")
        if len(name) > LONGEST_NAME:
            raise InvalidKey(key, f"a name in it is longer than {LONGEST_NAME} characters")


def check_prefix(prefix: str) -> None:
    """Raise `InvalidKey` for a prefix that may not be listed."""
    if prefix:
        check_key(prefix)


class LocalBlobs:
    """Blobs as files below a folder; fulfils `Blobs`. All work on files happens in threads.

        put     ~k3x9.tmp ──write──> fsync ──link──> 00003.jsonl.zst ──> unlink ~k3x9.tmp
                                                                     ──> fsync of the folders

    A blob appears under its key by a hard link, which the folder's file system has to know: that is
    one step, and it fails where the key is taken. (A rename would overwrite it; the rename that
    does not is Linux's own, and Python has no name for it.) A process that is killed leaves a
    temporary file at most. Its name begins with `~`, which no key may hold, and `sweep` removes it
    at the next start.

    Every folder up to the root is flushed, not only those that were made now: one that is there
    already may have been made a moment ago by another thread, or by a process that was killed
    before its flush.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    async def put(self, key: str, data: bytes) -> None:
        """Create a blob; see `Blobs.put`."""
        check_key(key)
        await asyncio.to_thread(self._put, key, data)

    def staging(self) -> Path:
        """Return the root, made if it is missing: files there are on its file system."""
        with storage_failures():
            self._root.mkdir(mode=0o700, exist_ok=True)
        return self._root

    async def put_file(self, key: str, path: Path) -> None:
        """Create a blob of a file; see `Blobs.put_file`."""
        check_key(key)
        await asyncio.to_thread(self._put_file, key, path)

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
        await failpoint("blobs.delete_all.before")
        await asyncio.to_thread(self._delete_all, prefix)
        await failpoint("blobs.delete_all.after")

    async def sweep(self) -> int:
        """Remove what killed writers left, and return how many files; before anyone writes."""
        return await asyncio.to_thread(self._sweep)

    def _put(self, key: str, data: bytes) -> None:
        path = self._root / key
        with storage_failures():
            if path.exists():  # saves the writing; whether the key is free, the link decides
                raise BlobExists(key)
            self._make_folder(key)
            self._link(key, _write_temporary(path.parent, data))

    def _put_file(self, key: str, path: Path) -> None:
        with storage_failures():
            try:
                _sync_file(path)
                self._make_folder(key)
            except BaseException:
                path.unlink()
                raise
            self._link(key, path)

    def _link(self, key: str, temporary: Path) -> None:
        """Give a flushed file its key, in place of its own name."""
        path = self._root / key
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
        with storage_failures():
            try:
                # Opened for each piece: a reader who walks away leaves nothing open.
                with (self._root / key).open("rb") as file:
                    file.seek(offset)
                    return file.read(size)
            except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
                raise BlobMissing(key) from None

    def _list(self, prefix: str) -> Sequence[str]:
        with storage_failures():
            files = _files(self._root / prefix)
            return sorted(
                path.relative_to(self._root).as_posix()
                for path in files
                if not path.name.startswith(_TEMPORARY)
            )

    def _delete(self, keys: Sequence[str]) -> None:
        with storage_failures():
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
        with storage_failures():
            for folder, _, names in os.walk(top, topdown=False, onerror=_unless_gone):
                for name in names:
                    Path(folder, name).unlink(missing_ok=True)
                with suppress(OSError):  # somebody writes there, or deletes it too
                    Path(folder).rmdir()
            with suppress(FileNotFoundError, NotADirectoryError):
                sync_folder(top.parent)

    def _sweep(self) -> int:
        removed = 0
        with storage_failures():
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


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _files(top: Path) -> Iterator[Path]:
    """Give every file in a folder and the folders below it; a folder that is missing has none."""
    for folder, _, names in os.walk(top, onerror=_unless_gone):
        for name in names:
            yield Path(folder, name)


def _unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


@contextmanager
def storage_failures() -> Generator[None]:
    """Make errors of the disk ours."""
    try:
        yield
    except OSError as error:
        kind = BlobsFull if error.errno in _NO_ROOM else BlobsUnavailable
        raise kind(f"the folder of blobs: {error}") from error
