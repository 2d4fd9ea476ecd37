"""Starting a program for a sandbox: its descriptors, its plan, its settings. Of every driver."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.interns.runtimes.filesize import below
from tollhouse.kernel.subprocesses import start
from tollhouse.vault.egress.environment import environment, gateway_environment

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Generator, Mapping, Sequence
    from pathlib import PurePath

    from tollhouse.interns.runtimes.base import Launch

_PROGRAM: Final = (sys.executable, "-I", "-S")
_TAIL_BYTES: Final = 8192
_SAYING_SECONDS: Final = 3.0
"""A process that was cut off from those that were killed may hold on to its end for ever."""
_LOOPBACK: Final = "127.0.0.1"
_PASSES: Final = 20


def own_program(file: str) -> tuple[str, ...]:
    """Return the command of a program that stands beside this file, and imports nothing of ours."""
    return (*_PROGRAM, str(Path(__file__).with_name(file)))


class Descriptors:
    """Descriptors that are closed together, but for those that were given away."""

    def __init__(self) -> None:
        """Hold none."""
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

    def give(self, descriptor: int) -> int:
        """Return one that somebody else closes."""
        self._held.remove(descriptor)
        return descriptor

    def drop(self, *descriptors: int) -> None:
        """Close some now."""
        for each in descriptors:
            os.close(self.give(each))

    def close(self) -> None:
        """Close those that are left."""
        while self._held:
            os.close(self._held.pop())

    def _hold(self, descriptor: int) -> int:
        self._held.append(descriptor)
        return descriptor


class Tail(asyncio.Protocol):
    """The end of what a program says on standard error."""

    def __init__(self) -> None:
        """Nothing was said yet."""
        self._said = bytearray()
        self._over = asyncio.Event()

    async def text(self) -> str:
        """Return it, once nobody is left who could say more, or has taken too long to leave."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_SAYING_SECONDS):
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
class Seen:
    """Where a daemon finds what it needs."""

    workspace: PurePath
    egress: PurePath
    """The folder with the way out."""
    limits_enforced: frozenset[str]
    """What it may tell of the sandbox; see `Sandbox`."""
    port: int = 3128
    """Where it is to forward from, of its own loopback."""


@dataclass(frozen=True, slots=True)
class Started:
    """A program of ours that runs."""

    process: Process
    stdin: asyncio.WriteTransport
    heard: Tail

    def tell(self, launch: Launch, seen: Seen) -> None:
        """Tell the daemon what it is told first."""
        proxy = f"http://{_LOOPBACK}:{seen.port}"
        told = {
            **launch.settings,
            "listener": launch.listener.fileno(),
            "workspace": str(seen.workspace),
            "egress_socket": str(seen.egress / "proxy.sock"),
            "egress_port": seen.port,
            "limits_enforced": sorted(seen.limits_enforced),
            "environment": environment(proxy, seen.egress) | gateway_environment(),
        }
        self.stdin.write(msgspec.json.encode(told) + b"\n")

    async def abandon(self) -> str:
        """Kill it with all that it started; return what it said."""
        await _end_all(self.process)
        self.stdin.close()
        return await self.heard.text()


async def start_program(file: str, plan: Mapping[str, object], passed: Sequence[int]) -> Started:
    """Start one of the programs that stand beside this file, without our environment.

    Args:
        file: Its name.
        plan: What it is told.
        passed: Descriptors that it gets, under the same numbers.

    Raises:
        OSError: It cannot be started.
    """
    loop, ends = asyncio.get_running_loop(), Descriptors()
    with closing(ends), ExitStack() as undo:
        # Pipes, and no sockets as asyncio makes them: through a socket a sandbox could send
        # descriptors, and keep them alive in it.
        stdin_end, stdin = ends.pipe()
        stderr, stderr_end = ends.pipe()
        into = os.fdopen(ends.give(stdin), "wb", buffering=0)
        telling, _ = await loop.connect_write_pipe(asyncio.BaseProtocol, into)
        undo.callback(telling.close)
        out_of = os.fdopen(ends.give(stderr), "rb", buffering=0)
        hearing, heard = await loop.connect_read_pipe(Tail, out_of)
        undo.callback(hearing.close)
        # Last of all: nothing follows that could fail, or be cancelled, and lose it.
        process = await start(
            *own_program(file),
            msgspec.json.encode(plan).decode(),
            end=_end_all,
            stdin=stdin_end,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=stderr_end,
            pass_fds=tuple(passed),
            env={},
        )
        undo.pop_all()
    return Started(process, telling, heard)


async def _end_all(process: Process) -> None:
    """Kill a process with all that it started, and wait until it is gone."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGSTOP)  # it starts nothing from now on
        # The first of a sandbox does not yet end with it while the sandbox is being made.
        for number in (*below(process.pid),):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
    await process.wait()


async def everything(descriptor: int) -> bytes:
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
    """Set the largest size of files for a sandbox's processes. To be called in a thread.

    Args:
        user: That the sandbox runs as; None for the server's.
        first: Its first process.
        limit_bytes: The size.
        halt: Whether its processes stand still until it is set.
    """
    numbers = (-1 if user is None else user, first, limit_bytes)
    with halted(first) if halt else nullcontext():
        subprocess.run(  # noqa: S603 - our own program
            (*own_program("filesize.py"), *map(str, numbers)),
            env={},
            check=False,
            stdin=subprocess.DEVNULL,
        )


@contextmanager
def halted(first: int) -> Generator[None]:
    """Stop all that descends from a process while the block runs; what was stopped before stays so.

    Parents are stopped before their children, and go on after them: no shell learns of it.
    """
    held: list[int] = []
    try:
        for _ in range(_PASSES):  # what is born before its parent stops is found by the next one
            found = [each for each in below(first) if each not in {first, *held}]
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
