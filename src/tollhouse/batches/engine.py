"""The engine: takes chunks as they get ready and has a driver work on them, a few at a time.

    ring, or a round's time is over ──> sweep ──> keep ──> lease ──> driver.run
                                                                     (its place is free again)

One fault of a chunk's run costs its lease and no more: it is taken again when that runs out.
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
"""How long what is done may take at least to be stored."""
_CANCEL_SECONDS = 0.5
_MOST_PLACES = 8
"""How many times as many chunks may be at work as there are places: they take memory."""
_STOPPING = ""
"""Rings for nobody's batch: the engine is to look at itself."""
_log = structlog.get_logger(__name__)


class Engine:
    """Works on chunks in the background."""

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
            books: Leases.
            driver: Works on chunks.
            doorbell: Says that there may be some.
            sweeper: Looks after what nobody works on.
            places: How many chunks are worked on at once, unless accounts would wait for others.
            round_seconds: How long no ring is needed for it to look.
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
        """Begin to work."""
        if self._task is None:
            self._task = asyncio.create_task(self._rounds(), name="batch-engine")
            self._keeper = asyncio.create_task(self._keep(), name="batch-leases")

    async def stop(self, seconds: float) -> None:
        """Let items under way finish for so many seconds; hand everything else back.

        What cannot be stored or handed back within as long again is given up: it is run again.
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
                # Ours before anybody's: the database may have been away until now.
                await self._driver.keep()
                await self._fill()
            except Exception as error:  # noqa: BLE001 - the edge: the next round tries again
                _log.error("batch_round_failed", error=type(error).__name__)
            for batch_id in await self._doorbell.rung(self._round_seconds):
                self._driver.notice(batch_id)

    async def _keep(self) -> None:
        """Keep the leases of what is under way, also while a round lasts long."""
        while True:
            await asyncio.sleep(self._round_seconds)
            try:
                await self._driver.keep()
            except Exception as error:  # noqa: BLE001 - the edge: the next one tries again
                _log.error("batch_leases_not_kept", error=type(error).__name__)

    async def _fill(self) -> None:
        """Take chunks for every free place.

        Where there is none, an account still gets one for a model of which none of its chunks is
        at work: it does not wait for the slow providers of others.
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
