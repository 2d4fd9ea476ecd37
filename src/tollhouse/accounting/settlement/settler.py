"""The settler: charges that arrive while a group is being written form the next group.

    settle(record)  --> pending --+--> writer.write([record, ...])  --> every waiter goes on
    settle(record)  --> pending --+      one transaction

`settle` returns when the charge is durable, so a reply whose last byte waits for it can never
be received whole and be missing from the books. A charge that the database would never take
spoils its group: the group is then written one by one, so that it fails alone.

A charge on a quiet gateway is written at once. Right after a group the next one gathers for
`GATHER_SECONDS`: a transaction costs many times what one more row in it does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog

from tollhouse.accounting.ports import Unbookable

if TYPE_CHECKING:
    from tollhouse.accounting.ports import ChargeWriter
    from tollhouse.accounting.types import GenerationRecord

GATHER_SECONDS = 0.002
_LARGEST_GROUP = 500
_Waiting = tuple["GenerationRecord", "asyncio.Future[None]"]
_log = structlog.get_logger(__name__)


class Settler:
    """Writes charges in groups, one group at a time."""

    def __init__(self, writer: ChargeWriter) -> None:
        """Take the writer; nothing runs until the first charge."""
        self._writer = writer
        self._pending: list[_Waiting] = []
        self._flushing: asyncio.Task[None] | None = None
        self._gathers_until = 0.0

    async def settle(self, record: GenerationRecord) -> None:
        """Book a generation; return when that is durable.

        Being cancelled ends only the waiting: the charge is written all the same.

        Raises:
            Unbookable: The charge itself cannot be stored.
            Exception: Whatever else kept the writer from writing; the charge is not booked.
        """
        done = asyncio.get_running_loop().create_future()
        self._pending.append((record, done))
        if self._flushing is None:
            self._flushing = asyncio.create_task(self._flush(), name="settler")
        # Cancelling the future is harmless: the writer looks at the record, not at who waits.
        await done

    async def close(self) -> None:
        """Write what is pending, then close the writer."""
        while self._flushing is not None:
            await asyncio.wait([self._flushing])
        await self._writer.close()

    async def _flush(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._pending:
                if (pause := self._gathers_until - loop.time()) > 0:
                    await asyncio.sleep(pause)
                group = self._pending[:_LARGEST_GROUP]
                del self._pending[:_LARGEST_GROUP]
                await self._write(group)
                self._gathers_until = loop.time() + GATHER_SECONDS
        finally:
            self._flushing = None

    async def _write(self, group: list[_Waiting]) -> None:
        try:
            await self._writer.write([record for record, _ in group])
        except Exception as error:  # noqa: BLE001 - the edge: every waiter learns what happened
            if isinstance(error, Unbookable) and len(group) > 1:
                for waiting in group:
                    await self._write([waiting])
                return
            _fail(group, error)
        else:
            for _, done in group:
                if not done.done():
                    done.set_result(None)


def _fail(group: list[_Waiting], error: Exception) -> None:
    _log.error(
        "charges_not_booked",
        count=len(group),
        first_generation=group[0][0].id,
        error=type(error.__cause__ or error).__name__,
    )
    for _, done in group:
        if not done.done():
            done.set_exception(error)
            # A waiter that was cancelled will never look; it was logged above.
            done.exception()
