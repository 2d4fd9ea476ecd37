"""Sessions of the egress proxy, and the process that serves them.

    open ──> folder with a socket that listens ──> proxy ──> its authority, to be trusted
    close ──> nothing is released any more ──> proxy drops its connections ──> folder removed

The process starts with the first session. When it ends by itself it is started again, with the same
sockets, so that no path changes; what waits on them is served then, under a new authority.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.egress.folders import SessionFolder
from tollhouse.vault.egress.messages import Open
from tollhouse.vault.egress.process import start_proxy

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tollhouse.kernel.secret import Secret
    from tollhouse.vault.egress.answers import Answers
    from tollhouse.vault.egress.messages import Begin, Opened
    from tollhouse.vault.egress.process import ProxyProcess
    from tollhouse.vault.types import Recipient

_OPEN_SECONDS: Final = 20.0
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A session that is wanted."""

    id: str
    who: Recipient
    """Whose secrets it receives."""
    key: Secret | None = field(default=None, repr=False)
    """The API key with which it reaches the gateway; without one it does not."""
    password: Secret | None = field(default=None, repr=False)
    """What its clients have to show; None where its socket is for it alone."""
    plain_http: bool = False
    """Whether hosts without secrets may be reached without TLS."""


@dataclass(slots=True)
class _Session:
    opened: Open
    listener: socket.socket
    folder: SessionFolder
    trusted: asyncio.Event


class Egress:
    """Every session of this gateway."""

    def __init__(
        self,
        folder: Path,
        answers: Answers,
        begin: Callable[[], Begin],
        arguments: Sequence[str] = (),
    ) -> None:
        """Begin without a session, and without a process.

        Args:
            folder: Where sessions have their folders.
            answers: Answers what the proxy asks.
            begin: Returns what holds for all sessions.
            arguments: Further ones of the proxy's command.
        """
        self._folder = folder
        self._answers = answers
        self._begin = begin
        self._arguments = arguments
        self._sessions: dict[str, _Session] = {}
        self._proxy: ProxyProcess | None = None
        self._running: asyncio.Task[None] | None = None

    async def open(self, wanted: Wanted) -> Path:
        """Serve a session; one of the same name ends.

        Returns:
            Its folder; see `folders`.

        Raises:
            StartError: Its folder cannot be made.
            Unavailable: The proxy does not start.
        """
        await self.close(wanted.id)
        folder = SessionFolder(self._folder, wanted.id)
        session = _Session(_opened(wanted), folder.make(), folder, asyncio.Event())
        self._sessions[wanted.id] = session
        self._answers.begin(wanted.id, wanted.who)
        if self._running is None:
            self._running = asyncio.create_task(self._keep_running())
        elif self._proxy is not None:
            self._tell(self._proxy, session)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await session.trusted.wait()
        except BaseException as error:
            await self.close(wanted.id)
            if isinstance(error, TimeoutError):
                message = "The egress proxy does not start; the server's log says why."
                raise Unavailable(message) from None
            raise
        return folder.path

    async def close(self, session_id: str) -> None:
        """End a session; nothing is released to it any more."""
        session = self._sessions.pop(session_id, None)
        self._answers.end(session_id)
        if session is None:
            return
        session.listener.close()
        session.folder.remove()
        if self._proxy is not None:
            self._proxy.close(session_id)

    async def stop(self) -> None:
        """End every session, and the process."""
        for session_id in tuple(self._sessions):
            await self.close(session_id)
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
            self._running = None

    async def _keep_running(self) -> None:
        pause = _SHORTEST_PAUSE
        while True:
            began = asyncio.get_running_loop().time()
            reason = await self._run()
            _log.error("egress_proxy_gone", reason=reason)
            lived = asyncio.get_running_loop().time() - began
            pause = _SHORTEST_PAUSE if lived > _LONGEST_PAUSE else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    async def _run(self) -> str:
        """Run one process to its end; return how it ended."""
        try:
            proxy = await start_proxy(self._begin(), self._answers, self._arguments)
        except OSError as error:
            return f"it cannot be started: {error.strerror or error}"
        try:
            self._proxy = proxy
            for session in self._sessions.values():
                self._tell(proxy, session)
            return f"it ended with code {await proxy.listen(self._hear)}"
        finally:
            self._proxy = None
            await proxy.stop()

    @staticmethod
    def _tell(proxy: ProxyProcess, session: _Session) -> None:
        with suppress(OSError):  # it is gone, and the next one is told
            proxy.open(session.opened, session.listener)

    def _hear(self, opened: Opened) -> None:
        session = self._sessions.get(opened.session)
        if session is None:
            return
        session.folder.trust(opened.certificate, self._begin().authorities)
        session.trusted.set()


def _opened(wanted: Wanted) -> Open:
    return Open(
        wanted.id,
        None if wanted.key is None else wanted.key.reveal(),
        None if wanted.password is None else wanted.password.reveal(),
        wanted.plain_http,
    )
