"""A batch's items on their way into the blob store: all of them in the end, or none."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from tollhouse.batches.chunks import input_folder, input_key
from tollhouse.batches.types import StoredChunk
from tollhouse.storage.blobs.port import BlobsUnavailable

if TYPE_CHECKING:
    from tollhouse.batches.chunks import Chunk
    from tollhouse.storage.blobs.port import Blobs

_log = structlog.get_logger(__name__)


class ChunkStore:
    """Stores the chunks of one batch, one after the other."""

    def __init__(self, blobs: Blobs, folder: str) -> None:
        """Begin in the folder of a batch that has none yet."""
        self._blobs = blobs
        self._folder = folder
        self._writing: asyncio.Task[None] | None = None
        self.stored: list[StoredChunk] = []
        """What is there for good, so far."""

    async def put(self, chunk: Chunk) -> None:
        """Store the next chunk; see `Blobs.put`."""
        key = input_key(self._folder, chunk.number)
        self._writing = asyncio.create_task(self._blobs.put(key, chunk.data))
        await asyncio.shield(self._writing)
        self.stored.append(StoredChunk(chunk.number, chunk.first, chunk.lines))

    async def clear(self) -> None:
        """Delete what was stored. If that fails, it is logged and left to the sweeper."""
        if self._writing is None:
            return
        # One that was cancelled could come to its end after the deletion.
        await asyncio.wait([self._writing])
        try:
            await self._blobs.delete_all(input_folder(self._folder))
        except BlobsUnavailable as error:
            _log.warning("batch_items_not_deleted", folder=self._folder, reason=error.reason)
