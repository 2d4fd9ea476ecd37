"""Sandboxes by bubblewrap: namespaces, a filter of system calls, limits. The default.

    stage.py ──> bwrap ──> the first process of the sandbox, which waits
                             └ we hold on to it and limit it; then it starts the daemon

Started by root, each sandbox runs as a user of its own; started by anybody else, as that one.

Source: bwrap(1).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import platform
import resource
import shutil
import termios
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from tollhouse.interns.runtimes.base import RuntimeFailed
from tollhouse.interns.runtimes.cgroups import Cgroups
from tollhouse.interns.runtimes.command import (
    EGRESS,
    ETC,
    WORKSPACE,
    Asked,
    Passed,
    arguments,
    daemon_in_sandbox,
    staged,
)
from tollhouse.interns.runtimes.host import look_around
from tollhouse.interns.runtimes.launching import (
    Descriptors,
    Seen,
    everything,
    run_filesize,
    start_program,
)
from tollhouse.interns.runtimes.leftovers import end_marked
from tollhouse.interns.runtimes.limits import process_limits
from tollhouse.interns.runtimes.problems import find_problem
from tollhouse.interns.runtimes.quota import DiskWatch, Scales
from tollhouse.interns.runtimes.sandbox import First, RunningSandbox
from tollhouse.interns.runtimes.seccomp import filter_program
from tollhouse.interns.workspace import give, give_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.interns.runtimes.base import Launch, Sandbox, SandboxLimits
    from tollhouse.interns.runtimes.cgroups import Group
    from tollhouse.interns.runtimes.host import Host
    from tollhouse.interns.runtimes.launching import Started
    from tollhouse.kernel.clock import Clock

_log = structlog.get_logger(__name__)

_START_SECONDS: Final = 20.0
_LOOK_SECONDS: Final = 0.001
_STAGE: Final = "/tmp"  # noqa: S108 - of `stage.py`: a mount that nobody else sees
_DIGITS: Final = 10
_INIT: Final = 1
"""Bubblewrap's init is one of the processes that the kernel counts in a sandbox."""
_BESIDES: Final = 2
"""The same, and the process outside of it."""
_ALWAYS_KEPT: Final = frozenset({"processes", "open_files", "disk_bytes", "files"})
_TRIAL: Final = "trial"
"""Name of a sandbox that never is; those of interns are longer."""


class _Info(msgspec.Struct):
    """What `--info-fd` says."""

    child: int = msgspec.field(name="child-pid")


class BubblewrapRuntime:
    """Starts sandboxes with bubblewrap."""

    name = "bubblewrap"

    def __init__(self, data: Path, clock: Clock, command: Sequence[str] | None = None) -> None:
        """Say whose sandboxes these are.

        Args:
            data: The server's data folder; no sandbox sees it.
            clock: For how often disks are looked at.
            command: What runs in a sandbox, instead of the daemon.
        """
        self._data = data
        self._clock = clock
        self._command = command
        self._scales = Scales()
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
        """Return why no sandbox can be started on this machine, and what to do.

        It starts a program, until that has worked once: call it in a thread.
        """
        if self._proven:
            return None
        found = find_problem(self._host, as_root=self._root)
        self._proven = found is None
        return found

    def limits_enforced(self, limits: SandboxLimits) -> frozenset[str]:
        """Return which limits this machine would make a sandbox keep."""
        group = self._cgroups.make(_TRIAL, limits)
        try:
            return group.limits_kept | _ALWAYS_KEPT
        finally:
            group.remove()

    async def start(self, launch: Launch) -> Sandbox:
        """Start a sandbox with a daemon in it.

        Cancelled, it first starts, then ends it: what is half made is hard to take down.

        Raises:
            RuntimeFailed: It did not start; nothing of it is left.
        """
        starting = asyncio.create_task(self._started(launch))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            with suppress(RuntimeFailed):
                await (await starting).stop(0)
            raise

    async def _started(self, launch: Launch) -> Sandbox:
        if launch.name in self._running:
            message = "the sandbox runs already"
            raise RuntimeFailed(message)
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
    def _host(self) -> Host:
        return look_around(self._data)

    def _sweep(self) -> None:
        running = frozenset(self._running)
        end_marked(self._mark, frozenset(self._mark + name for name in running))
        self._cgroups.sweep(running)

    def _remove_half(self, name: str, group: Group) -> None:
        """Remove what is left of a sandbox that was killed while it was made."""
        end_marked(self._mark + name, frozenset())
        group.remove()

    def _prepare(self, launch: Launch) -> Group:
        if self._root:
            give(launch.workspace, launch.user)
            give_all(launch.egress, launch.user)
        return self._cgroups.make(launch.name, launch.limits)

    async def _start(self, launch: Launch, group: Group) -> RunningSandbox:
        ends = Descriptors()
        try:
            info, info_end = ends.pipe()
            block_end, block = ends.pipe()
            seccomp = ends.memory(filter_program(platform.machine()))
            etc = {name: ends.memory(text.encode()) for name, text in ETC.items()}
            passed = Passed(seccomp, info_end, block_end, etc)
            started = await start_program(
                "stage.py",
                self._plan(launch, group, passed),
                (launch.listener.fileno(), seccomp, info_end, block_end, *etc.values()),
            )
            ends.drop(info_end, block_end)
            try:
                async with asyncio.timeout(_START_SECONDS):
                    first = await _first(started, ends.give(info))
                if not self._root:
                    most = launch.limits.processes + _INIT
                    resource.prlimit(first.number, resource.RLIMIT_NPROC, (most, most))
                os.write(block, b"1")
                async with asyncio.timeout(_START_SECONDS):
                    await _taken(started, block)
            except BaseException as error:
                said = await started.abandon()
                if isinstance(error, (OSError, msgspec.DecodeError, EOFError)):
                    raise OSError(said or str(error)) from None
                raise
        finally:
            ends.close()
        kept = group.limits_kept | _ALWAYS_KEPT
        started.tell(launch, Seen(PurePosixPath(WORKSPACE), EGRESS, kept))
        user = launch.user if self._root else None
        watch = DiskWatch(
            launch,
            self._scales.watching(launch, first.number),
            partial(run_filesize, user, first.number),
            self._clock,
        )
        return RunningSandbox(launch.name, started, first, group, watch, kept)

    def _plan(self, launch: Launch, group: Group, passed: Passed) -> dict[str, object]:
        asked = Asked(
            name=launch.name,
            mark=self._mark + launch.name,
            workspace=launch.workspace,
            egress=launch.egress,
            memory_bytes=launch.limits.memory_bytes,
            command=self._command or daemon_in_sandbox(self._host.program),
        )
        shown = staged(self._host, asked) if self._root else []
        where = {path: Path(_STAGE, str(number)) for number, path in enumerate(shown)}
        bubblewrap = shutil.which("bwrap") or "/usr/bin/bwrap"
        limits = process_limits(launch.limits, memory_is_kept="memory_bytes" in group.limits_kept)
        if self._root:  # the user is the sandbox's alone; of others, the kernel counts everything
            limits.append((resource.RLIMIT_NPROC, launch.limits.processes + _BESIDES))
        return {
            "parent": os.getpid(),
            "groups": group.doors,
            "limits": limits,
            "user": launch.user if self._root else None,
            "show": [str(path) for path in shown],
            "command": arguments(bubblewrap, self._host, asked, passed, where),
        }


async def _first(started: Started, info: int) -> First:
    """Wait until the sandbox is made; return its first process."""
    told = msgspec.json.decode(await everything(info), type=_Info)
    return First(told.child, started.process.pid)


async def _taken(started: Started, block: int) -> None:
    """Wait until the byte is taken: all that the sandbox sees is mounted by then.

    Raises:
        OSError: Bubblewrap has ended before.
    """
    while fcntl.ioctl(block, termios.FIONREAD, bytes(4)) != bytes(4):
        if started.process.returncode is not None:
            raise OSError
        await asyncio.sleep(_LOOK_SECONDS)
