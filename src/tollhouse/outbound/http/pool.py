"""The connections to one origin: how many are busy, who is next, and which ones rest."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tollhouse.outbound.http.port import ConnectionLost

if TYPE_CHECKING:
    from tollhouse.outbound.http.connection import Connection
    from tollhouse.outbound.http.parser import Origin

_UNUSED: Final = "the connection is not used again"


class OriginPool:
    """The connections to one origin: a bound on how many are busy, and who is next.

    A place is what an exchange holds from before it connects until its response has ended. Whoever
    waits for one is served in the order of coming, and newcomers wait behind. A place may come with
    a connection that has just become free.
    """

    def __init__(self, origin: Origin, places: int, idle_seconds: float) -> None:
        """Begin without connections; the idle ones are closed after so many seconds."""
        self.origin: Final = origin
        self._loop = asyncio.get_running_loop()
        self._free = places
        self._idle_seconds = idle_seconds
        self._waiting: deque[asyncio.Future[Connection | None]] = deque()
        self._resting: list[Connection] = []
        self._reaper: asyncio.TimerHandle | None = None
        self.connections: set[Connection] = set()
        """All of them, busy and resting."""

    def take_resting(self, now: float) -> Connection | None:
        """Take a place with a connection, if that needs no waiting; the latest used is the first.

        A place is given back by its connection once it carries an exchange, otherwise with `leave`.
        """
        if self._waiting:
            return None
        while self._resting:
            connection = self._resting.pop()
            if now - connection.rested_at < self._idle_seconds and connection.is_usable(now):
                self._free -= 1
                return connection
            connection.close(ConnectionLost(_UNUSED, sent=False))
        return None

    async def take_place(self) -> Connection | None:
        """Take a place as soon as there is one; with a connection, where one has become free."""
        if self._free and not self._waiting:
            self._free -= 1
            return None
        waiter: asyncio.Future[Connection | None] = self._loop.create_future()
        self._waiting.append(waiter)
        try:
            connection = await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self.leave(waiter.result())
            else:
                with suppress(ValueError):  # `leave` may have passed over it already
                    self._waiting.remove(waiter)
            raise
        if connection is None or connection.is_usable(self._loop.time()):
            return connection
        connection.close(ConnectionLost(_UNUSED, sent=False))
        return None

    def leave(self, connection: Connection | None = None) -> None:
        """Give a place back, with a connection that may carry another exchange."""
        if connection is not None and connection.closed:
            connection = None
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return
        self._free += 1
        if connection is not None:
            self._resting.append(connection)
            if self._reaper is None:
                self._reaper = self._loop.call_later(self._idle_seconds, self._reap)

    # What a connection calls

    def came_up(self, connection: Connection) -> None:
        """Take note of a new connection."""
        self.connections.add(connection)

    def went_away(self, connection: Connection, *, held_place: bool) -> None:
        """Forget a connection that closed."""
        self.connections.discard(connection)
        if connection in self._resting:
            self._resting.remove(connection)
        if held_place:
            self.leave()

    def _reap(self) -> None:
        """Close what rested for too long; the longest is the first in the list."""
        self._reaper = None
        now = self._loop.time()
        while self._resting and now - self._resting[0].rested_at >= self._idle_seconds:
            self._resting[0].close(ConnectionLost(_UNUSED, sent=False))
        if self._resting:
            at = self._resting[0].rested_at + self._idle_seconds
            self._reaper = self._loop.call_at(at, self._reap)

    def close(self) -> None:
        """Look after resting connections no longer."""
        if self._reaper is not None:
            self._reaper.cancel()
