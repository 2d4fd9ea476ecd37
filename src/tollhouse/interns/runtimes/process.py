"""No sandbox at all: the daemon as a process of the server's user, on the server's network.

For trying things out on a machine where everybody is trusted, and nothing else: what an intern
runs can read whatever the server can read, keys and data included. Only a setting that names it
chooses it; nothing falls back to it. Each process is limited by itself.
"""

from __future__ import annotations

import os
import socket
import sys
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import structlog

import tollhouse
from tollhouse.interns.runtimes.base import Launch, RuntimeFailed, Sandbox, SandboxLimits
from tollhouse.interns.runtimes.command import daemon_command, program_environment
from tollhouse.interns.runtimes.quota import DiskWatch, measure_workspace
from tollhouse.interns.runtimes.sandbox_process import (
    RunningSandbox,
    process_limits,
    run_filesize,
    start_program,
)
from tollhouse.interns.workspaces.jobs import WorkspaceJobs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)

_KEPT: Final = frozenset({"open_files", "disk_bytes", "files"})


class ProcessRuntime:
    """Starts daemons without a sandbox."""

    name = "process"

    def __init__(self, clock: Clock, command: Sequence[str] | None = None) -> None:
        """Warn whoever reads the log; `command` stands in for the daemon."""
        self._clock = clock
        self._command = command
        self._jobs = WorkspaceJobs()
        self._running: set[str] = set()
        _log.warning(
            "INTERNS ARE NOT ISOLATED: what they run can read and change all that this server can,"
            " its keys and data included. Use the runtime `bubblewrap` wherever that matters."
        )

    def problem(self) -> str | None:
        """See `Runtime`."""
        return None if sys.platform == "linux" else "interns need Linux"

    def limits_enforced(self, limits: SandboxLimits) -> frozenset[str]:  # noqa: ARG002 - the port's
        """Return which limits it keeps, which is the same everywhere."""
        return _KEPT

    async def start(self, launch: Launch) -> Sandbox:
        """See `Runtime`."""
        if launch.name in self._running:
            raise RuntimeFailed("the sandbox runs already")
        _log.warning("intern is not isolated", sandbox=launch.name)
        try:
            started = await start_program(
                "launcher.py", self._plan(launch), (launch.listener.fileno(),)
            )
        except OSError as error:
            _log.warning("sandbox not started", sandbox=launch.name, reason=str(error))
            message = "the machine refused to start the sandbox; its operator finds more in the log"
            raise RuntimeFailed(message) from None
        self._running.add(launch.name)
        started.tell(launch, launch.workspace, launch.egress, _KEPT, port=_free_port())
        first = started.process.pid
        watch = DiskWatch(
            launch,
            partial(measure_workspace, self._jobs, launch.workspace, first),
            partial(run_filesize, None, first),
            self._clock,
        )
        sandbox = RunningSandbox(launch.name, started, None, None, watch, _KEPT)
        sandbox.when_ended(lambda: self._running.discard(launch.name))
        return sandbox

    async def sweep(self) -> None:
        """Do nothing: a supervisor ends with the server, and what it started with it."""

    def _plan(self, launch: Launch) -> dict[str, object]:
        source = str(Path(tollhouse.__file__).resolve().parent.parent)
        path = os.environ.get("PATH", os.defpath)
        return {
            "parent": os.getpid(),
            "limits": process_limits(launch.limits, memory_is_kept=False),
            "command": self._command or daemon_command(Path(sys.executable), source),
            "environment": program_environment(
                str(launch.workspace), PurePosixPath(launch.egress), path
            ),
            "folder": str(launch.workspace),
        }


def _free_port() -> int:
    """Return a port of this machine: its loopback is everybody's, so each daemon has its own."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
