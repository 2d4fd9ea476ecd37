"""The memory that large bodies may take, all together.

    with memory.hold(account_id) as hold:
        await hold.take(30_000_000)      # waits; a 503 where that takes too long
        ...                              # read the body, answer the request

Accounts take turns, and none holds more than half, so that none waits for another one alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Self

from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.turns import Turns

if TYPE_CHECKING:
    from types import TracebackType


class BodyMemory:
    """So many bytes, who has taken some of them, and who waits for some."""

    def __init__(self, most: int, seconds: float) -> None:
        """Say how many bytes there are, and how long a request may wait for its part."""
        self._most = most
        self._seconds = seconds
        self._taken: Counter[str] = Counter()
        """Bytes, by account."""
        self._waiting: Turns[Hold] = Turns()

    def hold(self, owner: str) -> Hold:
        """Return what lets a request of an account take memory until the end of a block."""
        return Hold(owner, self)

    async def wait(self, hold: Hold) -> None:
        """Give a request what it wants; see `Hold.take`."""
        served = hold.served = asyncio.get_running_loop().create_future()
        self._waiting.add(hold.owner, hold)
        self._serve()
        try:
            async with asyncio.timeout(self._seconds):
                await served
        except TimeoutError:
            message = "Too many large requests are under way; try again in a moment."
            raise Unavailable(message) from None

    def give_back(self, hold: Hold) -> None:
        """Take back what a request has taken."""
        self._taken[hold.owner] -= hold.size
        self._serve()

    def _serve(self) -> None:
        """Serve whom there is room for, one request of each account in turn."""
        later: list[Hold] = []
        while (hold := self._waiting.next()) is not None:
            if hold.served is None or hold.served.done():
                continue  # it waits no longer
            if self._has_room(hold):
                hold.size = hold.wanted
                self._taken[hold.owner] += hold.size
                hold.served.set_result(None)
            else:
                later.append(hold)
        for hold in later:
            self._waiting.add(hold.owner, hold)

    def _has_room(self, hold: Hold) -> bool:
        """Tell whether a request may be served now; one alone always may."""
        taken, own = self._taken.total(), self._taken[hold.owner]
        fits = taken + hold.wanted <= self._most or not taken
        return fits and (own + hold.wanted <= self._most // 2 or not own)


class Hold:
    """What one request has taken."""

    __slots__ = ("_memory", "owner", "served", "size", "wanted")

    def __init__(self, owner: str, memory: BodyMemory) -> None:
        """Start with nothing."""
        self.owner = owner
        self.size = 0
        """Bytes that it has."""
        self.wanted = 0
        """Bytes that it waits for, or waited for."""
        self.served: asyncio.Future[None] | None = None
        self._memory = memory

    async def take(self, size: int) -> None:
        """Take so many bytes, once for a request; wait until there is room for them.

        Raises:
            Unavailable: There was none for too long.
        """
        self.wanted = size
        await self._memory.wait(self)

    def __enter__(self) -> Self:
        """Begin the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give back what was taken."""
        if self.size:
            self._memory.give_back(self)
            self.size = 0
