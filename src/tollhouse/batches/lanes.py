"""How many items of batches an endpoint is asked for at once, and when it is left alone.

    429             half as many, and a pause: the provider's own hint, or one that doubles
    an answer       a little more: one more for each round of answers (AIMD)

Each endpoint of each model has a lane of its own, and in it accounts take turns: the next place
goes to the one that has the fewest of those that wait. Any other failure is the batch's own matter;
see `breaker`.

While requests that somebody waits for are under way a lane has a quarter of its places. And for a
second after each of them, one item begins in each turn of the event loop, in all lanes together:
where the loop itself is what items wait for, the next such request stands behind the work of about
one of them, and not behind that of every place. (That takes a fifth more CPU time an item; where
items wait for their providers, turns are short and it changes nothing.)

Source: Chiu and Jain, "Analysis of the increase and decrease algorithms for congestion avoidance"
(1989), for additive increase and multiplicative decrease.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from tollhouse.batches.retries import Requests
from tollhouse.kernel.waiting import wait_for_event

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


class Turnstile:
    """Lets one item through in each turn of the event loop, while others are waited for."""

    def __init__(self, clock: Clock, is_busy: Callable[[], bool]) -> None:
        """Stand open.

        Args:
            clock: The time.
            is_busy: Whether requests are under way that somebody waits for.
        """
        self._clock = clock
        self._is_busy = is_busy
        self._open_from = 0.0
        self._turn = asyncio.Lock()

    async def pass_through(self) -> None:
        """Wait until everything that is ready now has had its turn, if that matters to anybody."""
        now = self._clock.monotonic()
        if self._is_busy():
            self._open_from = now + _POLITE_SECONDS
        if now < self._open_from:
            async with self._turn:
                await asyncio.sleep(0)


class Lane:
    """The places for items at one endpoint of a model."""

    def __init__(
        self, most: int, clock: Clock, is_busy: Callable[[], bool], turnstile: Turnstile
    ) -> None:
        """Begin with few places.

        Args:
            most: How many places there are at most.
            clock: The time.
            is_busy: Whether requests are under way that somebody waits for.
            turnstile: What everyone passes who takes a place, of all lanes.
        """
        self._most = float(most)
        self._clock = clock
        self._is_busy = is_busy
        self._turnstile = turnstile
        self._places = min(FIRST_PLACES, self._most)
        self._taken: Counter[str] = Counter()
        """By account."""
        self._waiting: Counter[str] = Counter()
        self._pause_ends = 0.0
        self._next_pause = _SHORTEST_PAUSE
        self._changed = asyncio.Event()
        self.requests = Requests()
        """What the endpoint was asked."""

    @property
    def places(self) -> int:
        """How many items may be under way now."""
        share = _POLITE_SHARE if self._is_busy() else 1
        return max(1, int(self._places / share))

    @property
    def pause_seconds(self) -> float:
        """How long the endpoint is left alone from now on; 0 where it may be asked."""
        return max(0.0, self._pause_ends - self._clock.monotonic())

    async def enter(self, account: str, patience: float, is_wanted: Callable[[], bool]) -> bool:
        """Take a place.

        Args:
            account: Whose item it is for.
            patience: Seconds; a longer pause of the endpoint is not waited for.
            is_wanted: Whether a place is still wanted; asked again after each `wake`.

        Returns:
            False where there is none for so long, or it is not wanted any more.
        """
        await self._turnstile.pass_through()
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
                # Places come back as requests end that this lane knows nothing of.
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


class Lanes:
    """A lane for each endpoint of each model."""

    def __init__(self, most: int, clock: Clock, is_busy: Callable[[], bool]) -> None:
        """See `Lane`."""
        turnstile = Turnstile(clock, is_busy)
        self._make = lambda: Lane(most, clock, is_busy, turnstile)
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._alone = asyncio.Lock()
        self._changed = asyncio.Event()

    @property
    def is_somebody_alone(self) -> bool:
        """Whether somebody is, or waits to be."""
        return self._alone.locked()

    @asynccontextmanager
    async def alone(self) -> AsyncGenerator[None]:
        """Wait until no item is under way in this process, and let no other one begin meanwhile."""
        async with self._alone:
            while not all(lane.is_empty for lane in self._lanes.values()):  # noqa: ASYNC110 - rare
                await asyncio.sleep(_LOOK_SECONDS)
            try:
                yield
            finally:
                self._changed.set()

    async def nobody_alone(self, is_wanted: Callable[[], bool]) -> None:
        """Wait until nobody is alone, or that is not wanted any more."""
        while self._alone.locked() and is_wanted():
            self._changed.clear()
            await wait_for_event(self._changed, _LONGEST_LOOK)

    def of(self, provider: str, model: str) -> Lane:
        """Return the lane of a provider's endpoint of a model.

        Args:
            provider: The provider's slug.
            model: The catalogue's name of the model.
        """
        place = provider, model
        found = self._lanes.get(place)
        if found is None:
            found = self._lanes[place] = self._make()
        return found
