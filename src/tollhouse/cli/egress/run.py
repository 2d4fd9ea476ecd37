"""Runs a program behind the egress proxy: its environment, its signals, its exit code."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from tollhouse.kernel.start import StartError
from tollhouse.sandbox.daemon.forwarder import forwarding
from tollhouse.vault.egress.environment import environment, gateway_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.cli.client import Server

_BY_SIGNAL: Final = 128
_PASSED_ON: Final = (signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C reaches the program by itself: it is in the terminal's foreground, too."""


async def run_behind_proxy(
    server: Server, wanted: Mapping[str, object], command: Sequence[str], *, gateway: bool
) -> int:
    """Run a program to its end.

    Args:
        server: The server on this machine.
        wanted: Which workspace's secrets it receives.
        command: The program and its arguments.
        gateway: Whether clients of OpenAI's and Anthropic's are to use the gateway.

    Returns:
        Its exit code; as a shell says it, where a signal ended it.

    Raises:
        CommandFailed: The session was refused.
        StartError: The program cannot be run.
    """
    async with server.held("/egress-sessions", wanted) as session:
        folder = Path(session["folder"])
        async with forwarding(str(folder / "proxy.sock"), 0, most=None) as port:
            proxy = f"http://tollhouse:{session['password']}@127.0.0.1:{port}"
            given = environment(proxy, folder, os.environ.get("NODE_OPTIONS", ""))
            given |= gateway_environment() if gateway else {}
            return await _run(command, {**os.environ, **given})


async def _run(command: Sequence[str], env: Mapping[str, str]) -> int:
    try:
        process = await asyncio.create_subprocess_exec(*command, env=env)
    except FileNotFoundError:
        raise NoProgram(f"{command[0]}: there is no such program") from None
    except OSError as error:
        message = f"{command[0]}: cannot be run ({error.strerror or error})"
        raise NotExecutable(message) from None
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    for number in _PASSED_ON:
        loop.add_signal_handler(number, _pass_on, process, number)
    code = await process.wait()
    return code if code >= 0 else _BY_SIGNAL - code


def _pass_on(process: asyncio.subprocess.Process, number: int) -> None:
    if process.returncode is None:
        process.send_signal(number)


class NotExecutable(StartError):
    """The program cannot be run; the exit codes are a shell's."""

    exit_code: ClassVar[int] = 126


class NoProgram(StartError):
    """There is no such program."""

    exit_code: ClassVar[int] = 127
