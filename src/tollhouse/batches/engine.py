"""The engine: leases the chunks of batches and has a driver run them, a few at a time.

    doorbell, or `round_seconds` over ──> sweep ──> renew leases ──> lease a chunk ──> driver.run

If the run of a chunk fails, the engine logs that and goes on; the chunk is leased again once its
lease has expired. The sweeper looks at the tables alone, so that whatever a kill left behind is
found again: windows that are over, batches left unclosed, blobs that nobody reads.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches import repository
from tollhouse.batches.chunk_store import remove_blobs
from tollhouse.batches.types import BatchStatus
from tollhouse.kernel.failpoints import failpoint

if TYPE_CHECKING:
    from tollhouse.batches.chunk_store import BatchContext, ChunkStore, Doorbell, LeasedChunk
    from tollhouse.batches.driver import RequestDriver

LONGEST_UPLOAD: Final = timedelta(hours=1)
"""An upload that takes longer was given up by everybody."""
_AT_ONCE: Final = 20
_PURGE_SECONDS: Final = 30.0
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class BatchSweeper:
    """Looks after batches that nobody holds."""

    context: BatchContext
    chunks: ChunkStore
    _purged_at: float = float("-inf")

    async def recover_after_crash(self) -> None:
        """Free what a process left behind that was killed; only where nobody else is at work."""
        await failpoint("batch.recover.before")
        async with self.context.database.writing() as write:
            await repository.drop_leases(write)
        await self._remove_uploads(timedelta(0))

    async def sweep(self) -> bool:
        """Do what is due; tell whether there are batches that have not ended."""
        async with self.context.database.reading() as read:
            some_open = await repository.some_open(read)
        if some_open:
            await self._expire()
            await self._close()
        if self.context.clock.monotonic() - self._purged_at >= _PURGE_SECONDS:
            self._purged_at = self.context.clock.monotonic()
            await self._remove_uploads(LONGEST_UPLOAD)
            await self._purge()
        return some_open

    async def _expire(self) -> None:
        async with self.context.database.reading() as read:
            overdue = await repository.overdue(read, self.context.clock.now())
        for batch_id in overdue:
            async with self.context.database.writing() as write:
                await repository.move(
                    write, batch_id, BatchStatus.FINALIZING, ending=BatchStatus.EXPIRED.value
                )
            _log.warning("batch_expired", batch=batch_id)
            self.context.doorbell.ring(batch_id)

    async def _close(self) -> None:
        async with self.context.database.reading() as read:
            unclosed = await repository.without_open_chunks(read)
        for batch_id in unclosed:
            async with self.context.database.writing() as write:
                batch = await repository.get(write, batch_id)
                if batch is not None:
                    await self.chunks.close_if_done(write, batch)

    async def _remove_uploads(self, age: timedelta) -> None:
        async with self.context.database.writing() as write:
            given_up = await repository.give_up_uploads(write, self.context.clock.now() - age)
        for batch_id in given_up:
            if await remove_blobs(self.context.blobs, batch_id):
                async with self.context.database.writing() as write:
                    await self.context.accounting.end_reservation(write, batch_id)
                    await repository.forget_upload(write, batch_id)

    async def _purge(self) -> None:
        now = self.context.clock.now()
        kept_since = now - self.context.rules.retention
        async with self.context.database.reading() as read:
            due = await repository.to_purge(read, kept_since, _AT_ONCE, now)
        for batch_id in due:
            if not await remove_blobs(self.context.blobs, batch_id):
                return
            async with self.context.database.writing() as write:
                await repository.mark_purged(write, batch_id, self.context.clock.now())


_STORE_SECONDS = 1.0
"""The shortest time that a stop allows for storing the results of items that have ended."""
_CANCEL_SECONDS = 0.5
_MOST_PLACES = 8
"""How many chunks may run at once for each place. Each takes memory."""
_STOPPING = ""
"""Rung by `stop`, so that the engine does not wait for the end of its round. No batch's id."""


@dataclass(slots=True, eq=False)
class BatchEngine:
    """Runs chunks in the background; nothing before `start`."""

    chunks: ChunkStore
    driver: RequestDriver
    doorbell: Doorbell
    """Rings when a batch may have a chunk to run."""
    sweeper: BatchSweeper
    places: int
    """How many chunks run at once; `_fill` tells when there are more."""
    round_seconds: float
    """After how long the engine looks for chunks without a ring."""
    _runs: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _stopping: bool = False
    _task: asyncio.Task[None] | None = None
    _keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background tasks."""
        if self._task is None:
            self._task = asyncio.create_task(self._rounds(), name="batch-engine")
            self._keeper = asyncio.create_task(self._keep(), name="batch-leases")

    async def stop(self, seconds: float) -> None:
        """Let running items end for so long, and give the leases of all others back.

        Storing what ended and giving back may take as long again; the rest is run again later.
        """
        self._stopping = True
        if self._task is None or self._keeper is None:
            return
        self.doorbell.ring(_STOPPING)
        await self.driver.stop(seconds)
        await asyncio.wait({self._task, *self._runs}, timeout=max(2 * seconds, _STORE_SECONDS))
        self._keeper.cancel()
        while left := {task for task in (self._task, self._keeper, *self._runs) if not task.done()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_CANCEL_SECONDS)

    async def _rounds(self) -> None:
        while not self._stopping:
            try:
                some_open = await self.sweeper.sweep()
                # Before new leases: ours may be about to expire if the database was away.
                await self.driver.renew_leases()
                if some_open:
                    await self._fill()
            except Exception as error:  # noqa: BLE001 - the edge: what is done must not be lost
                _log.error("batch_round_failed", error=type(error).__name__)
            for batch_id in await self.doorbell.rung(self.round_seconds):
                self.driver.refresh_status(batch_id)

    async def _keep(self) -> None:
        """Renew the leases of running chunks, also while a round takes long."""
        while True:
            await asyncio.sleep(self.round_seconds)
            try:
                await self.driver.renew_leases()
            except Exception as error:  # noqa: BLE001 - the edge: what is done must not be lost
                _log.error("batch_leases_not_kept", error=type(error).__name__)

    async def _fill(self) -> None:
        """Lease a chunk for every free place, and run it.

        Where none is free, an account may run a chunk for each model of which it has none at work,
        so as not to wait for others' slow providers.
        """
        while len(self._runs) < _MOST_PLACES * self.places and not self._stopping:
            leased = await self.chunks.lease(only_idle=len(self._runs) >= self.places)
            if leased is None:
                return
            task = asyncio.create_task(self._run(leased))
            self._runs.add(task)
            task.add_done_callback(self._runs.discard)

    async def _run(self, leased: LeasedChunk) -> None:
        try:
            await self.driver.run(leased)
        except Exception:  # noqa: BLE001 - the edge of the task: it would happen again and again
            _log.exception("batch_chunk_failed", batch=leased.batch.id)
        finally:
            self.doorbell.ring(leased.batch.id)
