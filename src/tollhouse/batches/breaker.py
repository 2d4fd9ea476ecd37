"""A circuit breaker for each batch: where nobody is answered, one probe at a time is sent.

    closed    items are begun; three of them fail and none is answered meanwhile  ──> open
    open      nothing is begun for a while, then one probe
                  it is answered  ──> closed
                  it fails        ──> a pause twice as long, up to a minute

An item that fails again and again counts once: it says nothing of the others. And what keeps one
batch waiting (its guardrail, say) keeps no other one.

Source: M. Nygard, "Release It!" (2007), for the name and the three states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.batches.retries import LONGEST_WAIT, Requests

if TYPE_CHECKING:
    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.errors import TollhouseError

_OPENS_AT: Final = 3
_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class CircuitBreaker(Requests):
    """Says whether an item of a batch may be begun."""

    def __init__(self, clock: Clock) -> None:
        """Start closed."""
        super().__init__()
        self._clock = clock
        self._failing: set[int] = set()
        """Items that failed since the last answer."""
        self._opened_after: int | None = None
        """The last request that had begun when it opened."""
        self._pause = _SHORTEST_PAUSE
        self._pause_ends = 0.0
        self._probe: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing but probes may be begun."""
        return self._opened_after is not None

    @property
    def has_probe(self) -> bool:
        """Whether a probe is under way."""
        return self._probe is not None

    @property
    def pause_seconds(self) -> float:
        """How long not even a probe may be begun; 0 where one may be, or it is closed."""
        return max(0.0, self._pause_ends - self._clock.monotonic()) if self.is_open else 0.0

    @property
    def lets_pass(self) -> bool:
        """Whether an item may be begun now."""
        return not self.is_open or (not self.has_probe and not self.pause_seconds)

    def begin(self) -> int:
        """Note that an item is begun; return its request's number."""
        request = super().begin()
        if self.is_open:
            self._probe = request
        return request

    def ended(self, request: int) -> None:
        """Note that a request has ended, whatever came of it."""
        if self._probe == request:
            self._probe = None

    def answered(self, request: int) -> None:
        """Note that a request was answered: it closes, unless that began before it opened."""
        super().answered(request)
        if self._opened_after is None or request > self._opened_after:
            self._failing.clear()
            self._opened_after, self._pause = None, _SHORTEST_PAUSE

    def failed(self, request: int, item: int, error: TollhouseError) -> None:
        """Note that an item's request failed in a way that may be nobody's fault but a server's."""
        hint = min(float(error.retry_after or 0), LONGEST_WAIT)
        self._failing.add(item)
        if self._opened_after is None:
            if len(self._failing) < _OPENS_AT:
                return
            self._opened_after = self.begun
        elif request > self._opened_after:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            return
        self._pause_ends = self._clock.monotonic() + max(self._pause, hint)
