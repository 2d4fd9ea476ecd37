"""One flush of the disk for everyone who waits for one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Flusher:
    """Runs a blocking flush in a thread, one at a time; who comes meanwhile shares the next one."""

    def __init__(self, flush: Callable[[], None]) -> None:
        """Take what flushes; nothing runs until somebody waits."""
        self._flush = flush
        self._waiting: list[asyncio.Future[None]] = []
        self._running: asyncio.Task[None] | None = None

    async def flushed(self) -> None:
        """Return when a flush that began after this call has ended.

        Raises:
            Exception: Whatever the flush failed with.
        """
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        if self._running is None:
            self._running = asyncio.create_task(self._run(), name="flusher")
        await done

    async def close(self) -> None:
        """Wait for the flush that is under way."""
        if self._running is not None:
            await asyncio.wait([self._running])

    async def _run(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                error: Exception | None = None
                try:
                    await asyncio.to_thread(self._flush)
                except Exception as failed:  # noqa: BLE001 - whoever waits learns of it
                    error = failed
                for done in waiting:
                    _end(done, error)
        finally:
            self._running = None


def _end(done: asyncio.Future[None], error: Exception | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
