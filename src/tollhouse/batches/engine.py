"""The engine: leases the chunks of batches and has a driver run them, a few at a time.

    doorbell, or `round_seconds` are over ──> sweep ──> keep leases ──> lease a chunk ──> driver.run

If the run of a chunk fails, the engine logs that and goes on; the chunk is leased again once its
lease has expired.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from tollhouse.batches.books import BatchBooks, Leased
    from tollhouse.batches.drivers.base import Driver
    from tollhouse.batches.ports import Doorbell
    from tollhouse.batches.sweeper import Sweeper

_STORE_SECONDS = 1.0
"""The shortest time that a stop allows for storing the results of items that have ended."""
_CANCEL_SECONDS = 0.5
_MOST_PLACES = 8
"""How many chunks may run at once for each place. Each takes memory."""
_STOPPING = ""
"""Rung by `stop`, so that the engine does not wait for the end of its round. No batch's id."""
_log = structlog.get_logger(__name__)


class Engine:
    """Runs chunks in the background."""

    def __init__(  # noqa: PLR0913 - the composition root builds it once
        self,
        books: BatchBooks,
        driver: Driver,
        doorbell: Doorbell,
        sweeper: Sweeper,
        *,
        places: int,
        round_seconds: float,
    ) -> None:
        """Take what it needs; nothing runs before `start`.

        Args:
            books: Leases chunks.
            driver: Runs a chunk.
            doorbell: Rings when a batch may have a chunk to run.
            sweeper: Ends expired batches, and removes what nobody needs any more.
            places: How many chunks run at once; `_fill` tells when there are more.
            round_seconds: After how long the engine looks for chunks without a ring.
        """
        self._books = books
        self._driver = driver
        self._doorbell = doorbell
        self._sweeper = sweeper
        self._places = places
        self._round_seconds = round_seconds
        self._runs: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the background tasks."""
        if self._task is None:
            self._task = asyncio.create_task(self._rounds(), name="batch-engine")
            self._keeper = asyncio.create_task(self._keep(), name="batch-leases")

    async def stop(self, seconds: float) -> None:
        """Stop: wait for running items, and give the leases of all others back.

        Args:
            seconds: How long running items may take to end. Storing their results and giving leases
                back may take as long again. What is not stored by then is run again later.
        """
        self._stopping = True
        if self._task is None or self._keeper is None:
            return
        self._doorbell.ring(_STOPPING)
        await self._driver.stop(seconds)
        await asyncio.wait({self._task, *self._runs}, timeout=max(2 * seconds, _STORE_SECONDS))
        self._keeper.cancel()
        while left := {task for task in (self._task, self._keeper, *self._runs) if not task.done()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=_CANCEL_SECONDS)

    async def _rounds(self) -> None:
        while not self._stopping:
            try:
                await self._sweeper.sweep()
                # Before new leases: ours may be about to expire if the database was away.
                await self._driver.keep()
                await self._fill()
            except Exception as error:  # noqa: BLE001 - the edge: the next round tries again
                _log.error("batch_round_failed", error=type(error).__name__)
            for batch_id in await self._doorbell.rung(self._round_seconds):
                self._driver.notice(batch_id)

    async def _keep(self) -> None:
        """Renew the leases of running chunks, also while a round takes long."""
        while True:
            await asyncio.sleep(self._round_seconds)
            try:
                await self._driver.keep()
            except Exception as error:  # noqa: BLE001 - the edge: the next one tries again
                _log.error("batch_leases_not_kept", error=type(error).__name__)

    async def _fill(self) -> None:
        """Lease a chunk for every free place, and run it.

        When no place is free, an account may still run one chunk for each model that none of its
        running chunks uses, so that it does not wait for other accounts' slow providers.
        """
        while len(self._runs) < _MOST_PLACES * self._places and not self._stopping:
            leased = await self._books.lease(only_idle=len(self._runs) >= self._places)
            if leased is None:
                return
            task = asyncio.create_task(self._run(leased))
            self._runs.add(task)
            task.add_done_callback(self._runs.discard)

    async def _run(self, leased: Leased) -> None:
        try:
            await self._driver.run(leased)
        except Exception:  # noqa: BLE001 - the edge of the task: its lease runs out
            _log.exception("batch_chunk_failed", batch=leased.batch.id)
        finally:
            self._doorbell.ring(leased.batch.id)
