"""Time, injected.

Owns the two clocks that the program reads: wall time for what is stored and shown, a monotonic
clock for how long something took. Nothing else in the program may ask the operating system.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_DAY_SECONDS = 24 * 60 * 60
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class Clock(Protocol):
    """What the program knows about time."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds from an arbitrary start; never goes back."""
        ...


class Now(NamedTuple):
    """An instant, by both clocks."""

    at: datetime
    monotonic: float

    @classmethod
    def by(cls, clock: Clock) -> Now:
        """Return what a clock shows."""
        return cls(clock.now(), clock.monotonic())


class SystemClock:
    """The operating system's clocks."""

    def now(self) -> datetime:
        """Return the current instant, aware, in UTC."""
        return datetime.now(UTC)

    # No method of its own: a request asks a dozen times.
    monotonic = staticmethod(time.monotonic)


def unix_seconds(instant: datetime) -> int:
    """Return whole seconds since the epoch, as the `created` fields of the wire want them."""
    return int(instant.timestamp())


def to_millis(instant: datetime) -> int:
    """Return whole milliseconds since the epoch of an aware datetime.

    Near the ends of the calendar another zone has instants that UTC has not; they become the first
    or the last one, since a row that cannot be read back would be lost.
    """
    since = instant - _EPOCH
    millis = (since.days * _DAY_SECONDS + since.seconds) * 1000 + since.microseconds // 1000
    return millis if _FIRST <= millis <= _LAST else min(max(millis, _FIRST), _LAST)


def from_millis(millis: int) -> datetime:
    """Return the aware UTC datetime of milliseconds since the epoch."""
    return _EPOCH + millis * _MILLISECOND


def iso_utc(instant: datetime) -> str:
    """Return ISO 8601 with milliseconds and a `Z`, as the wire's date-time strings want it."""
    return _iso(instant, "milliseconds")


def iso_utc_seconds(instant: datetime) -> str:
    """Return ISO 8601 with whole seconds and a `Z`, for what begins and ends on a second."""
    return _iso(instant, "seconds")


def _iso(instant: datetime, timespec: str) -> str:
    return instant.astimezone(UTC).isoformat(timespec=timespec).replace("+00:00", "Z")
