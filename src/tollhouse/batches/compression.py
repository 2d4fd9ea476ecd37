"""Compresses the chunks of batches that have ended, while there is little else to do.

An open batch is as large on the disk as what was submitted. Once it has ended, one chunk after the
other is compressed to about a third, for at most a tenth of the time, and only while the process is
idle. A batch is worked on under a lease: while it lasts, nobody takes the batch's blobs for removed
for good, so that one that is written meanwhile is not forgotten.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches import repository
from tollhouse.batches.chunk_store import folder_of
from tollhouse.batches.stored_chunks import compress_chunk, is_raw

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tollhouse.batches.chunk_store import BatchContext

LEASE: Final = timedelta(minutes=5)
_LOOK_SECONDS: Final = 60.0
"""How long nobody looks for a further batch after there was none."""
_IDLE_SECONDS: Final = 5.0
_IDLE_SHARE: Final = 0.1
"""A process that takes less of a processor has little to do."""
_REST_FACTOR: Final = 9
"""How long a rest is, by the time that the chunk before it took."""
_SHORTEST_REST: Final = 0.1
_log = structlog.get_logger(__name__)


async def rest(seconds: float) -> bool:
    """Wait; tell whether this process had little to do meanwhile."""
    began, used = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    return time.process_time() - used < _IDLE_SHARE * (time.monotonic() - began)


@dataclass(slots=True, eq=False)
class ChunkCompressor:
    """Compresses chunks in the background; nothing before `start`."""

    context: BatchContext
    rest: Callable[[float], Awaitable[bool]] = rest
    """Waits so many seconds, and tells whether the process was idle."""
    _task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background task."""
        if self._task is None:
            self._task = asyncio.create_task(self._rounds(), name="batch-compression")

    async def stop(self) -> None:
        """End it, at whatever it is: the rest is done after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _rounds(self) -> None:
        while True:
            try:
                found = await self.rest(_IDLE_SECONDS) and await self.compress_next()
            except Exception as error:  # noqa: BLE001 - the edge of the task
                _log.error("batch_compression_failed", error=type(error).__name__)
                found = False
            if not found:
                await asyncio.sleep(_LOOK_SECONDS)

    async def compress_next(self) -> bool:
        """Compress the chunks of a batch that has ended, for as long as the process is idle.

        Returns false where there is no such batch, or it is not done.

        Raises:
            BlobsUnavailable: A chunk cannot be read or written now.
            Exception: The database cannot be reached or written.
        """
        now = self.context.clock.now()
        async with self.context.database.writing() as write:
            batch_id = await repository.lease_compression(write, now, now + LEASE)
        if batch_id is None:
            return False
        is_done = False
        try:
            is_done = await self._compress(batch_id)
        finally:
            async with self.context.database.writing() as write:
                due = None if is_done else self.context.clock.now()
                await repository.end_compression(write, batch_id, now + LEASE, due)
        return is_done

    async def _compress(self, batch_id: str) -> bool:
        """Compress all chunks of a batch; false where it stopped before the last."""
        clock, blobs = self.context.clock, self.context.blobs
        # A chunk that is begun ends well before the lease does.
        deadline = clock.monotonic() + LEASE.total_seconds() / 2
        for key in await blobs.list(folder_of(batch_id)):
            if not is_raw(key):
                continue
            began = clock.monotonic()
            await compress_chunk(blobs, key)
            ended = clock.monotonic()
            pause = max(_SHORTEST_REST, _REST_FACTOR * (ended - began))
            if ended >= deadline or not await self.rest(pause):
                return False
        return True
