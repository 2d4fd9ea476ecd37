"""The memory that large bodies may take, all together.

    with memory.hold(account_id) as hold:
        await hold.take(300_000)         # waits; a 503 where that takes too long
        await hold.take(600_000)         # more, as more of the body comes
        ...                              # answer the request

Accounts take turns, and none holds more than half, so that none waits for another one alone. A body
takes memory as it arrives, so that a slow one holds little; while others wait, one that holds some
has to arrive fast.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Final, Self

from tollhouse.kernel.errors import TimedOut, Unavailable
from tollhouse.kernel.turns import Turns

if TYPE_CHECKING:
    from types import TracebackType


LEAST_RATE: Final = 65_536
"""Bytes a second at which a body has to arrive that holds memory for which others wait."""
GRACE_SECONDS: Final = 10.0
"""How long it may be slower."""


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
        finally:
            if served.cancelled():
                self._serve()  # those behind it may fit

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits."""
        return len(self._waiting) > 0

    def give_back(self, hold: Hold) -> None:
        """Take back what a request has taken."""
        self._taken[hold.owner] -= hold.size
        self._serve()

    def _serve(self) -> None:
        """Serve whom there is room for, one request of each account in turn.

        Who does not fit beside the others is waited for, or small requests would keep it out for
        ever; who is over its own account's half holds up nobody.
        """
        later: list[Hold] = []
        while (hold := self._waiting.next()) is not None:
            if hold.served is None or hold.served.done():
                continue  # it waits no longer
            if not self._is_within_half(hold):
                later.append(hold)
            elif self._fits(hold):
                self._taken[hold.owner] += hold.wanted - hold.size
                hold.size = hold.wanted
                hold.served.set_result(None)
            else:
                later.append(hold)
                break
        for hold in reversed(later):
            self._waiting.put_back(hold.owner, hold)

    def _fits(self, hold: Hold) -> bool:
        """Tell whether there is room for a request; one alone always has some."""
        others = self._taken.total() - hold.size
        return others + hold.wanted <= self._most or not others

    def _is_within_half(self, hold: Hold) -> bool:
        """Tell the same of its account's half."""
        others = self._taken[hold.owner] - hold.size
        return others + hold.wanted <= self._most // 2 or not others


class Hold:
    """What one request has taken."""

    __slots__ = ("_arrived", "_memory", "_since", "owner", "served", "size", "wanted")

    def __init__(self, owner: str, memory: BodyMemory) -> None:
        """Start with nothing."""
        self.owner = owner
        self.size = 0
        """Bytes that it has."""
        self.wanted = 0
        """Bytes that it is to have in all."""
        self.served: asyncio.Future[None] | None = None
        self._memory = memory
        self._since = 0.0
        """When it got what it has, by the loop's clock."""
        self._arrived = 0
        """Bytes of the body that were there then."""

    async def keep(self, arrived: int, most: int) -> None:
        """Have memory for what has arrived of a body, and for as much again.

        Args:
            arrived: Bytes of the body that are here.
            most: Bytes that the body may have.

        Raises:
            Unavailable: There was none for too long.
            TimedOut: The body arrives slowly, and others wait for its memory.
        """
        if arrived > self.size:
            await self.take(min(most, 2 * arrived))
            self._since, self._arrived = asyncio.get_running_loop().time(), arrived
        elif self._memory.is_wanted and self._is_slow(arrived):
            message = "The body arrives too slowly while other large requests wait."
            raise TimedOut(message)

    async def take(self, size: int) -> None:
        """Have so many bytes in all; wait until there is room for them.

        Raises:
            Unavailable: There was none for too long.
        """
        self.wanted = size
        await self._memory.wait(self)

    def _is_slow(self, arrived: int) -> bool:
        seconds = asyncio.get_running_loop().time() - self._since
        return seconds > GRACE_SECONDS and arrived - self._arrived < LEAST_RATE * seconds

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
