"""What nobody works on: windows that are over, batches left unclosed, blobs that nobody reads.

Every round looks at the tables alone, so that whatever a kill left behind is found again.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.batches import repository
from tollhouse.batches.books import remove_blobs
from tollhouse.batches.types import Status

if TYPE_CHECKING:
    from tollhouse.batches.books import BatchBooks
    from tollhouse.batches.context import Context

LONGEST_UPLOAD: Final = timedelta(hours=1)
"""An upload that takes longer was given up by everybody."""
_AT_ONCE: Final = 20
_PURGE_SECONDS: Final = 30.0
_log = structlog.get_logger(__name__)


class Sweeper:
    """Looks after batches that nobody holds."""

    def __init__(self, context: Context, books: BatchBooks) -> None:
        """Take what it needs."""
        self._database = context.database
        self._blobs = context.blobs
        self._doorbell = context.doorbell
        self._rules = context.rules
        self._clock = context.clock
        self._books = books
        self._purged_at = float("-inf")

    async def begin_alone(self) -> None:
        """Free what a process left behind that was killed; only where nobody else is at work."""
        async with self._database.writing() as write:
            await repository.drop_leases(write)
        await self._remove_uploads(timedelta(0))

    async def sweep(self) -> None:
        """Do what is due."""
        await self._expire()
        await self._close()
        if self._clock.monotonic() - self._purged_at >= _PURGE_SECONDS:
            self._purged_at = self._clock.monotonic()
            await self._remove_uploads(LONGEST_UPLOAD)
            await self._purge()

    async def _expire(self) -> None:
        async with self._database.reading() as read:
            overdue = await repository.overdue(read, self._clock.now())
        for batch_id in overdue:
            async with self._database.writing() as write:
                await repository.move(
                    write, batch_id, Status.FINALIZING, ending=Status.EXPIRED.value
                )
            _log.warning("batch_expired", batch=batch_id)
            self._doorbell.ring(batch_id)

    async def _close(self) -> None:
        async with self._database.reading() as read:
            unclosed = await repository.without_open_chunks(read)
        for batch_id in unclosed:
            async with self._database.writing() as write:
                batch = await repository.get(write, batch_id)
                if batch is not None:
                    await self._books.close_if_done(write, batch)

    async def _remove_uploads(self, age: timedelta) -> None:
        async with self._database.writing() as write:
            given_up = await repository.give_up_uploads(write, self._clock.now() - age)
        for batch_id in given_up:
            if await remove_blobs(self._blobs, batch_id):
                async with self._database.writing() as write:
                    await repository.forget_upload(write, batch_id)

    async def _purge(self) -> None:
        kept_since = self._clock.now() - self._rules.retention
        async with self._database.reading() as read:
            due = await repository.to_purge(read, kept_since, _AT_ONCE)
        for batch_id in due:
            if not await remove_blobs(self._blobs, batch_id):
                return
            async with self._database.writing() as write:
                await repository.mark_purged(write, batch_id, self._clock.now())
