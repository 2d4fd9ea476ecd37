"""How many bytes a minute a session may move: who has used them up waits.

And how many are searched at once: other sessions get their turn after each slice.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

SLICE: Final = 2_048
"""Bytes that are searched at once."""
_MINUTE: Final = 60.0


class Pace:
    """An allowance that fills up again, evenly, over a minute."""

    __slots__ = ("_at", "_left", "_most")

    def __init__(self, bytes_per_minute: int) -> None:
        """Begin with all of it."""
        self._most = bytes_per_minute
        self._left = float(bytes_per_minute)
        self._at = asyncio.get_running_loop().time()

    async def pay(self, size: int) -> None:
        """Take some bytes of it; wait until it is not in debt."""
        wait = self.wait(size, asyncio.get_running_loop().time())
        if wait > 0:
            await asyncio.sleep(wait)

    def wait(self, size: int, now: float) -> float:
        """Take some bytes, and return how many seconds it takes until the debt is paid."""
        each_second = self._most / _MINUTE
        self._left = min(float(self._most), self._left + (now - self._at) * each_second) - size
        self._at = now
        return max(0.0, -self._left / each_second)


async def in_slices(feed: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Return what a redactor passes on of some bytes; others get their turn meanwhile."""
    if len(data) <= SLICE:
        return feed(data)
    out = bytearray()
    for at in range(0, len(data), SLICE):
        out += feed(data[at : at + SLICE])
        await asyncio.sleep(0)
    return bytes(out)
