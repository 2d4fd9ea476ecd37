"""Programs that a tool runs: bounded in time and in output, and ended with all that they started.

A program leads a process group of its own, in the agent's session: who kills the agent, and then
its session, has ended the program, too. What it starts carries a mark in its environment, by which
it is found wherever it went.

Source: setpgid(2); proc(5), `/proc/[pid]/environ`.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.agent.tools.excerpts import Excerpt

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_OUTPUT_BYTES: Final = 64 * 1024 * 1024
"""A program that prints more is ended."""
_MARK: Final = "TOLLHOUSE_CALL"
_LINGER_SECONDS: Final = 0.3
"""For the rest of the output, which a program in the background may keep open."""
_PASSES: Final = 100
_PASS_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Finished:
    """What became of a program."""

    output: str
    """Standard output and standard error as one, or the beginning and the end of it."""
    exit_code: int | None
    """None where it was ended: it took too long, or printed too much."""
    reason: str | None
    """Why it was ended."""


async def run_command(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> Finished:
    """Run a program until it ends; what it leaves in the background runs on.

    Nobody reads what that prints: the first time that it does, it gets a SIGPIPE.

    Cancelled, or over a bound, it is killed with all that it has started.

    Raises:
        OSError: It cannot be started.
    """
    mark = secrets.token_hex(16)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            _Heard,
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env={**environment, _MARK: mark},
            process_group=0,
        )
    )
    try:
        transport, heard = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The program may run already: asyncio would end it, but not what it has started.
        await asyncio.shield(_undo(starting, mark))
        raise
    group = transport.get_pid()
    try:
        reason = await _ending(heard, seconds)
        if reason is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await heard.silent.wait()
        else:
            await _end(group, mark)
    except asyncio.CancelledError:
        await asyncio.shield(_end(group, mark))
        raise
    finally:
        transport.close()
    return Finished(heard.output.text(), None if reason else transport.get_returncode(), reason)


class _Heard(asyncio.SubprocessProtocol):
    """What a program prints, and that it has ended."""

    def __init__(self) -> None:
        self.output = Excerpt()
        self.ended = asyncio.Event()
        self.silent = asyncio.Event()
        self.reason: str | None = None

    def pipe_data_received(self, fd: int, data: bytes) -> None:  # noqa: ARG002 - asyncio's name
        self.output.add(data)
        if self.output.size > MOST_OUTPUT_BYTES and self.reason is None:
            self.reason = f"It was ended, since it printed more than {MOST_OUTPUT_BYTES} bytes."
            self.ended.set()

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:  # noqa: ARG002 - the same
        self.silent.set()

    def process_exited(self) -> None:
        self.ended.set()


async def _ending(heard: _Heard, seconds: float) -> str | None:
    """Wait for the end of a program; return why it has to be ended, if it has."""
    try:
        async with asyncio.timeout(seconds):
            await heard.ended.wait()
    except TimeoutError:
        return f"It was ended after {seconds:g} seconds."
    return heard.reason


async def _undo(
    starting: asyncio.Future[tuple[asyncio.SubprocessTransport, _Heard]], mark: str
) -> None:
    with suppress(OSError):  # it could not be started
        transport, _ = await starting
        await _end(transport.get_pid(), mark)
        transport.close()


async def _end(group: int, mark: str) -> None:
    """Kill a group, and all that bears the mark, until there is nothing more of it."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(_PASSES):
        found, unclear = _marked(mark)
        if not found and not unclear:
            return
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        await asyncio.sleep(_PASS_SECONDS)


def _marked(mark: str) -> tuple[list[int], bool]:
    """Return the processes that bear a mark, and whether others may: see `_starts_a_program`."""
    found, unclear = list[int](), False
    wanted = f"{_MARK}={mark}".encode()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            with suppress(OSError):  # it has ended, or is another user's
                environment = Path(entry.path, "environ").read_bytes()
                if wanted in environment.split(b"\0"):
                    found.append(int(entry.name))
                elif not environment and _starts_a_program(entry.path):
                    unclear = True
    return found, unclear


def _starts_a_program(folder: str) -> bool:
    """Tell whether a process without an environment may be within execve(2).

    The kernel shows an empty environment for about a millisecond then. One that has ended, or is
    the kernel's own, has no program.
    """
    try:
        Path(folder, "exe").readlink()
    except OSError:
        return False
    return True
