"""The processes of a daemon."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.component.sandbox.daemon.daemon_process import DaemonProcess
from tests.support.waiting import until


def is_running(daemon: DaemonProcess, word: str) -> bool:
    """Tell whether a process of the daemon has a word in its arguments."""
    return any(word in line for _, line in _lines(daemon))


async def kill_agent(daemon: DaemonProcess) -> None:
    """Kill the agent, and nothing else; return once the daemon knows that it is gone."""
    agents = [number for number, line in _lines(daemon) if "sandbox.agent.main" in line]
    for number in agents:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    # The kernel forgets a process when its parent has waited for it.
    await until(lambda: not any(Path(f"/proc/{number}").exists() for number in agents))


def kill_remaining(daemon: DaemonProcess) -> None:
    """Kill what a killed daemon has left running, as the end of its sandbox does."""
    for number in daemon.processes():
        with suppress(ProcessLookupError):  # it has just ended by itself
            os.kill(number, signal.SIGKILL)


def _lines(daemon: DaemonProcess) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for number in daemon.processes():
        with suppress(OSError):
            line = Path(f"/proc/{number}/cmdline").read_bytes().decode(errors="replace")
            found.append((number, line))
    return found
