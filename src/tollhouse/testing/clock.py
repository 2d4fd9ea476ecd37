"""A clock that moves when the test says so."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 12, 10, 30, tzinfo=UTC)
"""A Thursday in the middle of a month, a week and a day."""


class FakeClock:
    """Time that stands still until it is moved; fulfils `kernel.clock.Clock`."""

    def __init__(self, start: datetime = START) -> None:
        """Stop the clock at an aware instant."""
        self._now = start.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Return the instant that the test chose, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that the test let pass."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Let time pass, on both clocks.

        Raises:
            ValueError: `seconds` is negative; use `set` to move the wall clock back.
        """
        if seconds < 0:
            message = "time does not go back: a monotonic clock cannot follow"
            raise ValueError(message)
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, instant: datetime) -> None:
        """Set the wall clock, forwards or back, as an operator would; no time passes."""
        self._now = instant.astimezone(UTC)
