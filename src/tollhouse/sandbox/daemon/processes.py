"""The processes that the daemon starts, and their descendants: all of them end with it.

The daemon adopts orphans below it, also if it is not the first process of its namespace: so it
finds a program that went into the background, and can end it.

Source: proc(5), `/proc/[pid]/stat`; prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

_PR_SET_CHILD_SUBREAPER: Final = 36
_SWEEP_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.02
_FORCE_SECONDS: Final = 3.0
"""A process that survives a kill for so long hangs in the kernel: nothing here can end it."""
_ZOMBIE: Final = "Z"
# Python ignores SIGPIPE, and its parent may ignore others: programs expect the defaults.
_DEFAULT_SIGNALS: Final = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))


@dataclass(frozen=True, slots=True)
class Process:
    """A process at one moment."""

    pid: int
    parent: int
    session: int
    state: str


class ChildProcesses:
    """Starts programs, and waits for them and for adopted orphans, in the running loop."""

    def __init__(self) -> None:
        self._ending: dict[int, asyncio.Future[int]] = {}
        self._zombies: set[int] = set()
        self._sweeping: asyncio.TimerHandle | None = None
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        asyncio.get_running_loop().add_signal_handler(signal.SIGCHLD, self._on_child_end)
        self._on_child_end()

    def start(
        self,
        path: str,
        arguments: list[str],
        environment: Mapping[str, str],
        files: Sequence[tuple[Any, ...]],
    ) -> int:
        """Start a program in a session of its own, in the daemon's folder.

        `arguments` begin with its name. It inherits only the descriptors that `files` gives it, as
        `os.posix_spawn` takes them. Returned is its number, which is also that of its session and
        group.
        """
        pid = os.posix_spawn(
            path,
            arguments,
            environment,
            file_actions=files,
            setsid=True,
            setsigmask=(),
            setsigdef=_DEFAULT_SIGNALS,
        )
        self._ending[pid] = asyncio.get_running_loop().create_future()
        return pid

    def start_piped(
        self, path: str, arguments: list[str], environment: Mapping[str, str], *, errors: bool
    ) -> tuple[int, int, int]:
        """Start a program between two pipes, as `start` does.

        With `errors` its standard error is part of its output; otherwise it is the daemon's log.
        Returned are its number, and the descriptors of its output and its input; neither blocks.
        """
        ends: list[int] = []
        try:
            ends += os.pipe()
            ends += os.pipe()
            their_input, our_output, our_input, their_output = ends
            for end in (our_output, our_input):
                os.set_blocking(end, False)
            outputs = (1, 2) if errors else (1,)
            files = [(os.POSIX_SPAWN_DUP2, their_input, 0)]
            files += [(os.POSIX_SPAWN_DUP2, their_output, number) for number in outputs]
            pid = self.start(path, arguments, environment, files)
        except BaseException:
            for end in ends:
                os.close(end)
            raise
        os.close(their_input)
        os.close(their_output)
        return pid, our_input, our_output

    async def ended(self, pid: int) -> int:
        """Wait once for a program; return its exit code, or 128 and the signal that ended it."""
        code = await asyncio.shield(self._ending[pid])
        del self._ending[pid]
        return code

    async def end_all(self, seconds: float) -> None:
        """Ask every descendant to end, and kill those that have not after so many seconds."""
        leaders = [pid for pid, future in self._ending.items() if not future.done()]
        for pid in leaders:  # an interactive shell hears this alone
            _signal(os.kill, pid, signal.SIGHUP)
        await self._end_all(signal.SIGTERM, signal.SIGCONT, seconds=seconds)
        await self._end_all(signal.SIGKILL, seconds=_FORCE_SECONDS)

    async def _end_all(self, *signals: signal.Signals, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        told: set[int] = set()
        while True:
            self._reap(self._ending)
            self._reap(process.pid for process in _descendants() if process.state == _ZOMBIE)
            alive = {process.pid for process in _descendants() if process.state != _ZOMBIE}
            if not alive or loop.time() > until:
                return
            for pid in alive - told:
                for number in signals:
                    _signal(os.kill, pid, number)
            told |= alive
            await asyncio.sleep(_LOOK_SECONDS)

    def _on_child_end(self) -> None:
        self._reap(self._ending)
        if self._sweeping is None:
            loop = asyncio.get_running_loop()
            self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Reap orphans: children that are zombies twice in a row, so that nobody waits for them."""
        self._sweeping = None
        own = (process for process in _processes() if process.parent == os.getpid())
        zombies = {process.pid for process in own if process.state == _ZOMBIE}
        self._reap(self._zombies & zombies)
        self._zombies = zombies - self._zombies
        if self._zombies:
            self._on_child_end()

    def _reap(self, pids: Iterable[int]) -> None:
        for pid in list(pids):
            future = self._ending.get(pid)
            if future is not None and future.done():
                continue
            with suppress(ChildProcessError):  # somebody else's child
                reaped, status = os.waitpid(pid, os.WNOHANG)
                if reaped and future is not None:
                    code = os.waitstatus_to_exitcode(status)
                    future.set_result(code if code >= 0 else 128 - code)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process group, which may be gone already."""
    _signal(os.killpg, pid, number)


def kill_session(session: int) -> None:
    """Kill what is left of a session."""
    for process in _processes():
        if process.session == session:
            _signal(os.kill, process.pid, signal.SIGKILL)


def _signal(send: Callable[[int, int], None], pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone, or another user's by now
        send(pid, number)


def _descendants() -> list[Process]:
    children: dict[int, list[Process]] = {}
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    parents = [os.getpid()]
    while parents:
        found += (below := children.get(parents.pop(), []))
        parents += [process.pid for process in below]
    return found


def _processes() -> Iterator[Process]:
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        with suppress(OSError):  # it has ended meanwhile
            text = Path(entry.path, "stat").read_text(encoding="utf-8", errors="replace")
            # The name stands in parentheses, and may hold whatever it likes.
            state, parent, _, session, *_ = text.rpartition(")")[2].split()
            yield Process(int(entry.name), int(parent), int(session), state)
