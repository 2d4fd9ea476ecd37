"""A deadline that moves with every request, and costs a timer only now and then."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Deadline:
    """Calls back once its time has come.

    A timer that fires before that begins anew: to cancel one and to start another for each request
    would cost more than to parse it.
    """

    __slots__ = ("_at", "_call_back", "_loop", "_timer", "_timer_at")

    def __init__(self, loop: asyncio.AbstractEventLoop, call_back: Callable[[], None]) -> None:
        self._loop = loop
        self._call_back: Callable[[], None] | None = call_back
        self._at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def set(self, seconds: float) -> None:
        """Move it to so many seconds from now."""
        self._at = at = self._loop.time() + seconds
        if self._timer is not None:
            if self._timer_at <= at:
                return
            self._timer.cancel()
        self._start()

    def drop(self) -> None:
        """Call nobody any more, and refer to nobody."""
        self._call_back = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _start(self) -> None:
        if self._call_back is not None:
            self._timer_at = self._at
            self._timer = self._loop.call_at(self._at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() < self._at:
            self._start()
        elif self._call_back is not None:
            self._call_back()
