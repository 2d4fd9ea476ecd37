"""What a worker changes: leases, results and their charges, the end of a batch.

    lease ──> keep, commit, commit ... ──> commit(finished)  |  hand_back

A part of the results and what is charged for it become durable in one transaction, so that an item
has both or neither. The blob is there before; one that a transaction which failed has left unnamed
goes with the batch's others. Whoever lost the lease commits nothing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import structlog

from tollhouse.batches import lifecycle, outcomes, repository
from tollhouse.batches.chunks import input_key, pack, read_lines
from tollhouse.batches.types import Progress, Status
from tollhouse.storage.blobs.port import BlobExists, BlobsUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime, timedelta

    from tollhouse.batches.context import Context
    from tollhouse.batches.retries import Failures
    from tollhouse.batches.types import Batch, Lease, Outcome
    from tollhouse.storage.blobs.port import Blobs
    from tollhouse.storage.transaction import Write

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
class Leased:
    """A chunk that is ours for a while, and its batch as it stands."""

    batch: Batch
    lease: Lease


class BatchBooks:
    """Durable changes of batches under way, each a transaction of its own."""

    def __init__(self, context: Context, lease_time: timedelta) -> None:
        """Take what it needs.

        Args:
            context: What everything of batches uses.
            lease_time: How long a chunk stays with a worker that is not heard of.
        """
        self._database = context.database
        self._blobs = context.blobs
        self._accounting = context.accounting
        self._clock = context.clock
        self._ids = context.ids
        self._lease_time = lease_time

    async def lease(self, *, only_idle: bool = False) -> Leased | None:
        """Take the next chunk; None where nothing is ready.

        Args:
            only_idle: Only of an account and model of which no chunk is at work.
        """
        now = self._clock.now()
        async with self._database.writing() as write:
            taken = await repository.lease(
                write, now, now + self._lease_time, self._ids.uuid(), only_idle=only_idle
            )
            if taken is None:
                return None
            batch = await repository.move(write, taken.batch_id, Status.IN_PROGRESS)
            batch = batch or await repository.get(write, taken.batch_id)
        return None if batch is None else Leased(batch, taken)

    async def input_of(self, leased: Leased) -> list[bytes]:
        """Return the lines of the chunk's items.

        Raises:
            BlobMissing: They are gone.
            BlobsUnavailable: They cannot be read now.
            Damaged: They are not as they were written.
        """
        folder = folder_of(leased.batch.id)
        data = await self._blobs.get(input_key(folder, leased.lease.chunk.number))
        return await asyncio.to_thread(lambda: list(read_lines(data)))

    async def keep(self, leased: Leased) -> bool:
        """Keep a lease that no commit kept for long; false where it was lost."""
        async with self._database.writing() as write:
            return await repository.extend(write, leased.lease, self._until())

    async def excuse(self, leased: Leased) -> bool:
        """Hold nothing against a chunk while it waits to run alone; false as `suspect`."""
        attempts = leased.lease.attempts - 1
        async with self._database.writing() as write:
            return await repository.extend(write, leased.lease, self._until(), attempts=attempts)

    async def suspect(self, leased: Leased, number: int | None) -> bool:
        """Note which item is run alone from now on, or that none is; false as `keep`."""
        async with self._database.writing() as write:
            return await repository.extend(
                write, leased.lease, self._until(), suspect=number, attempts=0
            )

    async def commit(
        self, leased: Leased, results: Sequence[Outcome], part: int, *, finished: bool
    ) -> Batch | None:
        """Make results durable with what is charged for them, and keep the lease.

        After an exception nobody knows whether it succeeded: the answer to a commit may be lost.
        Call it again with the same results and number; they count once.

        Args:
            leased: The chunk.
            results: Of its items; may be empty.
            part: A number that no other part of this lease has.
            finished: Whether every item of the chunk has its result with these.

        Returns:
            The batch as it stands; None where the lease was lost and nothing was changed.

        Raises:
            BlobsUnavailable: They cannot be stored now.
            Exception: The database cannot be reached or written.
        """
        blob = await self._store(leased, results, part) if results else None
        async with self._database.writing() as write:
            held = await self._hold(write, leased, results, finished=finished)
            if blob is not None and await repository.has_part(write, leased.batch.id, blob):
                return await repository.get(write, leased.batch.id)
            batch = await self._advance(write, leased, results, blob) if held else None
            if batch is not None and finished:
                batch = await self.close_if_done(write, batch)
        if batch is None and blob is not None:
            with suppress(BlobsUnavailable):  # it goes with the batch's others then
                await self._blobs.delete([blob])
        return batch

    async def hand_back(
        self, leased: Leased, ready_at: datetime, failures: Mapping[int, Failures]
    ) -> None:
        """Give a chunk back that is not done.

        Args:
            leased: The chunk.
            ready_at: When it may be taken again.
            failures: How items failed that have no result, by their numbers.
        """
        async with self._database.writing() as write:
            await repository.hand_back(write, leased.lease, ready_at, failures)

    async def give_up(self, leased: Leased) -> None:
        """Finish a chunk whose items are lost: each that has no result has failed without one."""
        lease = leased.lease
        async with self._database.writing() as write:
            if await repository.finish_chunk(write, lease):
                missing = lease.chunk.lines - len(lease.done)
                step = Progress(failed=missing, unrun=missing, error="its items are lost")
                batch = await repository.advance(write, lease.batch_id, step)
                await self.close_if_done(write, batch)

    async def close_if_done(self, write: Write, batch: Batch) -> Batch:
        """End a batch all of whose chunks are done; return it as it stands."""
        if batch.status.is_terminal or await repository.has_open_chunks(write, batch.id):
            return batch
        end = lifecycle.ending(batch)
        if batch.status in lifecycle.RUNNING:
            await repository.move(write, batch.id, Status.FINALIZING, ending=end.value)
        closed = await repository.move(
            write,
            batch.id,
            end,
            finalized_at=self._clock.now(),
            released=await self._accounting.covers(write, batch.account_id),
        )
        if closed is None:
            # Somebody changed its status meanwhile: the sweeper's next round closes it.
            return batch
        await self._accounting.end_reservation(write, batch.id)
        write.after_commit(partial(_tell_end, closed))
        return closed

    async def _store(self, leased: Leased, results: Sequence[Outcome], part: int) -> str:
        lease = leased.lease
        name = f"{lease.chunk.number:05}-{lease.token}-{part:04}.jsonl.zst"
        blob = f"{folder_of(lease.batch_id)}/results/{name}"
        data = await asyncio.to_thread(pack, [each.line for each in results])
        with suppress(BlobExists):  # by an earlier try: nobody else has this lease's token
            await self._blobs.put(blob, data)
        return blob

    async def _hold(
        self, write: Write, leased: Leased, results: Sequence[Outcome], *, finished: bool
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
        self, write: Write, leased: Leased, results: Sequence[Outcome], blob: str | None
    ) -> Batch:
        booked: Collection[str] = ()
        if blob is not None:
            numbers = [each.number for each in results]
            await repository.add_part(write, leased.lease, blob, numbers)
            booked = await self._accounting.book(
                write, [each.record for each in results if each.record is not None]
            )
        step = outcomes.progress(results, booked) if results else Progress()
        batch = await repository.advance(write, leased.batch.id, step)
        if step.cost_nano:
            await self._accounting.lower_reservation(write, batch.id, step.cost_nano)
        return batch

    def _until(self) -> datetime:
        return self._clock.now() + self._lease_time


def _tell_end(batch: Batch) -> None:
    _log.info(
        "batch_ended",
        batch=batch.id,
        status=batch.status.value,
        completed=batch.completed,
        failed=batch.failed,
    )
