"""A queue in which owners take turns, so that whoever has much waiting does not hold up the others.

turns.add("a", 1); turns.add("a", 2); turns.add("b", 3)
turns.next() -> 1, then 3, then 2, then None
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """What waits, by owner."""

    def __init__(self) -> None:
        """Start empty."""
        self._waiting: dict[str, deque[T]] = {}

    def __len__(self) -> int:
        """Return how many wait."""
        return sum(map(len, self._waiting.values()))

    def add(self, owner: str, item: T) -> None:
        """Let an item wait behind the others of its owner."""
        self._waiting.setdefault(owner, deque()).append(item)

    def put_back(self, owner: str, item: T) -> None:
        """Let an item that was taken be the next one."""
        items = self._waiting.pop(owner, deque[T]())
        items.appendleft(item)
        self._waiting = {owner: items, **self._waiting}

    def next(self) -> T | None:
        """Take the oldest item of the owner whose turn it is; None where nothing waits."""
        for owner, items in self._waiting.items():
            del self._waiting[owner]
            item = items.popleft()
            if items:
                self._waiting[owner] = items  # behind all others
            return item
        return None
