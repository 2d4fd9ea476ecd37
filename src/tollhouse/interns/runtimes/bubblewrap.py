"""Sandboxes by bubblewrap: namespaces, a filter of system calls, limits. The default.

    launcher.py ──> bwrap ──> the first process of the sandbox, which waits
                                └ we hold on to it and limit it; then it starts the daemon

Started by root, each sandbox runs as a user of its own; started by anybody else, as that one.

A sandbox ends with the server. But for some milliseconds, between the first process of a sandbox
and that process's wish to end with its parent, it does not: killed just then, the server leaves an
orphan that waits for ever, and has run nothing of the sandbox. A sweep finds it by its mark.

Source: bwrap(1), --die-with-parent; proc_pid_cmdline(5).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import resource
import shutil
import signal
import termios
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.interns.runtimes.base import Launch, RuntimeFailed, Sandbox, SandboxLimits
from tollhouse.interns.runtimes.cgroups import Cgroups, SandboxCgroups
from tollhouse.interns.runtimes.command import (
    EGRESS,
    ETC_FILES,
    MARK_VARIABLE,
    WORKSPACE,
    PassedDescriptors,
    SandboxSpec,
    bubblewrap_arguments,
    daemon_command,
    staged_paths,
)
from tollhouse.interns.runtimes.host import HostView, find_problem, inspect_host
from tollhouse.interns.runtimes.quota import DiskWatch, measure_workspace
from tollhouse.interns.runtimes.sandbox_process import (
    Descriptors,
    InitProcess,
    RunningSandbox,
    process_limits,
    read_pipe,
    run_filesize,
    start_program,
)
from tollhouse.interns.runtimes.seccomp import filter_program
from tollhouse.interns.workspaces.contents import chown, chown_tree
from tollhouse.interns.workspaces.jobs import WorkspaceJobs
from tollhouse.kernel.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.interns.runtimes.sandbox_process import StartedProgram
    from tollhouse.kernel.clock import Clock


def kill_marked(mark: str, running: frozenset[str]) -> None:
    """Kill bubblewraps whose sandboxes' marks begin with ours, but for those that run."""
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if Path(words[0]).name == "bwrap" and MARK_VARIABLE in words:
                found = words[words.index(MARK_VARIABLE) + 1]
                if found.startswith(mark) and found not in running:
                    os.kill(int(folder.name), signal.SIGKILL)


_log = structlog.get_logger(__name__)

_START_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.001
_STAGE: Final = "/tmp"  # noqa: S108 - of `launcher.py`: a mount that nobody else sees
_DIGITS: Final = 10
_INIT: Final = 1
"""Bubblewrap's init is one of the processes that the kernel counts in a sandbox."""
_OWN_PROCESSES: Final = 2
"""The same, and the process outside of it."""
_ALWAYS_KEPT: Final = frozenset({"processes", "open_files", "disk_bytes", "files"})
_PROBE: Final = "trial"
"""Name of a sandbox that never is; those of interns are longer."""


class _Info(msgspec.Struct):
    """What `--info-fd` says."""

    child: int = msgspec.field(name="child-pid")


class BubblewrapRuntime:
    """Starts sandboxes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self, data: Path, clock: Clock, command: Sequence[str] | None = None) -> None:
        """Run sandboxes that do not see the data folder; `command` stands in for the daemon."""
        self._data = data
        self._clock = clock
        self._command = command
        self._jobs = WorkspaceJobs()
        self._root = os.geteuid() == 0
        self._running: set[str] = set()
        self._proven = False
        """Whether a sandbox could be made, and none has failed to start since."""
        installation = sha256(os.fsencode(data.resolve())).hexdigest()[:_DIGITS]
        self._mark = f"tollhouse-{installation}-"
        self._cgroups = Cgroups(
            self._mark,
            Path("/proc/self/mountinfo").read_text(),
            Path("/proc/self/cgroup").read_text(),
        )

    def problem(self) -> str | None:
        """See `Runtime`; it starts a program, until that has worked once."""
        if self._proven:
            return None
        found = find_problem(self._host, as_root=self._root)
        self._proven = found is None
        return found

    def limits_enforced(self, limits: SandboxLimits) -> frozenset[str]:
        """See `Runtime`."""
        group = self._cgroups.make(_PROBE, limits)
        try:
            return group.limits_kept | _ALWAYS_KEPT
        finally:
            group.remove()

    async def start(self, launch: Launch) -> Sandbox:
        """See `Runtime`; cancelled, it starts a sandbox and then ends it: half of one is harder."""
        starting = asyncio.create_task(self._started(launch))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(RuntimeFailed):
                await (await starting).stop(0)
            raise

    async def _started(self, launch: Launch) -> Sandbox:
        if launch.name in self._running:
            raise RuntimeFailed("the sandbox runs already")
        self._running.add(launch.name)
        try:
            group = await asyncio.to_thread(self._prepare, launch)
            try:
                sandbox = await self._start(launch, group)
            except BaseException:
                await asyncio.to_thread(self._remove_half, launch.name, group)
                raise
        except OSError as error:
            self._running.discard(launch.name)
            self._proven = False  # the next one is told why
            _log.warning("sandbox not started", sandbox=launch.name, reason=str(error))
            message = "the machine refused to start the sandbox; its operator finds more in the log"
            raise RuntimeFailed(message) from None
        except BaseException:
            self._running.discard(launch.name)
            raise
        sandbox.when_ended(lambda: self._running.discard(launch.name))
        return sandbox

    async def sweep(self) -> None:
        """Remove what the sandboxes of a killed server have left on this machine."""
        await asyncio.to_thread(self._sweep)

    @cached_property
    def _host(self) -> HostView:
        return inspect_host(self._data)

    def _sweep(self) -> None:
        running = frozenset(self._running)
        kill_marked(self._mark, frozenset(self._mark + name for name in running))
        self._cgroups.sweep(running)

    def _remove_half(self, name: str, group: SandboxCgroups) -> None:
        """Remove what is left of a sandbox that was killed while it was made."""
        kill_marked(self._mark + name, frozenset())
        group.remove()

    def _prepare(self, launch: Launch) -> SandboxCgroups:
        if self._root:
            chown(launch.workspace, launch.user)
            chown_tree(launch.egress, launch.user)
        return self._cgroups.make(launch.name, launch.limits)

    async def _start(self, launch: Launch, group: SandboxCgroups) -> RunningSandbox:
        ends = Descriptors()
        try:
            info, info_end = ends.pipe()
            block_end, block = ends.pipe()
            seccomp = ends.memory(filter_program(platform.machine()))
            etc = {name: ends.memory(text.encode()) for name, text in ETC_FILES.items()}
            passed = PassedDescriptors(seccomp, info_end, block_end, etc)
            started = await start_program(
                "launcher.py",
                self._plan(launch, group, passed),
                (launch.listener.fileno(), seccomp, info_end, block_end, *etc.values()),
            )
            ends.drop(info_end, block_end)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    first = await _read_init_process(started, ends.release(info))
                if not self._root:
                    most = launch.limits.processes + _INIT
                    resource.prlimit(first.number, resource.RLIMIT_NPROC, (most, most))
                os.write(block, b"1")
                async with asyncio.timeout(_START_SECONDS):
                    await _wait_until_mounted(started, block)
            except BaseException as error:
                said = await started.abandon()
                if isinstance(error, (OSError, msgspec.DecodeError, EOFError)):
                    raise OSError(said or str(error)) from None
                raise
        finally:
            ends.close()
        kept = group.limits_kept | _ALWAYS_KEPT
        started.tell(launch, PurePosixPath(WORKSPACE), EGRESS, kept)
        user = launch.user if self._root else None
        watch = DiskWatch(
            launch,
            partial(measure_workspace, self._jobs, launch.workspace, first.number),
            partial(run_filesize, user, first.number),
            self._clock,
        )
        return RunningSandbox(launch.name, started, first, group, watch, kept)

    def _plan(
        self, launch: Launch, group: SandboxCgroups, passed: PassedDescriptors
    ) -> dict[str, object]:
        asked = SandboxSpec(
            name=launch.name,
            mark=self._mark + launch.name,
            workspace=launch.workspace,
            egress=launch.egress,
            memory_bytes=launch.limits.memory_bytes,
            command=self._command or daemon_command(self._host.program),
        )
        shown = staged_paths(self._host, asked) if self._root else []
        where = {path: Path(_STAGE, str(number)) for number, path in enumerate(shown)}
        bubblewrap = shutil.which("bwrap") or "/usr/bin/bwrap"
        limits = process_limits(launch.limits, memory_is_kept="memory_bytes" in group.limits_kept)
        if self._root:  # the user is the sandbox's alone; of others, the kernel counts everything
            limits.append((resource.RLIMIT_NPROC, launch.limits.processes + _OWN_PROCESSES))
        return {
            "parent": os.getpid(),
            "groups": group.procs_files,
            "limits": limits,
            "user": launch.user if self._root else None,
            "show": [str(path) for path in shown],
            "command": bubblewrap_arguments(bubblewrap, self._host, asked, passed, where),
        }


async def _read_init_process(started: StartedProgram, info: int) -> InitProcess:
    """Wait until the sandbox is made; return its first process."""
    told = msgspec.json.decode(await read_pipe(info), type=_Info)
    await failpoint("intern.sandbox.made")
    return InitProcess(told.child, started.process.pid)


async def _wait_until_mounted(started: StartedProgram, block: int) -> None:
    """Wait until the byte is taken: all that the sandbox sees is mounted by then.

    Raises `OSError` where bubblewrap has ended before.
    """
    while fcntl.ioctl(block, termios.FIONREAD, bytes(4)) != bytes(4):
        if started.process.returncode is not None:
            raise OSError
        await asyncio.sleep(_LOOK_SECONDS)
