"""The event loop's time, which a test can advance."""

import asyncio

import pytest


class LoopTime:
    """Runs normally, and can jump: timers fire as if the time had passed."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        self._ahead = 0.0
        patch.setattr(loop, "time", lambda: now() + self._ahead)

    def jump(self, seconds: float) -> None:
        """Advance the time by so many seconds, as code does that blocks the loop."""
        self._ahead += seconds

    async def advance(self, seconds: float) -> None:
        """Advance the time by so many seconds, and let the loop run what is due."""
        self.jump(seconds)
        await asyncio.sleep(0)
