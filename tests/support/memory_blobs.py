"""A blob store in memory with injectable failures."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from tollhouse.storage.blobs import BlobExists, BlobMissing, check_key


class MemoryBlobs:
    """Implements `storage.blobs.Blobs`."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.failures: dict[int, Exception] = {}
        """The exception of each failing put, by its number from 0."""
        self.failing_deletion: Exception | None = None
        self.puts = 0
        self.has_put = asyncio.Event()
        """Set when a put begins."""
        self.may_put = asyncio.Event()
        self.may_put.set()
        self._staging: Path | None = None

    async def put(self, key: str, data: bytes) -> None:
        """Store a blob; see `Blobs.put`."""
        check_key(key)
        self.puts += 1
        self.has_put.set()
        await self.may_put.wait()
        if (failure := self.failures.get(self.puts - 1)) is not None:
            raise failure
        if key in self.blobs:
            raise BlobExists(key)
        self.blobs[key] = data

    def staging(self) -> Path:
        """Return a folder of its own; see `Blobs.staging`."""
        if self._staging is None:
            self._staging = Path(mkdtemp())
            finalize(self, _remove, self._staging, os.getpid())
        return self._staging

    async def put_file(self, key: str, path: Path) -> None:
        """Store a file as a blob; see `Blobs.put_file`."""
        await self.put(key, _take(path))

    async def get(self, key: str) -> bytes:
        """Return a blob; see `Blobs.get`."""
        if key not in self.blobs:
            raise BlobMissing(key)
        return self.blobs[key]

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        """Stream a blob; see `Blobs.stream`."""
        yield await self.get(key)

    async def list(self, prefix: str) -> Sequence[str]:
        """Return the keys of a folder; see `Blobs.list`."""
        return sorted(key for key in self.blobs if key.startswith(f"{prefix}/"))

    async def delete(self, keys: Iterable[str]) -> None:
        """Delete blobs; see `Blobs.delete`."""
        for key in keys:
            self.blobs.pop(key, None)

    async def delete_all(self, prefix: str) -> None:
        """Delete all blobs of a folder; see `Blobs.delete_all`."""
        if self.failing_deletion is not None:
            raise self.failing_deletion
        await self.delete(await self.list(prefix))


def _take(path: Path) -> bytes:
    data = path.read_bytes()
    path.unlink()
    return data


def _remove(folder: Path, process: int) -> None:
    """Remove a folder, unless this is a fork of the process that made it."""
    if os.getpid() == process:
        rmtree(folder, ignore_errors=True)
