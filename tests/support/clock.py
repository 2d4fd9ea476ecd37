"""A clock that a test controls."""

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 12, 10, 30, tzinfo=UTC)
"""A Thursday in the middle of a month, a week and a day."""


class FakeClock:
    """A clock that stands still until a test moves it; implements `kernel.clock.Clock`."""

    def __init__(self, start: datetime = START) -> None:
        """Stop the clock at an aware instant."""
        self._now = start.astimezone(UTC)
        self._monotonic = 0.0

    def now(self) -> datetime:
        """Return the current instant in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that have passed."""
        return self._monotonic

    def advance(self, seconds: float) -> None:
        """Advance both the wall clock and the monotonic clock.

        Raises:
            ValueError: `seconds` is negative; use `set` to move the wall clock back.
        """
        if seconds < 0:
            message = "time does not go back: a monotonic clock cannot follow"
            raise ValueError(message)
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds

    def set(self, instant: datetime) -> None:
        """Set the wall clock, forwards or back; the monotonic clock does not change."""
        self._now = instant.astimezone(UTC)
