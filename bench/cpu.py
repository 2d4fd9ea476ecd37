"""CPU time and memory of a process tree, read from `/proc`.

    /proc/PID/stat              user and system ticks of all threads, ended ones included (10 ms)
    /proc/PID/task/*/schedstat  nanoseconds on a CPU of each living thread
    /proc/PID/smaps_rollup      memory; a page that several processes share is split among them

The ticks of one second of load are 1 % of it, so the nanoseconds of a process are used wherever
they are whole: where the kernel keeps them and no thread ended in between.

Source: https://docs.kernel.org/filesystems/proc.html, https://docs.kernel.org/scheduler/sched-stats.html
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_UTIME = 11
"""Position after the command's closing parenthesis: field 14 of the manual's list; system time and
both times of ended children follow it."""


@dataclass(frozen=True, slots=True)
class ProcessCpu:
    """The CPU time that one process has used so far."""

    ticks: float
    """Seconds in the kernel's coarse count, those of its ended threads included."""
    ended: float = 0.0
    """The same of its children that have ended, and of theirs."""
    threads: Mapping[int, int] | None = None
    """Nanoseconds by thread id, the main thread first; None where the kernel keeps none."""


CpuReading = dict[int, ProcessCpu]
"""A process tree by process id, the first process first."""


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU time between two readings of a process tree."""

    seconds: float
    main: float
    """Seconds of the first process' main thread; of the whole process where that is not known."""


def _ticks(stat: str) -> tuple[float, float]:
    """Return the CPU seconds in a line of `/proc/PID/stat`, and those of ended children."""
    own, system, children, of_system = stat[stat.rindex(")") + 1 :].split()[_UTIME : _UTIME + 4]
    return (
        (int(own) + int(system)) / _TICKS_PER_SECOND,
        (int(children) + int(of_system)) / _TICKS_PER_SECOND,
    )


def tree(pid: int) -> list[int]:
    """Return a process and all its descendants, parents first."""
    found = [pid]
    for each in found:
        for task in _tasks(each):
            with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                found += map(int, (task / "children").read_text().split())
    return found


def read(pid: int) -> CpuReading:
    """Return what a process and its descendants have used so far."""
    found: CpuReading = {}
    for each in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # a child that has just ended
            ticks = _ticks((PROC / str(each) / "stat").read_text())
            found[each] = ProcessCpu(*ticks, _nanoseconds(each))
    return found


def cpu_time(before: CpuReading, after: CpuReading) -> CpuTime:
    """Return the CPU time between two readings of the same tree.

    Processes that ended in between are counted by what their parents know of them.
    """
    none = ProcessCpu(0.0, 0.0, {})
    seconds = [_between(before.get(pid, none), each) for pid, each in after.items()]
    ended = sum(each.ended for each in after.values())
    ended -= sum(each.ended for each in before.values())
    ended -= sum(each.ticks for pid, each in before.items() if pid not in after)
    first = next(iter(after))
    main, earlier = after[first].threads, before.get(first, none).threads
    used = seconds[0]
    if main and earlier and first in main:
        used = (main[first] - earlier.get(first, 0)) / 1e9
    return CpuTime(sum(seconds) + max(0.0, ended), used)


def _between(before: ProcessCpu, after: ProcessCpu) -> float:
    """Return the seconds between two readings of a process that still runs."""
    if (
        before.threads is None
        or after.threads is None
        or not before.threads.keys() <= after.threads.keys()
    ):
        return after.ticks - before.ticks
    used = (count - before.threads.get(thread, 0) for thread, count in after.threads.items())
    return sum(used) / 1e9


def memory(pid: int) -> int:
    """Return the proportional bytes of a process and its descendants."""
    total = 0
    for each in tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):  # a child that ends just now
            text = (PROC / str(each) / "smaps_rollup").read_text()
            if line := re.search(r"^Pss: +([0-9]+) kB", text, re.MULTILINE):
                total += int(line[1]) * 1024
    return total


@contextmanager
def peak_memory(pid: int, seconds: float = 0.5) -> Generator[list[int]]:
    """Find the most memory of a process and its descendants in the block: the one number, bytes."""
    most, ended = [0], Event()

    def poll() -> None:
        while True:
            most[0] = max(most[0], memory(pid))
            if ended.wait(seconds):
                return

    thread = Thread(target=poll, name="peak-memory")
    thread.start()
    try:
        yield most
    finally:
        ended.set()
        thread.join()


def _tasks(pid: int) -> list[Path]:
    try:
        return sorted((PROC / str(pid) / "task").iterdir(), key=lambda task: int(task.name))
    except (FileNotFoundError, ProcessLookupError):
        return []


def _nanoseconds(pid: int) -> dict[int, int] | None:
    counts: dict[int, int] = {}
    for task in _tasks(pid):
        try:
            counts[int(task.name)] = int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            if task.exists():
                return None
    return counts
