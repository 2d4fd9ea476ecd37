"""Waiting, but not for ever."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def happens_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, but only so long; tell whether it happened."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
