"""A machine that runs interns: real database, port forwarder and files; fake sandboxes.

A fake sandbox answers as a daemon does, and ends on request; the replies to prompts are scripted
(`fake_daemon`). `kill` does what `kill -9` does to a server: nothing is tidied up.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.component.interns.fake_daemon import FakeDaemon
from tests.component.interns.intern_fixture import InternFixture
from tests.support.memory_blobs import MemoryBlobs
from tests.support.seams.identity import ApiKey, KeyFilter, KeyKind
from tests.support.waiting import WAIT_SECONDS
from tollhouse.interns.actions import ActionTimeouts, ReconcilerActions, ReconcilerDependencies
from tollhouse.interns.logs import InternLogs
from tollhouse.interns.reconciler import Reconciler
from tollhouse.interns.runtimes.base import Launch, RuntimeFailed, SandboxLimits
from tollhouse.interns.sandboxes import PortForwarder, Sandboxes
from tollhouse.interns.service import InternService
from tollhouse.interns.types import Intern, InternState, InternStatus, Operation
from tollhouse.interns.workspaces.archive_store import ArchiveStore
from tollhouse.interns.workspaces.folders import Workspaces, machine_name
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.kernel.pages import Window
from tollhouse.kernel.secret import Secret
from tollhouse.vault.egress.service import SessionSpec

AWAY = 120.0
LIMITS = SandboxLimits(1 << 30, 64, 1.0, 1 << 30, 64, 1_000_000)
TIMEOUTS = ActionTimeouts(boot_seconds=5, suspend_seconds=5, destroy_seconds=5, stop_seconds=0.1)


def hold(patch: pytest.MonkeyPatch, owner: object, name: str) -> asyncio.Event:
    """Have a method never end; return an event that is set once it has begun."""
    begun = asyncio.Event()

    async def never(*_: object, **__: object) -> Any:
        begun.set()
        await asyncio.Event().wait()

    patch.setattr(owner, name, never)
    return begun


class FakeSandbox:
    """Answers on its socket as a daemon does."""

    limits_enforced: frozenset[str] = frozenset()
    disk_full = False

    def memory_full(self) -> bool:
        return False

    def __init__(self, launch: Launch, daemon: FakeDaemon) -> None:
        self.launch = launch
        self.daemon = daemon
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.StreamWriter] = set()

    async def begin(self, *, healthy: bool) -> None:
        if healthy:
            listener = self.launch.listener.dup()
            self._server = await asyncio.start_unix_server(self._answer, sock=listener)

    async def wait(self) -> str:
        return await asyncio.shield(self.ended)

    async def stop(self, seconds: float) -> None:
        del seconds
        self.end("it was stopped")

    def end(self, reason: str) -> None:
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.transport.abort()
        if not self.ended.done():
            self.ended.set_result(reason)

    def slow_stop(self, patch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
        """Have its stop take long; return an event of its begin, and one that ends it."""
        begun, may_end = asyncio.Event(), asyncio.Event()

        async def slow(_: float) -> None:
            begun.set()
            await may_end.wait()
            self.end("it was stopped")

        patch.setattr(self, "stop", slow)
        return begun, may_end

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            await self._serve(reader, writer)
        except (OSError, EOFError):
            return  # the other side has left
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith((b"POST /sessions/", b"PUT /files/")):
            token_hash = str(self.launch.settings["token_sha256"])
            await self.daemon.answer(head, token_hash, reader, writer)
            return
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()


class FakeRuntime:
    """Starts fake sandboxes."""

    name = "fake"

    def __init__(self) -> None:
        self.missing: str | None = None
        self.broken: str | None = None
        self.healthy = True
        self.daemon = FakeDaemon()
        """Receives the prompts and answers for all interns."""
        self.started: list[FakeSandbox] = []
        self.held: asyncio.Event | None = None
        """A start waits for this event, where it is set."""

    def problem(self) -> str | None:
        return self.missing

    def limits_enforced(self, limits: SandboxLimits) -> frozenset[str]:
        del limits
        return frozenset()

    async def start(self, launch: Launch) -> FakeSandbox:
        if self.held is not None:
            await self.held.wait()
        if self.broken is not None:
            raise RuntimeFailed(self.broken)
        sandbox = FakeSandbox(launch, self.daemon)
        await sandbox.begin(healthy=self.healthy)
        self.started.append(sandbox)
        return sandbox

    async def sweep(self) -> None:
        for each in self.started:
            each.end("its server was killed")

    @property
    def running(self) -> list[FakeSandbox]:
        return [each for each in self.started if not each.ended.done()]


class FakeEgress:
    """Records the open egress sessions."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.open_for: dict[str, SessionSpec] = {}
        self.broken: Exception | None = None

    def make_ready(self) -> None:
        pass

    async def open(self, wanted: SessionSpec) -> Path:
        if self.broken is not None:
            raise self.broken
        self.open_for[wanted.id] = wanted
        return self._folder

    async def close(self, session_id: str) -> None:
        self.open_for.pop(session_id, None)


class Machine:
    """A server on a machine; a new one may begin where a killed one was."""

    def __init__(self, interns: InternFixture, folder: Path) -> None:
        self.interns = interns
        self.runtime = FakeRuntime()
        self.blobs = MemoryBlobs()
        self.folder = folder
        self.timeouts = TIMEOUTS
        self.boots_at_once = 4
        self.logs = InternLogs(folder / "logs", interns.clock)
        self._begin()

    def _begin(self) -> None:
        self.egress = FakeEgress(self.folder)
        self.port_forwarder = PortForwarder()
        egress: Any = self.egress
        ids = self.interns.context.ids
        archives = ArchiveStore(self.blobs, ids, self.interns.clock)
        self.sandboxes = Sandboxes(self.folder / "run", egress, self.port_forwarder)
        tools = ReconcilerDependencies(
            runtime=self.runtime,
            limits=LIMITS,
            egress=egress,
            port_forwarder=self.port_forwarder,
            sandboxes=self.sandboxes,
            workspaces=Workspaces(self.folder, archives, machine_name(self.folder, ids), 200_000),
            logs=self.logs,
            timeouts=self.timeouts,
        )
        self.workspaces = tools.workspaces
        context = self.interns.context
        self.reconciler = Reconciler(
            context,
            tools,
            ReconcilerActions(context, tools, boots_at_once=self.boots_at_once),
            lease_seconds=30,
            away_seconds=AWAY,
            round_seconds=0.05,
        )
        self.service = InternService(context, self.reconciler, self.logs)

    async def start(self) -> None:
        await self.reconciler.clean_up()
        self.reconciler.start()

    async def stop(self) -> None:
        """Stop the server; fails at a deadline, since the test's own timeout is over by then."""
        async with asyncio.timeout(WAIT_SECONDS):
            await self.reconciler.stop(0.1)
            await self.port_forwarder.stop()

    async def kill(self) -> None:
        """End this server as `kill -9` does, and begin another in its place."""
        reconciler: Any = self.reconciler
        reconciler._stopping = True  # noqa: SLF001 - nothing of it is tidied
        tasks = [*reconciler._looked_after.values(), reconciler._main, reconciler._keeper]  # noqa: SLF001
        tasks.append(reconciler._sweeper)  # noqa: SLF001
        for task in tasks:
            if task is not None:
                task.cancel()
        async with asyncio.timeout(WAIT_SECONDS):
            ended = (task for task in tasks if task is not None)
            await asyncio.gather(*ended, return_exceptions=True)
        await self.port_forwarder.stop()
        await self.runtime.sweep()
        self._begin()
        await self.start()

    # What tests ask and wait for

    async def request(
        self, operation: Operation, intern: Intern, *, acknowledged: bool = False
    ) -> None:
        caller = self.interns.caller
        async with asyncio.timeout(WAIT_SECONDS):
            match operation:
                case Operation.PROVISION:
                    await self.service.provision(caller, intern.id)
                case Operation.SUSPEND:
                    await self.service.suspend(caller, intern.id)
                case Operation.DELETE:
                    await self.service.delete(caller, intern.id, acknowledged=acknowledged)
                case _:
                    raise AssertionError(operation)

    async def until(self, intern: Intern, is_there: Callable[[Intern], bool]) -> Intern:
        return await self.interns.until(intern, is_there)

    async def until_gone(self, intern: Intern) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.interns.find(intern.id) is not None:
                await asyncio.sleep(0.005)

    def workspace_names(self) -> list[str]:
        """Return the names of all workspaces, also of those put aside or retired."""
        return [path.name for path in self.folder.glob("files/*")]

    async def until_status(self, intern: Intern, status: InternStatus) -> Intern:
        return await self.until(intern, lambda found: found.state.status is status)

    async def until_state(self, intern: Intern, state: InternState) -> Intern:
        return await self.until(intern, lambda found: found.state == state)

    async def running_intern(self, name: str = "ada") -> Intern:
        intern = await self.interns.create(name, provision=True)
        return await self.until_status(intern, InternStatus.RUNNING)

    async def active_key_hashes(self) -> list[str]:
        """Return the hashes of the interns' keys that still authenticate."""
        return [each.hash for each in await self.stored_keys() if each.secret_hash is not None]

    async def stored_keys(self) -> list[ApiKey]:
        """Return all keys of interns, disabled ones too."""
        interns = self.interns
        account = interns.caller.account_id
        wanted = KeyFilter(account, None, include_disabled=True, unexpired_at=None)
        async with interns.database.reading() as read:
            page = await interns.vault.identity.keys(read, wanted, Window(0, 100))
        return [each for each in page.items if each.kind is KeyKind.INTERN]

    async def accepts_key(self, text: Secret) -> bool:
        try:
            await self.interns.vault.authenticator.authenticate(text.reveal())
        except Unauthenticated:
            return False
        return True

    def key_text(self, intern: Intern) -> Secret:
        """Return the text of a running intern's key, which its proxy has."""
        found = self.egress.open_for[intern.id].key
        assert found is not None
        return found


@asynccontextmanager
async def running_machine(interns: InternFixture, folder: Path) -> AsyncGenerator[Machine]:
    """Run a server with interns in a workspace that has a default model."""
    machine = Machine(interns, folder)
    await machine.start()
    try:
        yield machine
    finally:
        await machine.stop()
