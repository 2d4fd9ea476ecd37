"""What a worker changes: leases, results and their charges, the end of a batch.

    lease ──> renew, commit, commit ... ──> commit(finished)  |  give_back

A part of the results and what is charged for it become durable in one transaction, so that an item
has both or neither. The blob is written before; one whose transaction failed goes with the batch's
others. Whoever lost the lease commits nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tollhouse.batches import repository
from tollhouse.batches.chunks import DamagedChunk, input_key, pack, read_lines
from tollhouse.batches.items import progress_of
from tollhouse.batches.stored_chunks import load_chunk
from tollhouse.batches.types import RUNNING, BatchProgress, BatchStatus, final_status
from tollhouse.kernel.concurrency import wait_for_event
from tollhouse.kernel.failpoints import failpoint
from tollhouse.storage.blobs import BlobExists, Blobs, BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from tollhouse.accounting.service import AccountingService
    from tollhouse.batches.policy import BatchRules
    from tollhouse.batches.retries import ItemFailures
    from tollhouse.batches.types import Batch, ChunkLease, ItemResult
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.ids import IdSource
    from tollhouse.storage.database import Database, Write


class Doorbell:
    """Tells the engine of this process that there may be something to do.

    The tables are the truth: a ring that is lost costs time, and the next round makes up for it.
    """

    def __init__(self) -> None:
        self._rings = asyncio.Event()
        self._named: set[str] = set()

    def ring(self, batch_id: str | None) -> None:
        """Say that a batch, or any, came or is to be looked at."""
        if batch_id is not None:
            self._named.add(batch_id)
        self._rings.set()

    async def rung(self, seconds: float) -> frozenset[str]:
        """Wait for a ring, but only so long; return the batches that were named since the last."""
        await wait_for_event(self._rings, seconds)
        self._rings.clear()
        named, self._named = frozenset(self._named), set()
        return named


@dataclass(frozen=True, slots=True)
class BatchContext:
    """Where batches are, what they cost, and who is told of them."""

    database: Database
    blobs: Blobs
    accounting: AccountingService
    doorbell: Doorbell
    rules: BatchRules
    clock: Clock
    ids: IdSource


CAREFUL_FROM = 4
"""The attempt at a chunk from which on its items are run one by one."""
MOST_CRASHES = 3
"""How often workers may end while one item runs alone; then it is given up."""
_log = structlog.get_logger(__name__)


def folder_of(batch_id: str) -> str:
    """Return the folder of a batch's blobs."""
    return f"batches/{batch_id}"


async def remove_blobs(blobs: Blobs, batch_id: str) -> bool:
    """Remove all blobs of a batch; false where that has to be tried again later."""
    try:
        await blobs.delete_all(folder_of(batch_id))
    except BlobsUnavailable as error:
        _log.error("batch_blobs_not_deleted", batch=batch_id, error=error.reason)
        return False
    return True


@dataclass(frozen=True, slots=True)
class LeasedChunk:
    """A chunk that is ours for a while, and its batch as it stands."""

    batch: Batch
    lease: ChunkLease


@dataclass(frozen=True, slots=True)
class ChunkStore:
    """Durable changes of batches under way, each a transaction of its own."""

    context: BatchContext
    lease_time: timedelta
    """How long a chunk stays with a worker that is not heard of."""

    async def lease(self, *, only_idle: bool = False) -> LeasedChunk | None:
        """Take the next chunk, see `repository.lease`; None where nothing is ready."""
        now = self.context.clock.now()
        async with self.context.database.writing() as write:
            taken = await repository.lease(
                write, now, now + self.lease_time, self.context.ids.uuid(), only_idle=only_idle
            )
            if taken is None:
                return None
            batch = await repository.move(write, taken.batch_id, BatchStatus.IN_PROGRESS)
            batch = batch or await repository.get(write, taken.batch_id)
        await failpoint("batch.lease.after")
        return None if batch is None else LeasedChunk(batch, taken)

    async def input_of(self, leased: LeasedChunk) -> list[bytes]:
        """Return the lines of the chunk's items.

        Raises:
            BlobMissing: They are gone.
            BlobsUnavailable: They cannot be read now.
            DamagedChunk: They are not as they were written.
        """
        chunk = leased.lease.chunk
        key = input_key(folder_of(leased.batch.id), chunk.number)
        lines = read_lines(await load_chunk(self.context.blobs, key))
        if len(lines) != chunk.lines:
            raise DamagedChunk(f"the chunk has {len(lines)} lines")
        return lines

    async def renew(self, leased: LeasedChunk) -> bool:
        """Renew a lease that no commit renewed for long; false where it was lost."""
        async with self.context.database.writing() as write:
            return await repository.extend(write, leased.lease, self._until())

    async def undo_attempt(self, leased: LeasedChunk) -> bool:
        """Hold nothing against a chunk while it waits to run alone; false as `suspect`."""
        attempts = leased.lease.attempts - 1
        async with self.context.database.writing() as write:
            return await repository.extend(write, leased.lease, self._until(), attempts=attempts)

    async def suspect(self, leased: LeasedChunk, number: int | None) -> bool:
        """Note which item is run alone from now on, or that none is; false as `renew`."""
        async with self.context.database.writing() as write:
            return await repository.extend(
                write, leased.lease, self._until(), suspect=number, attempts=0
            )

    async def commit(
        self, leased: LeasedChunk, results: Sequence[ItemResult], part: int, *, finished: bool
    ) -> Batch | None:
        """Make results durable with what is charged for them, and renew the lease.

        After an exception nobody knows whether it succeeded: the answer to a commit may be lost.
        Call it again with the same results, if any, and the same number of the part, which no other
        of this lease has; they count once. `finished` says that every item of the chunk has its
        result then. Returns the batch as it stands; None where the lease was lost and nothing was
        changed.

        Raises:
            BlobsUnavailable: They cannot be stored now.
            Exception: The database cannot be reached or written.
        """
        blob = await self._store(leased, results, part) if results else None
        async with self.context.database.writing() as write:
            held = await self._hold(write, leased, results, finished=finished)
            if blob is not None and await repository.has_part(write, leased.batch.id, blob):
                return await repository.get(write, leased.batch.id)
            batch = await self._advance(write, leased, results, blob) if held else None
            if batch is not None and finished:
                batch = await self.close_if_done(write, batch)
        if batch is None and blob is not None:
            with suppress(BlobsUnavailable):  # it goes with the batch's others then
                await self.context.blobs.delete([blob])
        await failpoint("batch.commit.after")
        return batch

    async def give_back(
        self, leased: LeasedChunk, ready_at: datetime, failures: Mapping[int, ItemFailures]
    ) -> None:
        """Give a chunk back that is not done, with the failures of items by their numbers."""
        async with self.context.database.writing() as write:
            await repository.give_back(write, leased.lease, ready_at, failures)

    async def give_up(self, leased: LeasedChunk) -> None:
        """Finish a chunk whose items are lost: each that has no result has failed without one."""
        lease = leased.lease
        async with self.context.database.writing() as write:
            if await repository.finish_chunk(write, lease):
                missing = lease.chunk.lines - len(lease.done)
                step = BatchProgress(failed=missing, unrun=missing, error="its items are lost")
                batch = await repository.advance(write, lease.batch_id, step)
                await self.close_if_done(write, batch)

    async def close_if_done(self, write: Write, batch: Batch) -> Batch:
        """End a batch all of whose chunks are done; return it as it stands."""
        if batch.status.is_terminal or await repository.has_open_chunks(write, batch.id):
            return batch
        await failpoint("batch.close.before")
        end = final_status(batch)
        if batch.status in RUNNING:
            await repository.move(write, batch.id, BatchStatus.FINALIZING, ending=end.value)
        closed = await repository.move(
            write,
            batch.id,
            end,
            finalized_at=self.context.clock.now(),
            compress_at=self.context.clock.now(),
            released=await self.context.accounting.is_covered(write, batch.account_id),
        )
        if closed is None:
            # Somebody changed its status meanwhile: the sweeper's next round closes it.
            return batch
        await self.context.accounting.end_reservation(write, batch.id)
        write.after_commit(partial(_tell_end, closed))
        await failpoint("batch.close.after")
        return closed

    async def _store(self, leased: LeasedChunk, results: Sequence[ItemResult], part: int) -> str:
        lease = leased.lease
        name = f"{lease.chunk.number:05}-{lease.token}-{part:04}.jsonl"
        blob = f"{folder_of(lease.batch_id)}/results/{name}"
        with suppress(BlobExists):  # by an earlier try: nobody else has this lease's token
            await self.context.blobs.put(blob, pack(each.line for each in results))
        await failpoint("batch.store.after")
        return blob

    async def _hold(
        self, write: Write, leased: LeasedChunk, results: Sequence[ItemResult], *, finished: bool
    ) -> bool:
        lease = leased.lease
        if finished:
            return await repository.finish_chunk(write, lease)
        if not results:
            return await repository.extend(write, lease, self._until())
        # What led to a result is no reason to be careful; a chunk that needs care goes on with it.
        attempts = CAREFUL_FROM - 1 if lease.attempts >= CAREFUL_FROM else 0
        return await repository.extend(write, lease, self._until(), attempts=attempts, suspect=None)

    async def _advance(
        self, write: Write, leased: LeasedChunk, results: Sequence[ItemResult], blob: str | None
    ) -> Batch:
        booked: Collection[str] = ()
        if blob is not None:
            numbers = [each.number for each in results]
            await repository.add_part(write, leased.lease, blob, numbers)
            booked = await self.context.accounting.book(
                write, [each.record for each in results if each.record is not None]
            )
        step = progress_of(results, booked) if results else BatchProgress()
        batch = await repository.advance(write, leased.batch.id, step)
        if step.cost_nano or step.own_nano:
            with_own = step.cost_nano + step.own_nano
            await self.context.accounting.lower_reservation(
                write, batch.id, step.cost_nano, with_own
            )
        return batch

    def _until(self) -> datetime:
        return self.context.clock.now() + self.lease_time


def _tell_end(batch: Batch) -> None:
    _log.info(
        "batch_ended",
        batch=batch.id,
        status=batch.status.value,
        completed=batch.completed,
        failed=batch.failed,
    )
