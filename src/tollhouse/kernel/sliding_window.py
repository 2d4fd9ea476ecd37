"""How many requests in any minute: exact, not on average.

A bucket that refills (GCRA) lets twice its rate through in the minute after a pause; clients are
told "20 a minute", so the times of the latest requests are kept, as many as the limit.
"""

from __future__ import annotations

from collections import deque

MINUTE = 60.0


class SlidingMinute:
    """The requests of the last 60 seconds."""

    __slots__ = ("_times",)

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def wait(self, limit: int, now: float) -> float:
        """Return in how many seconds another request fits into a minute of so many; 0: now."""
        times = self._times
        while times and now - times[0] >= MINUTE:
            times.popleft()
        if len(times) < limit:
            return 0.0
        return MINUTE - (now - times[len(times) - limit]) if limit else MINUTE

    def current(self, now: float) -> tuple[int, float | None]:
        """Return how many there are, and in how many seconds the oldest leaves."""
        times = [each for each in self._times if now - each < MINUTE]
        return len(times), MINUTE - (now - times[0]) if times else None

    def take(self, now: float) -> None:
        """Count a request."""
        self._times.append(now)

    def idle(self, now: float) -> bool:
        """Tell whether nothing of the last minute is in it."""
        return not self._times or now - self._times[-1] >= MINUTE
