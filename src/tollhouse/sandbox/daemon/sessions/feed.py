"""Wakes those who follow a session."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


class Follower:
    """Somebody who waits for events."""

    def __init__(self) -> None:
        """Nothing is new."""
        self.news = asyncio.Event()
        self.cut = False
        """Whether nothing more will come, and no end of it was told."""


class Feed:
    """Of all sessions."""

    def __init__(self) -> None:
        """Nobody follows."""
        self._followers: dict[str, set[Follower]] = defaultdict(set)

    @contextmanager
    def following(self, session: str) -> Generator[Follower]:
        """Let somebody follow for as long as the block runs."""
        follower = Follower()
        self._followers[session].add(follower)
        try:
            yield follower
        finally:
            self._followers[session].discard(follower)
            if not self._followers[session]:
                del self._followers[session]

    def ring(self, session: str) -> None:
        """Say that there are new events."""
        for follower in self._followers.get(session, ()):
            follower.news.set()

    def cut(self, session: str | None = None) -> None:
        """Let those go who follow a session, or any."""
        for name, followers in self._followers.items():
            if session in {None, name}:
                for follower in followers:
                    follower.cut = True
                    follower.news.set()
