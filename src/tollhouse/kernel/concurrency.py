"""Waiting with a limit, and a queue in which owners take turns."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")


async def wait_for_event(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait for an event, at most `seconds` if they are given; tell whether it is set."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


class IdleDeadline:
    """A timeout that starts again with each `reset`.

        async with IdleDeadline(60) as deadline:
            async for piece in source:
                deadline.reset()

    Raises:
        TimeoutError: More than `seconds` passed without a `reset`.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._limit = asyncio.timeout(seconds)

    async def __aenter__(self) -> Self:
        await self._limit.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._limit.__aexit__(kind, error, trace)

    def reset(self) -> None:
        """Start the time again; an expired deadline stays expired."""
        if not self.expired():
            self._limit.reschedule(asyncio.get_running_loop().time() + self._seconds)

    def expired(self) -> bool:
        """Tell whether the time ran out."""
        return self._limit.expired()


class FairQueue(Generic[T]):
    """Items by owner; an owner with many of them does not hold up the others.

    queue.add("a", 1); queue.add("a", 2); queue.add("b", 3)
    queue.next() -> 1, then 3, then 2, then None
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def add(self, owner: str, item: T) -> None:
        """Let an item wait behind the others of its owner."""
        self._waiting.setdefault(owner, deque()).append(item)

    def put_back(self, owner: str, item: T) -> None:
        """Let an item that was taken be the next one."""
        items = self._waiting.pop(owner, deque[T]())
        items.appendleft(item)
        self._waiting = {owner: items, **self._waiting}

    def next(self, may: Callable[[str], bool] = lambda _: True) -> T | None:
        """Take the oldest item of the owner whose turn it is, among those that may have one."""
        owner = next((each for each in self._waiting if may(each)), None)
        if owner is None:
            return None
        items = self._waiting.pop(owner)
        item = items.popleft()
        if items:
            self._waiting[owner] = items  # behind all others
        return item
