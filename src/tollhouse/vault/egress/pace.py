"""How many bytes a minute a session may move: who has used them up waits."""

from __future__ import annotations

import asyncio
from typing import Final

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
