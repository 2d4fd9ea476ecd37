"""The event loop's time, which a test may put forward."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class LoopTime:
    """Runs as ever, and makes leaps: timers strike as if somebody had waited."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time
        self._ahead = 0.0
        patch.setattr(loop, "time", lambda: now() + self._ahead)

    async def advance(self, seconds: float) -> None:
        """Let so many seconds pass at once, and the loop see it."""
        self._ahead += seconds
        await asyncio.sleep(0)
