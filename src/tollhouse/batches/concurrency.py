"""How many items of batches an endpoint is asked for at once, and when it is left alone.

    429             half as many, and a pause: the provider's own hint, or one that doubles
    an answer       a little more: one more for each round of answers (AIMD)

Each endpoint of each model has a limiter of its own, and in it the next place goes to the account
that has the fewest of those that wait. Any other failure is for `retries.CircuitBreaker`.

While requests that somebody waits for are under way a limiter has a quarter of its places. And for
a second after each of them, one item begins in each turn of the event loop, in all limiters
together, and after it the loop rests for as long as that turn took. So the next such request stands
behind the work of about one item, and half of the processor is left for it and for whatever else
the machine does.

Source: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance"
(1989), for additive increase and multiplicative decrease.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tollhouse.batches.retries import RequestCounter
from tollhouse.kernel.concurrency import wait_for_event

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from tollhouse.kernel.clock import Clock

FIRST_PLACES: Final = 8.0
_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_LONGEST_HINT: Final = 600.0
_POLITE_SHARE: Final = 4
_POLITE_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.05
_LONGEST_LOOK: Final = 1.0
_LONGEST_REST: Final = 0.1


@dataclass(slots=True, eq=False)
class FairnessGate:
    """Lets one item through in each turn of the event loop, while others are waited for.

    The loop rests as long as each turn took.
    """

    clock: Clock
    is_busy: Callable[[], bool]
    """Tells whether requests are under way that somebody waits for."""
    _open_from: float = 0.0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def wait_turn(self) -> None:
        """Wait until everything that is ready now has had its turn, if that matters to anybody.

        And leave as much time to others as that took.
        """
        now = self.clock.monotonic()
        if self.is_busy():
            self._open_from = now + _POLITE_SECONDS
        if now < self._open_from:
            async with self._turn:
                began = self.clock.monotonic()
                await asyncio.sleep(0)
                await asyncio.sleep(min(self.clock.monotonic() - began, _LONGEST_REST))


class ConcurrencyLimiter:
    """The places for items at one endpoint of a model."""

    def __init__(self, most: int, gate: FairnessGate) -> None:
        """Begin with few places of `most`; whoever takes one, of any limiter, passes the gate."""
        self._most = float(most)
        self._clock, self._gate = gate.clock, gate
        self._places = min(FIRST_PLACES, self._most)
        self._taken: Counter[str] = Counter()
        self._waiting: Counter[str] = Counter()
        self._pause_ends = 0.0
        self._next_pause = _SHORTEST_PAUSE
        self._changed = asyncio.Event()
        self.requests = RequestCounter()

    @property
    def places(self) -> int:
        """How many items may be under way now."""
        share = _POLITE_SHARE if self._gate.is_busy() else 1
        return max(1, int(self._places / share))

    @property
    def pause_seconds(self) -> float:
        """How long the endpoint is left alone from now on; 0 where it may be asked."""
        return max(0.0, self._pause_ends - self._clock.monotonic())

    async def enter(self, account: str, patience: float, is_wanted: Callable[[], bool]) -> bool:
        """Take a place for an item of an account; false where it is not wanted any more.

        That is asked again after each `wake`. Nor is a pause of the endpoint waited for that is
        longer than `patience`, in seconds.
        """
        await self._gate.wait_turn()
        self._waiting[account] += 1
        try:
            while is_wanted():
                pause = self.pause_seconds
                if not pause and self._has_place_for(account):
                    self._taken[account] += 1
                    return True
                if pause > patience:
                    return False
                self._changed.clear()
                # Places come back as requests end that this limiter knows nothing of.
                await wait_for_event(self._changed, min(pause or patience, patience))
            return False
        finally:
            _take_one(self._waiting, account)
            # It may be another account's turn now.
            self.wake()

    def _has_place_for(self, account: str) -> bool:
        if self._taken.total() >= self.places:
            return False
        mine = self._taken[account]
        return all(self._taken[other] >= mine for other in self._waiting)

    @property
    def is_empty(self) -> bool:
        """Whether no item is under way."""
        return not self._taken

    def leave(self, account: str) -> None:
        """Give a place of an account back."""
        _take_one(self._taken, account)
        self.wake()

    def wake(self) -> None:
        """Let those who wait look again."""
        self._changed.set()

    def answered(self, request: int) -> None:
        """Learn that the endpoint did what it was asked, or refused it with reason."""
        self.requests.answered(request)
        self._next_pause = _SHORTEST_PAUSE
        self._places = min(self._most, self._places + 1 / self._places)

    def limited(self, hint: int | None) -> None:
        """Learn that the endpoint was asked too often, and for how many seconds to leave it."""
        if self.pause_seconds:
            # One of those that were under way when it began: nothing new.
            return
        self._places = max(1.0, self._places / 2)
        pause = self._next_pause if hint is None else min(float(hint), _LONGEST_HINT)
        self._next_pause = min(2 * self._next_pause, _LONGEST_PAUSE)
        self._pause_ends = self._clock.monotonic() + pause


def _take_one(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]


class ConcurrencyLimiters:
    """A limiter for each endpoint of each model."""

    def __init__(self, most: int, clock: Clock, is_busy: Callable[[], bool]) -> None:
        self._most, self._gate = most, FairnessGate(clock, is_busy)
        self._limiters: dict[tuple[str, str], ConcurrencyLimiter] = {}
        self._exclusive = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def is_exclusive(self) -> bool:
        """Whether somebody is, or waits to be."""
        return self._exclusive.locked()

    @asynccontextmanager
    async def exclusive(self) -> AsyncGenerator[None]:
        """Wait until no item is under way in this process, and let no other one begin meanwhile."""
        async with self._exclusive:
            while not all(limiter.is_empty for limiter in self._limiters.values()):  # noqa: ASYNC110 - rare
                await asyncio.sleep(_LOOK_SECONDS)
            try:
                yield
            finally:
                self._changed.set()

    async def wait_until_shared(self, is_wanted: Callable[[], bool]) -> None:
        """Wait until nobody is alone, or that is not wanted any more."""
        while self._exclusive.locked() and is_wanted():
            self._changed.clear()
            await wait_for_event(self._changed, _LONGEST_LOOK)

    def of(self, provider: str, model: str) -> ConcurrencyLimiter:
        """Return the limiter of a provider, by its slug, and a model, by the catalogue's name."""
        place = provider, model
        if (found := self._limiters.get(place)) is None:
            found = self._limiters[place] = ConcurrencyLimiter(self._most, self._gate)
        return found
