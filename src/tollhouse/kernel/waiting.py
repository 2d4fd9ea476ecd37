"""Waiting, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType


async def wait_for_event(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but only so long; tell whether it happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class IdleDeadline:
    """Lets a block run for as long as it goes on: a deadline that moves.

    async with Patience(60) as patience:
        async for piece in source:
            patience.goes_on()

    Raises:
        TimeoutError: It was longer than so many seconds from one `goes_on` to the next.
    """

    def __init__(self, seconds: float) -> None:
        """Say how many."""
        self._seconds = seconds
        self._limit = asyncio.timeout(seconds)

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._limit.__aexit__(kind, error, trace)

    def reset(self) -> None:
        """Say that the block goes on."""
        if not self.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def expired(self) -> bool:
        """Tell whether it took too long."""
        return self._limit.expired()
