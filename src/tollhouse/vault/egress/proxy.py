"""The proxy: sessions that come and go, and the patrol that ends what should have ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.vault.egress.connection import ClientConnection
from tollhouse.vault.egress.refusals import TOO_MANY, Refused
from tollhouse.vault.egress.session import Session, listening
from tollhouse.vault.egress.wire import Gone, listening_protocol

if TYPE_CHECKING:
    import socket

    from tollhouse.kernel.clock import Clock
    from tollhouse.vault.egress.connection import Surroundings
    from tollhouse.vault.egress.messages import Limits, Open
    from tollhouse.vault.egress.ports import Grant
    from tollhouse.vault.egress.session import Connected
    from tollhouse.vault.egress.wire import Wire

PATROL_SECONDS: Final = 0.4
"""How often is looked for what has lapsed; a secret that is revoked is so within a second."""
ANSWER_SECONDS: Final = 2.0
"""How long the gateway may take to say what has lapsed; after that everything has."""
MOST_TURNED_AWAY: Final = 16
"""Connections of a session that are told at once that there are too many; others are dropped."""
_BACKLOG: Final = 512
_log = structlog.get_logger(__name__)


class Proxy:
    """Every session of one process."""

    def __init__(self, around: Surroundings, limits: Limits, clock: Clock) -> None:
        """Begin without a session."""
        self._around = around
        self._limits = limits
        self._clock = clock
        self._sessions: dict[str, Session] = {}

    async def open(self, opened: Open, sock: socket.socket) -> str:
        """Serve a session; one of the same name ends.

        Args:
            opened: The session.
            sock: Listens; whoever connects is the session.

        Returns:
            The certificate of its authority, as PEM.
        """
        await self.close(opened.session)
        session = Session(opened, self._limits, self._clock)
        self._sessions[session.id] = session
        session.server = await asyncio.get_running_loop().create_unix_server(
            lambda: listening_protocol(lambda wire: self._accept(session, wire)),
            sock=listening(sock),
            backlog=_BACKLOG,
        )
        return session.authority.certificate

    async def close(self, session_id: str) -> None:
        """End a session, with every connection of it."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()

    async def stop(self) -> None:
        """End all."""
        await asyncio.gather(*map(self.close, tuple(self._sessions)))

    async def patrol(self) -> None:
        """End, for as long as it is not cancelled, whatever has lapsed or idles."""
        async with asyncio.TaskGroup() as both:
            both.create_task(self._watch_clock())
            both.create_task(self._watch_grants())

    async def _watch_clock(self) -> None:
        while True:
            await asyncio.sleep(PATROL_SECONDS)
            self._end_idle()

    async def _watch_grants(self) -> None:
        while True:
            await asyncio.sleep(PATROL_SECONDS)
            await self._end_lapsed()

    def _accept(self, session: Session, wire: Wire) -> None:
        if session.closed:
            wire.abort()
        elif not session.full:
            connection = ClientConnection(wire, session, self._around)
            session.connections.add(connection)
            connection.task.add_done_callback(lambda _: session.connections.discard(connection))
        elif len(session.turned_away) < MOST_TURNED_AWAY:
            leaving = TurnedAway(wire)
            session.turned_away.add(leaving)
            leaving.task.add_done_callback(lambda _: session.turned_away.discard(leaving))
        else:
            wire.abort()

    def _end_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for session in self._sessions.values():
            limits = session.limits
            for each in tuple(session.connections):
                idle = now - each.touched > limits.idle_seconds
                if idle or now - each.began > limits.total_seconds:
                    each.drop()

    async def _end_lapsed(self) -> None:
        users: dict[Grant, list[Connected]] = {}
        for session in self._sessions.values():
            for connection in session.connections:
                for grant in connection.grants:
                    users.setdefault(grant, []).append(connection)
        if not users:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                lapsed = await self._around.keeper.lapsed(users)
        except (Refused, TimeoutError):
            lapsed = users  # nobody can say that they stand
        for grant in lapsed:
            for connection in users[grant]:
                connection.drop()


class TurnedAway:
    """A connection that is told that there are too many."""

    def __init__(self, wire: Wire) -> None:
        """Begin."""
        self._wire = wire
        self.task = asyncio.get_running_loop().create_task(self._run())

    def drop(self) -> None:
        """End it now, also before its task has begun."""
        self._wire.abort()
        self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._wire.send(TOO_MANY.answer())
            await self._wire.close()
        except Gone:
            return
        finally:
            self._wire.abort()
