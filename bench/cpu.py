"""CPU time and memory of a process tree, read from `/proc`.

    /proc/PID/stat              user and system ticks of all threads, ended ones included (10 ms)
    /proc/PID/task/*/schedstat  nanoseconds on a CPU of each living thread
    /proc/PID/smaps_rollup      memory; a page that several processes share is split among them

The ticks of one second of load are 1 % of it, so the nanoseconds are used wherever they are whole:
where the kernel keeps them and no thread ended in between.

Source: https://docs.kernel.org/filesystems/proc.html, https://docs.kernel.org/scheduler/sched-stats.html
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UTIME = 11
_STIME = 12
"""Positions after the command's closing parenthesis: fields 14 and 15 of the manual's list."""
_ENDED = 2
"""Offset to the same fields of children that have ended and were reaped."""
_FORGET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Ticks:
    """Seconds that a process has used, in the kernel's coarse count."""

    user: float
    system: float

    @property
    def total(self) -> float:
        """Both together."""
        return self.user + self.system


@dataclass(frozen=True, slots=True)
class CpuReading:
    """The CPU time that a process tree has used so far."""

    ticks: Ticks
    threads: Mapping[int, int] | None
    """Nanoseconds by thread id, the main thread first; None where the kernel keeps none."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time between two readings."""

    seconds: float
    system_share: float
    """How much of it was spent in the kernel, from 0 to 1."""
    main_share: float
    """How much of it the first process' main thread used; 1 where that is not known."""


def parse_stat(text: str, *, of_ended: bool = False) -> Ticks:
    """Return the CPU time in a line of `/proc/PID/stat`.

    Args:
        text: The line; the command in it may hold blanks and parentheses.
        of_ended: Return that of children that have ended, in place of the process' own.
    """
    fields = text[text.rindex(")") + 1 :].split()
    further = _ENDED if of_ended else 0
    return Ticks(
        user=int(fields[_UTIME + further]) / _TICKS_PER_SECOND,
        system=int(fields[_STIME + further]) / _TICKS_PER_SECOND,
    )


def parse_schedstat(text: str) -> int:
    """Return the nanoseconds on a CPU in a line of `/proc/PID/task/TID/schedstat`."""
    return int(text.split(maxsplit=1)[0])


def parse_memory(text: str, name: str) -> int:
    """Return the bytes that a line of `/proc/PID/status` or `smaps_rollup` names.

    Args:
        text: The whole file.
        name: `VmRSS` for what is resident now, `VmHWM` for the most that ever was; `Pss`.

    Raises:
        ValueError: There is no such line: the process is a zombie.
    """
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    message = f"no {name}: the process has ended"
    raise ValueError(message)


def tree(pid: int, proc: Path = PROC) -> list[int]:
    """Return a process and all its descendants, parents first."""
    found = [pid]
    for each in found:
        found.extend(children(each, proc))
    return found


def children(pid: int, proc: Path = PROC) -> list[int]:
    """Return the processes that a process has started and that have not ended."""
    found: list[int] = []
    for task in _tasks(pid, proc):
        try:
            told = (task / "children").read_text()
        except (FileNotFoundError, ProcessLookupError):
            # A thread that has just ended.
            continue
        found.extend(int(child) for child in told.split())
    return found


def read(pid: int, proc: Path = PROC) -> CpuReading:
    """Return what a process and its descendants have used so far."""
    pids = tree(pid, proc)
    every = [parse_stat((proc / str(each) / "stat").read_text()) for each in pids]
    return CpuReading(
        ticks=Ticks(sum(each.user for each in every), sum(each.system for each in every)),
        threads=_nanoseconds(pids, proc),
    )


def cpu_time(before: CpuReading, after: CpuReading) -> CpuTime:
    """Return the CPU time between two readings of the same tree."""
    user = after.ticks.user - before.ticks.user
    system = after.ticks.system - before.ticks.system
    share = system / (user + system) if user + system > 0 else 0.0
    whole = (
        before.threads is not None
        and after.threads is not None
        and before.threads.keys() <= after.threads.keys()
    )
    if not whole or before.threads is None or after.threads is None:
        return CpuTime(user + system, share, 1.0)
    by_thread = {
        thread: count - before.threads.get(thread, 0) for thread, count in after.threads.items()
    }
    nanoseconds = sum(by_thread.values())
    main = next(iter(by_thread.values())) / nanoseconds if nanoseconds else 1.0
    return CpuTime(nanoseconds / 1e9, share, main)


def ended(pid: int, proc: Path = PROC) -> Ticks:
    """Return the CPU time of a process's children that have ended."""
    return parse_stat((proc / str(pid) / "stat").read_text(), of_ended=True)


def rss(pid: int, proc: Path = PROC) -> int:
    """Return the resident memory of a process and its descendants, in bytes."""
    return _memory(pid, "VmRSS", proc)


def peak_rss(pid: int, proc: Path = PROC) -> int:
    """Return the most resident memory that a process and its descendants ever had, in bytes."""
    return _memory(pid, "VmHWM", proc)


def rss_alone(pid: int, proc: Path = PROC) -> int:
    """Return the resident memory of a process without its descendants, in bytes."""
    return parse_memory((proc / str(pid) / "status").read_text(), "VmRSS")


def pss_alone(pid: int, proc: Path = PROC) -> int:
    """Return the proportional set size of a process in bytes.

    Raises:
        PermissionError: It belongs to another user.
    """
    return parse_memory((proc / str(pid) / "smaps_rollup").read_text(), "Pss")


def forget_peak(pid: int, proc: Path = PROC) -> None:
    """Reset a process's peak memory to its present memory."""
    (proc / str(pid) / "clear_refs").write_text(_FORGET_PEAK)


def peaks_of_children(pid: int, proc: Path = PROC) -> dict[int, int]:
    """Return the most resident memory of each living descendant so far, by its process id."""
    found: dict[int, int] = {}
    for child in tree(pid, proc)[1:]:
        with suppress(OSError, ValueError):  # one that ends just now
            status = (proc / str(child) / "status").read_text()
            found[child] = parse_memory(status, "VmHWM")
    return found


def _memory(pid: int, name: str, proc: Path) -> int:
    statuses = ((proc / str(each) / "status").read_text() for each in tree(pid, proc))
    return sum(parse_memory(status, name) for status in statuses)


def _tasks(pid: int, proc: Path) -> list[Path]:
    try:
        return sorted((proc / str(pid) / "task").iterdir(), key=lambda task: int(task.name))
    except (FileNotFoundError, ProcessLookupError):
        return []


def _nanoseconds(pids: list[int], proc: Path) -> dict[int, int] | None:
    counts: dict[int, int] = {}
    for pid in pids:
        for task in _tasks(pid, proc):
            try:
                counts[int(task.name)] = parse_schedstat((task / "schedstat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                if task.exists():
                    return None
    return counts
