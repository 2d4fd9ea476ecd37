"""The receiver: from the pieces of a request's body to stored chunks: all in the end, or none.

    up to 1 MiB    a thread ------------------------.
                                                     +---> blobs <folder>/input/00000.jsonl ...
    more           the ingest child ---> files -----'

The event loop only hands the body on, as it comes. A child is fed and listened to at the same time:
what it refuses is known while the sender still sends. It writes each chunk to a file that becomes a
blob as it is, so no byte of a chunk passes through the gateway if the store is local.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import structlog

from tollhouse.batches.chunks import Chunk, input_folder, input_key
from tollhouse.batches.ingest.child import (
    FROM_CHILD,
    ChunkFile,
    Done,
    Failed,
    Refused,
    StoreFailed,
    chunk_path,
)
from tollhouse.batches.ingest.reader import BatchLimits, BatchSummary, read_whole
from tollhouse.batches.types import StoredChunk
from tollhouse.kernel.channel import ChannelClosed, ChannelError
from tollhouse.kernel.errors import Bug, Unavailable
from tollhouse.kernel.failpoints import failpoint
from tollhouse.kernel.subprocesses import own_module, start
from tollhouse.storage.blobs import BlobExists, Blobs, BlobsUnavailable, storage_failures

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine

_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class UploadedChunks:
    """Stores the chunks of one batch, one after the other."""

    blobs: Blobs
    folder: str
    stored: list[StoredChunk] = field(default_factory=list[StoredChunk])
    """What is there for good, so far."""
    _writing: asyncio.Task[None] | None = None

    async def put(self, chunk: Chunk) -> None:
        """Store the next chunk; see `Blobs.put`."""
        key = input_key(self.folder, chunk.number)
        await self._write(chunk, self.blobs.put(key, chunk.data))

    async def put_file(self, chunk: ChunkFile) -> None:
        """Store the next chunk, which is in its file in `staging`; see `Blobs.put_file`."""
        key = input_key(self.folder, chunk.number)
        path = Path(chunk_path(self.staging, chunk.number))
        await self._write(chunk, self.blobs.put_file(key, path))

    @property
    def staging(self) -> str:
        """What the paths of the chunks' files begin with."""
        return str(self.blobs.staging() / f"~{self.folder.replace('/', '-')}-")

    async def _write(self, chunk: Chunk | ChunkFile, put: Coroutine[Any, Any, None]) -> None:
        self._writing = asyncio.create_task(put)
        await asyncio.shield(self._writing)
        self.stored.append(StoredChunk(chunk.number, chunk.first, chunk.lines))

    async def clear(self) -> None:
        """Delete what was stored. If that fails, it is logged and left to the sweeper."""
        try:
            if self._writing is not None:
                # One that was cancelled could come to its end after the deletion.
                await asyncio.wait([self._writing])
                await self.blobs.delete_all(input_folder(self.folder))
            await asyncio.to_thread(self._clear_staging)
        except BlobsUnavailable as error:
            _log.warning("batch_items_not_deleted", folder=self.folder, reason=error.reason)

    def _clear_staging(self) -> None:
        staging = Path(self.staging)
        with storage_failures():
            for path in staging.parent.glob(f"{staging.name}*"):
                path.unlink(missing_ok=True)


COMMAND: Final = own_module("tollhouse.batches.ingest.child")


class IngestChildGone(Unavailable):
    """The child could not be started, or ended by itself: killed, or out of memory."""

    def __init__(self, reason: str) -> None:
        """Tell the caller to come back; the reason is for the operator alone."""
        super().__init__("the batch cannot be read at the moment; try again later")
        self.reason = reason


class IngestChild:
    """A running ingest child."""

    def __init__(self, process: Process) -> None:
        if process.stdin is None or process.stdout is None:
            raise Bug("the ingest child has no pipes")
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._reader = FROM_CHILD.reader(process.stdout)

    async def read(
        self, begin: bytes, rest: AsyncIterator[bytes], take: Callable[[ChunkFile], Awaitable[None]]
    ) -> BatchSummary:
        """Have the child read a body from its first bytes on; return what came, as a whole.

        It is read as fast as the child allows. `take` is given one chunk after the other.

        Raises:
            Invalid: The child refuses it, as soon as it knows; with its kinds.
            BlobsUnavailable: The child cannot write its files, since the disk fails or is full.
            IngestChildGone: The child ended by itself.
            Bug: It has a fault.
            Exception: What `rest` or `take` raises.
        """
        feeding = asyncio.create_task(self._feed(begin, rest))
        try:
            return await self._listen(take)
        except ChannelClosed:
            if feeding.done():
                await feeding  # if what failed was the body, this says it
            raise _gone(f"it ended with code {await self._process.wait()}") from None
        except ChannelError as error:
            raise Bug(f"the ingest child: {error}") from None
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)

    async def stop(self) -> None:
        """End the child, whatever it is at, and wait until it is gone."""
        self._kill()
        self._stdin.close()
        await self._stdout.read()
        await self._process.wait()

    async def _listen(self, take: Callable[[ChunkFile], Awaitable[None]]) -> BatchSummary:
        while True:
            match await self._reader.receive():
                case ChunkFile() as chunk:
                    await take(chunk)
                case Done() as message:
                    return message.summary()
                case Refused() as message:
                    raise message.error()
                case StoreFailed() as message:
                    with storage_failures():
                        raise message.error()
                case Failed(reason):
                    raise Bug(f"the ingest child: {reason}")

    async def _feed(self, begin: bytes, rest: AsyncIterator[bytes]) -> None:
        try:
            await self._send(begin)
            async for piece in rest:
                await self._send(piece)
            self._stdin.close()
        except _ReadsNoMore:
            return  # the child says itself why
        except BaseException:
            self._kill()  # so that whoever listens hears of it
            raise

    async def _send(self, piece: bytes) -> None:
        if self._stdin.is_closing():
            raise _ReadsNoMore
        self._stdin.write(piece)
        try:
            await self._stdin.drain()
        except ConnectionError:
            raise _ReadsNoMore from None

    def _kill(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()


class _ReadsNoMore(Exception):
    """The child has ended, or is about to."""


@asynccontextmanager
async def ingest_child(staging: str, limits: BatchLimits) -> AsyncGenerator[IngestChild]:
    """Start a child, and end it when the block is left."""
    try:
        process = await start(
            *COMMAND,
            staging,
            *map(str, astuple(limits)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # a trace could hold a part of the body
        )
    except OSError as error:
        raise _gone(f"it cannot be started: {error}") from error
    child = IngestChild(process)
    try:
        yield child
    finally:
        await child.stop()


def _gone(reason: str) -> IngestChildGone:
    _log.error("ingest_child_gone", reason=reason)
    return IngestChildGone(reason)


async def gather(pieces: AsyncIterator[bytes], size: int) -> bytes:
    """Return the next pieces as one, of at least a size where they do not end before."""
    gathered: list[bytes] = []
    length = 0
    async for piece in pieces:
        gathered.append(piece)
        length += len(piece)
        if length >= size:
            break
    return b"".join(gathered)


@dataclass(frozen=True, slots=True)
class ReceivedBatch(BatchSummary):
    """A batch whose items are stored."""

    chunks: tuple[StoredChunk, ...]


class BatchReceiver:
    """Takes batches, several at once."""

    def __init__(
        self,
        blobs: Blobs,
        limits: BatchLimits,
        *,
        in_process_bytes: int = 1_048_576,
        most_children: int = 8,
    ) -> None:
        """Start nothing yet.

        A body longer than `in_process_bytes` needs a child. `most_children`, 40 MB each, may run at
        once; a further body waits for its turn.
        """
        self._blobs = blobs
        self._limits = limits
        self._in_process_bytes = in_process_bytes
        self._turns = asyncio.Semaphore(most_children)

    async def receive(self, pieces: AsyncIterator[bytes], folder: str) -> ReceivedBatch:
        """Store a batch's items as chunks `<folder>/input/<number>.jsonl`.

        When it raises or is cancelled, nothing of them is left in the store, and no child process.
        (What cannot be deleted is logged and left to the sweeper.) Nobody else may write to the
        folder's `input`.

        Raises:
            Invalid: It is no batch, with its kinds `PayloadTooLarge` and `Unprocessable`; as soon
                as that is known.
            BlobsUnavailable: The store fails or is full.
            BlobExists: The folder is another batch's; it stays as it is.
            IngestChildGone: The child could not be started, or ended by itself.
            Exception: What `pieces` raises.
        """
        store = UploadedChunks(self._blobs, folder)
        try:
            summary = await self._read(pieces, store)
        except BlobExists:
            raise
        except BaseException:
            await store.clear()
            raise
        await failpoint("batch.receive.after")
        return ReceivedBatch(
            summary.submission, summary.demand, summary.digest, tuple(store.stored)
        )

    async def _read(self, pieces: AsyncIterator[bytes], store: UploadedChunks) -> BatchSummary:
        begin = await gather(pieces, self._in_process_bytes + 1)
        if len(begin) <= self._in_process_bytes:
            chunks, summary = await asyncio.to_thread(read_whole, begin, self._limits)
            for chunk in chunks:
                await store.put(chunk)
            return summary
        async with self._turns, ingest_child(store.staging, self._limits) as child:
            return await child.read(begin, pieces, store.put_file)
