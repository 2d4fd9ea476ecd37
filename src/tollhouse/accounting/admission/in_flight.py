"""What an account's requests under way may cost, and what those that ended of late did cost."""

from __future__ import annotations

from collections import deque


class InFlight:
    """Estimates of running requests; actual costs for the settlement window after their end.

    Source: the in-flight budget's third rule: the estimate is replaced by the actual cost for a
    short settlement window, then released.
    """

    __slots__ = ("_recent", "recent_nano", "running_nano")

    def __init__(self) -> None:
        """Start with nothing."""
        self.running_nano = 0
        self.recent_nano = 0
        self._recent: deque[tuple[float, int]] = deque()

    def held_nano(self, now: float) -> int:
        """Return everything that is held now; `now` in seconds of a clock that never jumps."""
        recent = self._recent
        while recent and recent[0][0] <= now:
            self.recent_nano -= recent.popleft()[1]
        return self.running_nano + self.recent_nano

    def begin(self, estimate_nano: int) -> None:
        """Hold a request's estimate."""
        self.running_nano += estimate_nano

    def end(self, estimate_nano: int, actual_nano: int, now: float, window: float) -> None:
        """Hold a request's actual cost in place of its estimate, until the window is over.

        Args:
            estimate_nano: What it held.
            actual_nano: What it cost.
            now: Seconds of a clock that never jumps.
            window: Seconds that its cost stays.
        """
        # Whoever has no budget never asks what is held: what is over would stay for ever.
        self.held_nano(now)
        self.running_nano -= estimate_nano
        if actual_nano:
            # Windows are equally long, so the first to come is the first to go.
            self._recent.append((now + window, actual_nano))
            self.recent_nano += actual_nano

    def seconds_until(self, excess_nano: int, now: float) -> float | None:
        """Return when so much less is held, if nothing else begins; None: not by waiting alone."""
        for until, nano in self._recent:
            excess_nano -= nano
            if excess_nano <= 0:
                return until - now
        return None

    def next_change(self, now: float) -> float | None:
        """Return when the next actual cost leaves; None where none will."""
        self.held_nano(now)
        return self._recent[0][0] if self._recent else None
