"""An event loop in virtual time: waiting takes none."""

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

from tests.support.clock import START

_TURN_SECONDS = 1e-9
"""What a turn of the loop takes. If it took nothing, two tasks that wait for less than the loop can
tell from now would wake each other for ever, and time would stand still."""


class _Selector(selectors.SelectSelector):
    """Advances the virtual time instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everybody waits, and nothing will ever happen")
        self.passed += max(timeout, _TURN_SECONDS)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs hours of virtual time at once; its code may use no threads."""

    def __init__(self) -> None:
        self._waits = _Selector()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.passed


class VirtualClock:
    """The time of the running loop; fulfils `kernel.clock.Clock`."""

    def now(self) -> datetime:
        return START + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


T = TypeVar("T")


def run_virtually(scenario: Coroutine[Any, Any, T]) -> T:
    """Run a scenario; its hours take as long as its work."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)
