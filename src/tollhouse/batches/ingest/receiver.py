"""The receiver: from the pieces of a request's body to stored chunks.

    up to 1 MiB    a thread ------------.
                                         +---> ChunkStore ---> <folder>/input/00000.jsonl.zst ...
    more           the ingest child ----'

The event loop only hands bytes on. A child is fed and listened to at the same time: what it refuses
is known while the sender still sends, and a slow store slows down the sender.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tollhouse.batches.ingest.chunk_store import ChunkStore
from tollhouse.batches.ingest.process import gather, ingest_child
from tollhouse.batches.ingest.reader import read_whole
from tollhouse.storage.blobs.port import BlobExists

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tollhouse.batches.ingest.intake import IntakeLimits
    from tollhouse.batches.ingest.reader import Summary
    from tollhouse.batches.types import BatchDemand, StoredChunk, Submission
    from tollhouse.storage.blobs.port import Blobs


@dataclass(frozen=True, slots=True)
class Received:
    """A batch whose items are stored."""

    submission: Submission
    chunks: tuple[StoredChunk, ...]
    demand: BatchDemand
    digest: str
    """SHA-256 of the whole body, in hexadecimal."""


class Receiver:
    """Takes batches, several at once."""

    def __init__(
        self,
        blobs: Blobs,
        limits: IntakeLimits,
        *,
        in_process_bytes: int = 1_048_576,
        most_children: int = 8,
    ) -> None:
        """Start nothing yet.

        Args:
            blobs: Where the items go.
            limits: How large a batch may be.
            in_process_bytes: The longest body that needs no child.
            most_children: How many may run at once, 40 MB each; a further body waits for its turn.
        """
        self._blobs = blobs
        self._limits = limits
        self._in_process_bytes = in_process_bytes
        self._turns = asyncio.Semaphore(most_children)

    async def receive(self, pieces: AsyncIterator[bytes], folder: str) -> Received:
        """Store a batch's items as chunks `<folder>/input/<number>.jsonl.zst`.

        When it raises or is cancelled, nothing of them is left in the store, and no child process.
        (What cannot be deleted is logged and left to the sweeper.)

        Args:
            pieces: The body, of any sizes.
            folder: The batch's own in the store; nobody else may write to its `input`.

        Raises:
            Invalid: It is no batch, with its kinds `PayloadTooLarge` and `Unprocessable`; as soon
                as that is known.
            BlobsUnavailable: The store fails or is full.
            BlobExists: The folder is another batch's; it stays as it is.
            ChildGone: The child could not be started, or ended by itself.
            Exception: What `pieces` raises.
        """
        store = ChunkStore(self._blobs, folder)
        try:
            summary = await self._read(pieces, store)
        except BlobExists:
            raise
        except BaseException:
            await store.clear()
            raise
        return Received(summary.submission, tuple(store.stored), summary.demand, summary.digest)

    async def _read(self, pieces: AsyncIterator[bytes], store: ChunkStore) -> Summary:
        begin = await gather(pieces, self._in_process_bytes + 1)
        if len(begin) <= self._in_process_bytes:
            return await self._read_here(begin, store)
        async with self._turns, ingest_child(self._limits) as child:
            return await child.read(begin, pieces, store.put)

    async def _read_here(self, body: bytes, store: ChunkStore) -> Summary:
        chunks, summary = await asyncio.to_thread(read_whole, body, self._limits)
        for chunk in chunks:
            await store.put(chunk)
        return summary
