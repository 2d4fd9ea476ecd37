"""Sessions of the egress proxy, and the process that serves them.

    open ──> folder with a socket that listens ──> proxy ──> its authority, to be trusted
    close ──> nothing is released any more ──> proxy drops its connections ──> folder removed

The process starts with the first session, or when one is expected. When it ends by itself it is
started again, with the same sockets, so that no path changes; what waits on them is served then,
under a new authority.
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
    reads: tuple[str, ...] = ()
    """Paths of the gateway that it may read, besides the routes that every session has."""


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
        self._stopped = False

    def make_ready(self) -> None:
        """Start the process now, so that the first session need not wait for all of that."""
        if self._running is None and not self._stopped:
            self._running = asyncio.create_task(self._keep_running())

    async def open(self, wanted: Wanted) -> Path:
        """Serve a session; one of the same name ends.

        Returns:
            Its folder; see `folders`.

        Raises:
            Unavailable: Its folder cannot be made, or the proxy does not start.
        """
        if self._stopped:
            message = "The server is stopping."
            raise Unavailable(message)
        await self.close(wanted.id)
        folder = SessionFolder(self._folder, wanted.id)
        session = _Session(_opened(wanted), folder.make(), folder, asyncio.Event())
        self._sessions[wanted.id] = session
        self._answers.begin(wanted.id, wanted.who)
        self.make_ready()
        if self._proxy is not None:
            await self._tell(self._proxy, session)
        try:
            async with asyncio.timeout(_OPEN_SECONDS):
                await session.trusted.wait()
        except TimeoutError:
            message = "The egress proxy does not start; the server's log says why."
            raise Unavailable(message) from None
        finally:
            if not session.trusted.is_set() and self._sessions.get(wanted.id) is session:
                await self.close(wanted.id)
        if self._sessions.get(wanted.id) is not session:
            message = "The session was ended before it had begun."
            raise Unavailable(message)
        return folder.path

    async def close(self, session_id: str) -> None:
        """End a session; nothing is released to it any more."""
        session = self._sessions.pop(session_id, None)
        self._answers.end(session_id)
        if session is None:
            return
        session.listener.close()
        session.folder.remove()
        session.trusted.set()  # who waits for it looks whether it is still there
        if self._proxy is not None:
            self._proxy.close(session_id)

    def left_behind(self) -> list[Path]:
        """Return folders of sessions that no running server has begun."""
        ours = {session.folder.path for session in self._sessions.values()}
        found = self._folder.iterdir() if self._folder.is_dir() else ()
        return [path for path in found if path not in ours]

    async def stop(self) -> None:
        """End every session, and the process; none can be opened any more."""
        self._stopped = True
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
            try:
                reason = await self._run()
            except Exception as error:  # noqa: BLE001 - the keeper's edge: it is started again
                reason = type(error).__name__
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
            for session in tuple(self._sessions.values()):
                await self._tell(proxy, session)
            return await proxy.listen(self._hear)
        finally:
            self._proxy = None
            await proxy.stop()

    async def _tell(self, proxy: ProxyProcess, session: _Session) -> None:
        if self._sessions.get(session.opened.session) is session:
            with suppress(OSError):  # it is gone, and the next one is told
                await proxy.open(session.opened, session.listener)

    def _hear(self, opened: Opened) -> None:
        session = self._sessions.get(opened.session)
        if session is None:
            return
        try:
            session.folder.trust(opened.certificate, self._begin().authorities)
        except OSError as error:
            _log.error("egress_trust_not_written", errno=error.errno)
        else:
            session.trusted.set()


def _opened(wanted: Wanted) -> Open:
    return Open(
        wanted.id,
        None if wanted.key is None else wanted.key.reveal(),
        None if wanted.password is None else wanted.password.reveal(),
        wanted.plain_http,
        list(wanted.reads),
    )
