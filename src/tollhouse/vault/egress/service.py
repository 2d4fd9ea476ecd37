"""Sessions of the egress proxy, and the process that serves them.

    open ──> folder with a socket that listens ──> proxy ──> its authority, to be trusted
    close ──> nothing is released any more ──> proxy drops its connections ──> folder removed

The process starts with the first session, or when one is expected. When it ends by itself it is
started again, with the same sockets, so that no path changes; what waits on them is served then,
under a new authority.
"""

import asyncio
import shutil
import socket
from asyncio.subprocess import Process
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import structlog

from tollhouse.identity.access import check_programme
from tollhouse.identity.types import Manager, NewKey, Workspace
from tollhouse.kernel.channel import ChannelClosed, ChannelError, MessageTooLong
from tollhouse.kernel.errors import NotFound, Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.kernel.subprocesses import own_module, start
from tollhouse.vault.egress.messages import (
    FROM_PROXY,
    OPEN,
    TO_PROXY,
    CloseSession,
    OpenSession,
    SessionOpened,
    StartProxy,
)
from tollhouse.vault.egress.secret_broker import Question, SecretBrokerServer
from tollhouse.vault.egress.session_folder import SessionFolder
from tollhouse.vault.service import VaultContext
from tollhouse.vault.types import Recipient

COMMAND: Final = own_module("tollhouse.apps.egress")
_END_SECONDS: Final = 5.0
_FULL_SECONDS: Final = 0.01
_log = structlog.get_logger(__name__)


@dataclass(eq=False, slots=True)
class ProxyProcess:
    """A running proxy."""

    process: Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    doors: socket.socket
    """Takes sessions, each with its listening socket."""
    answers: SecretBrokerServer
    _answering: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def open(self, opened: OpenSession, listener: socket.socket) -> None:
        """Tell it of a session, as soon as it takes one; an `OSError` says that it is gone."""
        try:
            message = OPEN.encode(opened)
        except MessageTooLong as error:
            raise OSError from error
        while True:
            try:
                socket.send_fds(self.doors, [message], [listener.fileno()])
            except BlockingIOError:
                await asyncio.sleep(_FULL_SECONDS)
            else:
                return

    def close(self, session: str) -> None:
        """Tell it that a session has ended."""
        if not self.writer.is_closing():
            self.writer.write(TO_PROXY.encode(CloseSession(session)))

    async def listen(self, heard: Callable[[SessionOpened], None]) -> str:
        """Answer what it asks until it is gone, or breaks the protocol; return how it ended."""
        messages = FROM_PROXY.reader(self.reader)
        while True:
            try:
                message = await messages.receive()
            except (ChannelClosed, OSError):
                return f"it ended with code {await self._ended()}"
            except ChannelError as error:
                return f"it broke the protocol: {error}"
            if isinstance(message, SessionOpened):
                heard(message)
            else:
                task = asyncio.create_task(self._answer(message))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    async def _ended(self) -> int:
        """Return its exit code; it is killed if it does not end in time."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                return await self.process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                self.process.kill()
            return await self.process.wait()

    async def stop(self) -> None:
        """End it, and wait until it is gone."""
        self.writer.close()  # it ends with us
        self.doors.close()
        await self._ended()
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, question: Question) -> None:
        answer = await self.answers.answer(question)
        if not self.writer.is_closing():
            self.writer.write(TO_PROXY.encode(answer))


async def start_proxy(
    begin: StartProxy, answers: SecretBrokerServer, arguments: Sequence[str]
) -> ProxyProcess:
    """Start a proxy, with further arguments of its command; an `OSError` says that it cannot be."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    our_doors, their_doors = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link = None
    try:
        ours.setblocking(False)  # noqa: FBT003 - its only form
        our_doors.setblocking(False)  # noqa: FBT003 - its only form
        link = await asyncio.open_unix_connection(sock=ours)
        process = await start(
            *COMMAND,
            *("--link", str(theirs.fileno()), "--doors", str(their_doors.fileno())),
            *arguments,
            pass_fds=(theirs.fileno(), their_doors.fileno()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
        )
    except BaseException:
        if link is not None:
            link[1].transport.abort()  # it holds the socket
        ours.close()
        our_doors.close()
        raise
    finally:
        theirs.close()
        their_doors.close()
    link[1].write(TO_PROXY.encode(begin))
    return ProxyProcess(process, *link, our_doors, answers)


_OPEN_SECONDS: Final = 20.0
_SHORTEST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """A session that is wanted; see `OpenSession`."""

    id: str
    who: Recipient
    """Whose secrets it receives."""
    key: Secret | None = field(default=None, repr=False)
    """The API key with which it reaches the gateway; without one it does not."""
    password: Secret | None = field(default=None, repr=False)
    plain_http: bool = False
    reads: tuple[str, ...] = ()


@dataclass(slots=True)
class _Session:
    opened: OpenSession
    listener: socket.socket
    folder: SessionFolder
    trusted: asyncio.Event


@dataclass(eq=False, repr=False)
class EgressService:
    """Every session of this gateway, each with a folder of its own in `folder`."""

    folder: Path
    answers: SecretBrokerServer
    begin: Callable[[], StartProxy]
    """Returns what holds for all sessions."""
    arguments: Sequence[str] = ()
    """Further ones of the proxy's command."""
    _sessions: dict[str, _Session] = field(default_factory=dict[str, _Session])
    _proxy: ProxyProcess | None = None
    _running: asyncio.Task[None] | None = None
    _stopped: bool = False

    def make_ready(self) -> None:
        """Start the process now, so that the first session need not wait for all of that."""
        if self._running is None and not self._stopped:
            self._running = asyncio.create_task(self._keep_running())

    async def open(self, wanted: SessionSpec) -> Path:
        """Serve a session, and return its folder (see `session_folder`); one of the same id ends.

        Raises `Unavailable` where its folder cannot be made, or the proxy does not start.
        """
        if self._stopped:
            raise Unavailable("The server is stopping.")
        await self.close(wanted.id)
        folder = SessionFolder(self.folder, wanted.id)
        opened = OpenSession(
            wanted.id,
            None if wanted.key is None else wanted.key.reveal(),
            None if wanted.password is None else wanted.password.reveal(),
            wanted.plain_http,
            list(wanted.reads),
        )
        session = _Session(opened, folder.make(), folder, asyncio.Event())
        self._sessions[wanted.id] = session
        self.answers.begin(wanted.id, wanted.who)
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
            raise Unavailable("The session was ended before it had begun.")
        return folder.path

    async def close(self, session_id: str) -> None:
        """End a session; nothing is released to it any more."""
        session = self._sessions.pop(session_id, None)
        self.answers.end(session_id)
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
        found = self.folder.iterdir() if self.folder.is_dir() else ()
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
            proxy = await start_proxy(self.begin(), self.answers, self.arguments)
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

    def _hear(self, opened: SessionOpened) -> None:
        session = self._sessions.get(opened.session)
        if session is None:
            return
        try:
            session.folder.trust(opened.certificate, self.begin().authorities)
        except OSError as error:
            _log.error("egress_trust_not_written", errno=error.errno)
        else:
            session.trusted.set()


_KEY_NAME: Final = "egress run"
_KEY_FILE: Final = "key-hash"
"""Tells the next server which key to revoke, where this one is killed."""
_LONGEST: Final = timedelta(days=30)
"""A key that was left behind by a server that was killed ends by itself."""


@dataclass(frozen=True, slots=True)
class ProgramSession:
    """A session of a program; `who` began it."""

    session: str
    folder: Path
    password: Secret = field(repr=False)
    """What its requests to the proxy have to show."""
    who: Manager
    key_hash: str
    """Of its key for the gateway."""


@dataclass(eq=False, repr=False)
class ProgramSessions:
    """Sessions of programs that somebody starts: they receive the secrets of a whole workspace.

    Each has an API key of its own for the gateway, made for it and revoked with it; what it spends
    is the workspace's like any other key's.
    """

    context: VaultContext
    egress: EgressService
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once all sessions have to end."""
    _ending: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])

    async def begin(self, who: Manager, workspace: Workspace) -> ProgramSession:
        """Serve a program, until `leave`.

        Raises `NotFound` where the workspace may have no vault, and `Unavailable` where the proxy
        does not start.
        """
        context = self.context
        async with context.database.reading() as read:
            check_programme(await context.identity.switches(read, workspace.id))
        until = context.clock.now() + _LONGEST
        new_key = NewKey(_KEY_NAME, workspace_id=workspace.id, expires_at=until)
        async with context.database.writing() as write:
            issued = await context.identity.create_key(write, who, workspace.account_id, new_key)
        session, password = context.ids.uuid(), Secret(context.ids.key_material())
        recipient = Recipient(workspace.account_id, workspace.id, None, who.actor)
        wanted = SessionSpec(
            session, recipient, Secret(issued.text), password, plain_http=workspace.plain_http
        )
        try:
            folder = await self.egress.open(wanted)
            (folder / _KEY_FILE).write_text(issued.key.hash)
        except BaseException:
            self._end_soon(self._revoke(who, issued.key.hash))
            raise
        return ProgramSession(session, folder, password, who, issued.key.hash)

    async def sweep(self, who: Manager) -> None:
        """Revoke the keys, and remove the folders, of sessions that a killed server left."""
        for folder in self.egress.left_behind():
            note = folder / _KEY_FILE
            if note.is_file():
                await self._revoke(who, note.read_text())
            shutil.rmtree(folder, ignore_errors=True)

    def leave(self, program: ProgramSession) -> None:
        """End a session; whoever says so need not wait, and may be cancelled."""
        self._end_soon(self._end(program))

    async def stop(self) -> None:
        """Have all sessions end, and wait for what is ending."""
        self.stopping.set()
        await asyncio.gather(*self._ending)

    def _end_soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, program: ProgramSession) -> None:
        await self.egress.close(program.session)
        await self._revoke(program.who, program.key_hash)

    async def _revoke(self, who: Manager, key_hash: str) -> None:
        try:
            async with self.context.database.writing() as write:
                await self.context.identity.delete_key(write, who, key_hash)
        except NotFound:
            return  # somebody did that already
        except Exception as error:  # noqa: BLE001 - the session's end: nobody waits for it
            _log.error("egress_key_not_revoked", error=type(error).__name__)
