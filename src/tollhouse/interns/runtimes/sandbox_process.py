"""The processes of a sandbox, from the server's side: started, limited, waited for, ended.

    the server ──> outer ──> first of the sandbox ──> the daemon and all that it starts
                    │          └ its end is the end of every process below it
                    └ a process of ours: bubblewrap, or a supervisor

The daemon reads its settings on standard input and ends where that ends. What is left after that
is killed, and only when the kernel says that the first process is gone (by then it has ended all
of its namespace) is the sandbox called ended.

Source: getrlimit(2), pidfd_open(2).
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.interns.runtimes.filesize import descendants
from tollhouse.kernel.subprocesses import start
from tollhouse.vault.egress.session_folder import environment, gateway_environment

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tollhouse.interns.runtimes.base import Launch, SandboxLimits
    from tollhouse.interns.runtimes.cgroups import SandboxCgroups
    from tollhouse.interns.runtimes.quota import DiskWatch

_LOCKED_BYTES: Final = 8 * 1024 * 1024


def process_limits(limits: SandboxLimits, *, memory_is_kept: bool) -> list[tuple[int, int]]:
    """Return what each process of a sandbox is limited to: number of the resource, and value.

    Where nothing better keeps its memory, each process may have as much as all of them together
    should. It is data that is counted, not addresses: Node and Go reserve far more of these than
    they use.
    """
    found = [
        (resource.RLIMIT_NOFILE, limits.open_files),
        (resource.RLIMIT_FSIZE, limits.disk_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_MEMLOCK, _LOCKED_BYTES),
    ]
    return found if memory_is_kept else [*found, (resource.RLIMIT_DATA, limits.memory_bytes)]


_PROGRAM: Final = (sys.executable, "-I", "-S")
_TAIL_BYTES: Final = 8192
_STDERR_SECONDS: Final = 3.0
"""A process that was cut off from those that were killed may hold on to its end for ever."""
_LOOPBACK: Final = "127.0.0.1"
_FORWARDER_PORT: Final = 3128
_PASSES: Final = 20


def own_program(file: str) -> tuple[str, ...]:
    """Return the command of a program that stands beside this file, and imports nothing of ours."""
    return (*_PROGRAM, str(Path(__file__).with_name(file)))


class Descriptors:
    """Descriptors that are closed together, but for those that were released."""

    def __init__(self) -> None:
        self._held: list[int] = []

    def memory(self, content: bytes) -> int:
        """Return a file in memory that is read from its beginning."""
        made = self._hold(os.memfd_create("tollhouse"))
        os.write(made, content)
        os.lseek(made, 0, os.SEEK_SET)
        return made

    def pipe(self) -> tuple[int, int]:
        """Return the end to read from, and the end to write to."""
        read, write = os.pipe()
        return self._hold(read), self._hold(write)

    def release(self, descriptor: int) -> int:
        """Return one that somebody else closes."""
        self._held.remove(descriptor)
        return descriptor

    def drop(self, *descriptors: int) -> None:
        """Close some now."""
        for each in descriptors:
            os.close(self.release(each))

    def close(self) -> None:
        """Close those that are left."""
        while self._held:
            os.close(self._held.pop())

    def _hold(self, descriptor: int) -> int:
        self._held.append(descriptor)
        return descriptor


class StderrTail(asyncio.Protocol):
    """The end of what a program says on standard error."""

    def __init__(self) -> None:
        self._said = bytearray()
        self._over = asyncio.Event()

    async def text(self) -> str:
        """Return it, once nobody is left who could say more, or has taken too long to leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_STDERR_SECONDS):
                await self._over.wait()
        return self._said.decode(errors="replace").strip()

    def data_received(self, data: bytes) -> None:
        """Keep the end."""
        self._said += data
        del self._said[:-_TAIL_BYTES]

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's name
        """Nobody is left who could say more."""
        self._over.set()


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """A program of ours that runs."""

    process: Process
    stdin: asyncio.WriteTransport
    heard: StderrTail

    def tell(
        self,
        launch: Launch,
        workspace: PurePath,
        egress: PurePath,
        limits_enforced: frozenset[str],
        *,
        port: int = _FORWARDER_PORT,
    ) -> None:
        """Tell the daemon what it is told first: its folders as it sees them, and its limits.

        It forwards to the way out from a port of its own loopback.
        """
        proxy = f"http://{_LOOPBACK}:{port}"
        told = {
            **launch.settings,
            "listener": launch.listener.fileno(),
            "workspace": str(workspace),
            "egress_socket": str(egress / "proxy.sock"),
            "egress_port": port,
            "limits_enforced": sorted(limits_enforced),
            "environment": environment(proxy, egress) | gateway_environment(),
        }
        self.stdin.write(msgspec.json.encode(told) + b"\n")

    async def abandon(self) -> str:
        """Kill it with all that it started; return what it said."""
        await _kill_tree(self.process)
        self.stdin.close()
        return await self.heard.text()


async def start_program(
    file: str, plan: Mapping[str, object], passed: Sequence[int]
) -> StartedProgram:
    """Start a program beside this file without our environment; `passed` are its descriptors.

    Raises `OSError` where it cannot be started.
    """
    loop, ends = asyncio.get_running_loop(), Descriptors()
    with closing(ends), ExitStack() as undo:
        # Pipes, and no sockets as asyncio makes them: through a socket a sandbox could send
        # descriptors, and keep them alive in it.
        stdin_end, stdin = ends.pipe()
        stderr, stderr_end = ends.pipe()
        into = os.fdopen(ends.release(stdin), "wb", buffering=0)
        telling, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, into)
        undo.callback(telling.close)
        out_of = os.fdopen(ends.release(stderr), "rb", buffering=0)
        hearing, heard = await loop.connect_read_pipe(StderrTail, out_of)
        undo.callback(hearing.close)
        # Last of all: nothing follows that could fail, or be cancelled, and lose it.
        process = await start(
            *own_program(file),
            msgspec.json.encode(plan).decode(),
            end=_kill_tree,
            stdin=stdin_end,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr_end,
            pass_fds=tuple(passed),
            env={},
        )
        undo.pop_all()
    return StartedProgram(process, telling, heard)


async def _kill_tree(process: Process) -> None:
    """Kill a process with all that it started, and wait until it is gone."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)  # it starts nothing from now on
        # The first of a sandbox does not yet end with it while the sandbox is being made.
        for number in (*descendants(process.pid),):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    await process.wait()


async def read_pipe(descriptor: int) -> bytes:
    """Return all that comes from a pipe until its other end is closed; it owns the descriptor."""
    reader = asyncio.StreamReader()
    pipe = os.fdopen(descriptor, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    try:
        return await reader.read()
    finally:
        transport.close()


def run_filesize(user: int | None, first: int, limit_bytes: int, *, halt: bool) -> None:
    """Set the largest size of files for a sandbox's processes; `halt` stops them meanwhile.

    `user` is who the sandbox runs as; None for the server's. Call it in a thread.
    """
    numbers = (-1 if user is None else user, first, limit_bytes)
    with paused(first) if halt else nullcontext():
        subprocess.run(  # noqa: S603 - our own program
            (*own_program("filesize.py"), *map(str, numbers)),
            env={},
            check=False,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def paused(first: int) -> Generator[None]:
    """Stop all that descends from a process while the block runs; what was stopped before stays so.

    Parents are stopped before their children, and go on after them: no shell learns of it.
    """
    held: list[int] = []
    try:
        for _ in range(_PASSES):  # what is born before its parent stops is found by the next one
            found = [each for each in descendants(first) if each not in {first, *held}]
            running = [each for each in found if not _is_stopped(each)]
            if not running:
                break
            for each in running:
                with suppress(OSError):
                    os.kill(each, signal.SIGSTOP)
                    held.append(each)
        yield
    finally:
        for each in reversed(held):
            with suppress(OSError):
                os.kill(each, signal.SIGCONT)


def _is_stopped(process: int) -> bool:
    with suppress(OSError):
        return "\nState:\tT" in Path(f"/proc/{process}/status").read_text()
    return True  # it is gone


_log = structlog.get_logger(__name__)

_SIGNALLED: Final = 128
"""A program that runs another says so of one that a signal ended: this and the signal's number."""


class InitProcess:
    """The first process of a sandbox."""

    def __init__(self, number: int, parent: int) -> None:
        """Hold on to a parent's child, so that its number can mean no other process.

        Raises `OSError` where it is gone.
        """
        self.number = number
        self._descriptor = os.pidfd_open(number)
        status = Path(f"/proc/{number}/status").read_text()
        if f"\nPPid:\t{parent}\n" not in status:
            os.close(self._descriptor)
            raise ProcessLookupError

    def kill(self) -> None:
        """Kill it, if it is there."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, signal.SIGKILL)

    async def gone(self) -> None:
        """Wait until it is gone, and let go of it."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()
        loop.add_reader(self._descriptor, lambda: ended.done() or ended.set_result(None))
        try:
            await ended
        finally:
            loop.remove_reader(self._descriptor)
            os.close(self._descriptor)


class RunningSandbox:
    """A sandbox that runs."""

    def __init__(  # noqa: PLR0913, PLR0917 - all that belongs to it
        self,
        name: str,
        started: StartedProgram,
        first: InitProcess | None,
        group: SandboxCgroups | None,
        watch: DiskWatch,
        limits_enforced: frozenset[str],
    ) -> None:
        self.name = name
        self.limits_enforced = limits_enforced
        self._started = started
        self._first = first
        self._group = group
        self._watch = watch
        self._stopped = False
        self._ended = asyncio.create_task(self._end())
        self._watching = asyncio.create_task(watch.run(self.kill))

    def when_ended(self, told: Callable[[], None]) -> None:
        """Call something when nothing of it is left."""
        self._ended.add_done_callback(lambda _: told())

    @property
    def disk_full(self) -> bool:
        """Whether it may not write, since its workspace holds too much."""
        return self._watch.full

    def memory_full(self) -> bool:
        """Tell whether its programs use all the memory that they may."""
        return self._group is not None and self._group.memory_full()

    async def wait(self) -> str:
        """Wait until it has ended; return how, in words for its owner."""
        return await asyncio.shield(self._ended)

    async def stop(self, seconds: float) -> None:
        """End it: politely, and after so many seconds by force."""
        self._stopped = True
        self._started.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._ended)
        if not self._ended.done():
            self.kill()
        await asyncio.shield(self._ended)

    def kill(self) -> None:
        """Kill all of it, without waiting for its end."""
        process = self._started.process
        if process.returncode is not None:
            return  # `_end` does the rest
        if self._first is not None:
            self._first.kill()
        else:
            process.terminate()  # a supervisor kills what it started, then ends

    async def _end(self) -> str:
        code = await self._started.process.wait()
        if self._first is not None:
            self._first.kill()
            await self._first.gone()
        self._started.stdin.close()
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        out_of_memory = False
        if self._group is not None:
            out_of_memory = await asyncio.to_thread(self._group.ran_out_of_memory)
            await asyncio.to_thread(self._group.remove)
        how = self._how(code, out_of_memory=out_of_memory)
        said = await self._started.heard.text()
        _log.info("sandbox ended", sandbox=self.name, how=how, said=said)
        return how

    def _how(self, code: int, *, out_of_memory: bool) -> str:
        killed = {-signal.SIGKILL, _SIGNALLED + signal.SIGKILL}
        if self._watch.killed:
            return "it was killed: it went on filling its disk"
        if out_of_memory and code in killed:
            return "it was killed: out of memory"
        if self._stopped:
            return "it was stopped"
        number = -code if code < 0 else code - _SIGNALLED
        if number > 0:
            return f"it was killed by signal {number}"
        return f"it ended with code {code}" if code else "it ended"
