"""All terminals of the intern: found by their names, bounded in number and in time."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.errors import Refused
from tollhouse.sandbox.daemon.terminal.messages import Size
from tollhouse.sandbox.daemon.terminal.program import start_shell
from tollhouse.sandbox.daemon.terminal.session import Farewell, Session, View

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from tollhouse.sandbox.daemon.processes import Children
    from tollhouse.sandbox.daemon.terminal.messages import Wanted

MOST: Final = 16
"""Terminals that run at a time."""
IDLE_SECONDS: Final = 24 * 3600.0
"""Without a client, before a terminal is hung up."""
KEPT_SECONDS: Final = 600.0
"""An ended terminal's output and exit code, for whoever was away."""
_LOOKS: Final = 100
_LOOK_SECONDS: Final = 0.01
TAKEN_OVER: Final = 4409
"""Code of a connection in whose place another one has come."""
_TAKEN: Final = Farewell(TAKEN_OVER, "another client attached to the terminal")
_ENDS: Final = Farewell(1001, "the intern ends")
_REMOVED: Final = Farewell(1001, "the terminal was removed")


class Sessions:
    """Starts terminals, and finds those that there are."""

    def __init__(self, children: Children, environment: Mapping[str, str]) -> None:
        """Take what programs are started with.

        Args:
            children: Starts them.
            environment: All variables of theirs.
        """
        self._children = children
        self._environment = environment
        self._sessions: dict[str, Session] = {}
        self._timers: dict[Session, asyncio.TimerHandle] = {}

    def find(self, wanted: Wanted) -> tuple[Session, bool]:
        """Return the terminal that a client asks for, and whether it is new.

        One that has ended is found until somebody was told how, and by those who ask for it with
        `create=false` until it is forgotten.

        Raises:
            Refused: There are too many, it is of the other kind, or not there and not to be made.
            OSError: It cannot be started.
        """
        session = self._sessions.get(wanted.session)
        if session is not None and not (session.told and wanted.create):
            if session.tty != wanted.tty:
                raise Refused(409, "The terminal of this name is of the other kind: see tty.")
            if wanted.size is not None and session.exit_code is None:
                session.resize(wanted.size)
            return session, False
        if not wanted.create:
            raise Refused(404, "There is no terminal of this name.")
        return self._start(wanted), True

    def listed(self) -> list[dict[str, object]]:
        """Return what clients are told of all terminals."""
        return [
            {
                "session": session.name,
                "tty": session.tty,
                "attached": session.view is not None,
                "exit_code": session.exit_code,
            }
            for session in self._sessions.values()
        ]

    @contextmanager
    def attached(self, session: Session, position: int) -> Generator[View]:
        """Let a client watch for as long as the block runs; time without one is counted.

        Args:
            session: The terminal.
            position: See `Session.attach`.
        """
        if session.exit_code is None:
            self._stop_timer(session)
        view = session.attach(position, _TAKEN)
        try:
            yield view
        finally:
            session.detach(view)
            if session.exit_code is None and session.view is None:
                self._set_timer(session, IDLE_SECONDS, session.hang_up)

    def remove(self, name: str) -> None:
        """Hang a terminal up, and forget it.

        Raises:
            Refused: There is none of this name.
        """
        session = self._sessions.pop(name, None)
        if session is None:
            raise Refused(404, "There is no terminal of this name.")
        self._stop_timer(session)
        self._say(session, _REMOVED)
        session.hang_up()

    async def close(self) -> None:
        """Let all clients go: the daemon ends, and ends the programs itself."""
        for session in self._sessions.values():
            self._stop_timer(session)
            self._say(session, _ENDS)
        for _ in range(_LOOKS):
            if not any(session.view for session in self._sessions.values()):
                break
            await asyncio.sleep(_LOOK_SECONDS)

    def _start(self, wanted: Wanted) -> Session:
        if sum(session.exit_code is None for session in self._sessions.values()) >= MOST:
            raise Refused(429, f"There are {MOST} terminals already; end one first.")
        environment = {**self._environment, "TERM": wanted.kind if wanted.tty else "dumb"}
        program = start_shell(self._children, environment, wanted.size or Size(), tty=wanted.tty)
        session = Session(wanted.session, program, self._children)
        self._sessions[wanted.session] = session
        # Its client may leave before it has it.
        self._set_timer(session, IDLE_SECONDS, session.hang_up)
        session.ending.add_done_callback(lambda _: self._ended(session))
        return session

    def _ended(self, session: Session) -> None:
        if self._sessions.get(session.name) is not session:
            return
        self._set_timer(session, KEPT_SECONDS, lambda: self._forget(session))
        ended = [found for found in self._sessions.values() if found.exit_code is not None]
        if len(ended) > MOST:
            self._forget(ended[0])

    def _forget(self, session: Session) -> None:
        self._stop_timer(session)
        if self._sessions.get(session.name) is session:
            del self._sessions[session.name]

    def _set_timer(self, session: Session, seconds: float, then: Callable[[], None]) -> None:
        self._stop_timer(session)
        loop = asyncio.get_running_loop()
        self._timers[session] = loop.call_later(seconds, then)

    def _stop_timer(self, session: Session) -> None:
        if timer := self._timers.pop(session, None):
            timer.cancel()

    @staticmethod
    def _say(session: Session, farewell: Farewell) -> None:
        if session.view is not None:
            session.view.dismiss(farewell)
