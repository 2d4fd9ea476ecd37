"""The shell, and the programs that it runs: bounded in time and output, with or without network.

A program leads a process group of its own, in the agent's session: killing the agent and then its
session ends the program, too. What it starts carries a mark in its environment, by which it is
found wherever it went.

A command without network has a filter of system calls; where there is none for the kind of
machine, the command is not run at all.

Source: setpgid(2); proc(5), `/proc/[pid]/environ`; socket(2), seccomp(2).
"""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import secrets
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.context import (
    Excerpt,
    PermissionVerdict,
    ToolContext,
    require_approval,
)
from tollhouse.sandbox.seccomp import MACHINES, build_filter, if_equal, refuse

SCOPE: Final = "shell"
"""Of the permission for commands with network."""
LONGEST_SECONDS: Final = 3600
MOST_OUTPUT_BYTES: Final = 64 * 1024 * 1024
"""A program that prints more is ended."""
_MARK: Final = "TOLLHOUSE_CALL"
_LINGER_SECONDS: Final = 0.3
"""How long to wait for more output, which a program in the background may keep open."""
_PASSES: Final = 100
_PASS_SECONDS: Final = 0.01
_REFUSED: Final = (
    "socket",  # of whatever kind: the way out has a socket in the file system, too
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),  # they open sockets past a filter
    *("ptrace", "process_vm_readv", "process_vm_writev", "pidfd_getfd"),  # others' sockets
)
_LAUNCHER: Final = str(Path(__file__).with_name("no_network.py"))


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a program ended."""

    output: str
    """Standard output and standard error together, or the beginning and the end of it."""
    exit_code: int | None
    """None if it was killed, for a `reason`: it took too long, or printed too much."""
    reason: str | None


async def run_command(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], seconds: float
) -> CommandResult:
    """Run a program until it ends; what it leaves in the background runs on.

    Nobody reads what that prints: the first time that it does, it gets a SIGPIPE. Cancelled, or
    over a bound, the program is killed with all that it has started.
    """
    mark = secrets.token_hex(16)
    loop = asyncio.get_running_loop()
    starting = asyncio.ensure_future(
        loop.subprocess_exec(
            _OutputProtocol,
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
        transport, protocol = await asyncio.shield(starting)
    except asyncio.CancelledError:
        # The program may run already: asyncio would end it, but not what it has started.
        await asyncio.shield(_kill_started(starting, mark))
        raise
    group = transport.get_pid()
    try:
        reason = await _wait_for_end(protocol, seconds)
        if reason is None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LINGER_SECONDS):
                    await protocol.silent.wait()
        else:
            await _kill_all(group, mark)
    except asyncio.CancelledError:
        await asyncio.shield(_kill_all(group, mark))
        raise
    finally:
        transport.close()
    exit_code = None if reason else transport.get_returncode()
    return CommandResult(protocol.output.text(), exit_code, reason)


class _OutputProtocol(asyncio.SubprocessProtocol):
    """Collects what a program prints, and notes its end."""

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


async def _wait_for_end(protocol: _OutputProtocol, seconds: float) -> str | None:
    """Wait for the end of a program; return why it has to be killed, if it has."""
    try:
        async with asyncio.timeout(seconds):
            await protocol.ended.wait()
    except TimeoutError:
        return f"It was ended after {seconds:g} seconds."
    return protocol.reason


async def _kill_started(
    starting: asyncio.Future[tuple[asyncio.SubprocessTransport, _OutputProtocol]], mark: str
) -> None:
    with suppress(OSError):  # it could not be started
        transport, _ = await starting
        await _kill_all(transport.get_pid(), mark)
        transport.close()


async def _kill_all(group: int, mark: str) -> None:
    """Kill a group and all processes with the mark, until none is left."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(_PASSES):
        found, unclear = _marked_processes(mark)
        if not found and not unclear:
            return
        for process in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)
        await asyncio.sleep(_PASS_SECONDS)


def _marked_processes(mark: str) -> tuple[list[int], bool]:
    """Return the processes with a mark, and whether others may have it: see `_starts_a_program`."""
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


@cache
def network_filter(machine: str) -> bytes:
    """Return the filter for a kind of machine, as `platform.machine()` names it.

    Pairs of sockets are allowed: they lead nowhere, and programs speak to their children by them.
    A kind without a filter is a `KeyError`.
    """
    found = MACHINES[machine]
    refused = (if_equal(found.numbers[name], refuse(errno.EACCES)) for name in _REFUSED)
    return build_filter(found, chain.from_iterable(refused))


async def shell(
    ctx: RunContext[ToolContext],
    command: str,
    network: bool = False,  # noqa: FBT001, FBT002 - the model names it
    timeout_seconds: Annotated[int, Field(ge=1, le=LONGEST_SECONDS)] = 120,
) -> str:
    """Run a command with bash, in the workspace, and return what it prints and its exit code.

    Nothing is typed into it. Of long output you get the beginning and the end. What it leaves in
    the background runs on; redirect the output of that, or it ends as soon as it prints.

    Args:
        ctx: Of the call.
        command: What to run; it may have several lines.
        network: Whether it needs the network.
        timeout_seconds: After so many seconds it is ended.
    """
    deps = ctx.deps
    line = [deps.environment["SHELL"], "-lc", command]
    if deps.manual:
        if network:
            require_approval(ctx, SCOPE, command)
        else:
            line = _without_network(line)
    try:
        done = await run_command(line, deps.workspace, deps.environment, timeout_seconds)
    except (OSError, ValueError) as error:
        raise ToolFailed(f"It cannot be run: {error}") from None
    output = done.output or "(no output)"
    if done.reason is not None:
        raise ToolFailed(f"{output}\n[{done.reason}]")
    hint = _hint(deps, network=network) if done.exit_code else ""
    return f"{output}\n[exit code {done.exit_code}{hint}]"


def _without_network(command: Sequence[str]) -> list[str]:
    """Return a command that runs another one, and all that it starts, without network."""
    try:
        code = network_filter(platform.machine())
    except KeyError:
        raise ToolFailed(
            "Commands cannot be kept from the network on this machine; ask with network."
        ) from None
    return [sys.executable, "-I", "-S", _LAUNCHER, code.hex(), *command]


def _hint(deps: ToolContext, *, network: bool) -> str:
    """Return what helps a model whose command may have failed for lack of network."""
    if not deps.manual or network:
        return ""
    if deps.verdict(SCOPE) is PermissionVerdict.REJECT:
        return "; commands have no network here"
    return "; it had no network: ask for that with network=true if it was that"
