"""Where the CPU time goes: py-spy on the gateway during a load, summed up by function.

py-spy's raw format is one line a stack, `frame;frame;frame COUNT`, outermost frame first; a frame
reads `function (path/file.py:line)`, and a thread's name comes first of all.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.cases import CASES
from bench.gateway import Gateway, write_config
from bench.processes import BenchError, Child
from bench.report import table
from bench.suite import Dose, report_progress
from bench.target import gateway_target, measure, run_load, start_load, start_upstream

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_RATE = 500
_MISSING = "py-spy is not installed; `make setup-dev` brings it"
_MAIN = "MainThread"
_WAITING = frozenset(
    {"_worker (futures/thread.py)", "_connection_worker_thread (aiosqlite/core.py)"}
)
_ROOTS = frozenset({"Runner.run (asyncio/runners.py)", "_WorkItem.run (futures/thread.py)"})
_FRAME = re.compile(r"^(?P<name>.+) \((?P<file>[^():]+)(?::\d+)?\)$")


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack, and how often it was sampled."""

    thread: str
    frames: tuple[str, ...]
    """Outermost first."""
    count: int


@dataclass(slots=True)
class Profile:
    """CPU microseconds for one request."""

    own: Counter[str] = field(default_factory=Counter[str])
    """By innermost function."""
    inclusive: Counter[str] = field(default_factory=Counter[str])
    """By every function, with what it calls."""
    threads: Counter[str] = field(default_factory=Counter[str])


def parse(lines: Iterable[str]) -> list[Stack]:
    """Return the stacks in py-spy's raw output, without threads that wait for work."""
    found: list[Stack] = []
    for line in lines:
        text, _, count = line.rstrip("\n").rpartition(" ")
        first, *frames = text.split(";")
        if not count.isdigit() or not frames or not first.startswith("thread "):
            continue
        names = _below_roots([_short(frame) for frame in frames])
        if names[-1] not in _WAITING:
            thread = first.partition(":")[2].strip() or first
            found.append(Stack(thread, names, int(count)))
    return found


def summarise(stacks: Iterable[Stack], main: float, others: float) -> Profile:
    """Return what functions cost.

    Args:
        stacks: The samples. How many a thread has says little: one that waits for the
            interpreter's lock is seen as busy.
        main: Microseconds of the main thread for one request, as the kernel counts them.
        others: The same of all other threads together.
    """
    listed = list(stacks)
    seen = Counter[bool]()
    for stack in listed:
        seen[stack.thread == _MAIN] += stack.count
    profile = Profile()
    for stack in listed:
        is_main = stack.thread == _MAIN
        cost = stack.count / seen[is_main] * (main if is_main else others)
        profile.threads[stack.thread] += cost  # type: ignore[assignment]
        profile.own[stack.frames[-1]] += cost  # type: ignore[assignment]
        for name in set(stack.frames):
            profile.inclusive[name] += cost  # type: ignore[assignment]
    return profile


def render(profile: Profile, most: int = 40) -> str:
    """Return the functions that cost most, as text."""

    def rows(title: str, costs: Counter[str]) -> str:
        listed = [[title, "us a request"]]
        listed += [[name, f"{cost:.1f}"] for name, cost in costs.most_common(most)]
        return table(listed)

    parts = [
        rows("thread", profile.threads),
        rows("function alone", profile.own),
        rows("function and what it calls", profile.inclusive),
    ]
    return "\n\n".join(parts) + "\n"


def profile(folder: Path, dose: Dose, name: str, *, svg: Path | None, native: bool) -> str:
    """Run one load under py-spy.

    Args:
        folder: An empty folder for data and configurations.
        dose: How much is sent.
        name: One of `CASES`.
        svg: Where a flame graph goes; None for a summary.
        native: Whether frames of C extensions are shown.

    Returns:
        The summary, or where the flame graph is.

    Raises:
        BenchError: py-spy is missing or may not look at the process.
    """
    case = CASES[name]
    load = dose.load(case)
    upstream = start_upstream(folder / "up", dose.chunk_interval_ms, dose.crowd_interval_ms)
    config = write_config(folder / "p.yaml", upstream.ports)
    with (
        upstream.child,
        Gateway(folder / "data", config, authority=upstream.authority) as gate,
    ):
        target = gateway_target(gate)
        measure(target, case, load)
        done = measure(target, case, load)
        report_progress(f"{name}: {done.microseconds:.1f} us a request without the profiler")
        output = svg or folder / "stacks.txt"
        with (
            start_load(target, case, replace(load, requests=3 * load.requests)) as loading,
            sampled(gate.pid, output, flame=svg is not None, native=native),
        ):
            run_load(loading)
    if svg is not None:
        return flame_graph_notice(svg)
    return summary(output, done.microseconds, done.main_share)


@contextmanager
def sampled(pid: int, output: Path, *, flame: bool, native: bool) -> Generator[None]:
    """Watch a process with py-spy for as long as the block lasts.

    Args:
        pid: Which.
        output: Where py-spy's output goes.
        flame: Whether that is a flame graph; stacks otherwise.
        native: Whether frames of C extensions are shown.

    Raises:
        BenchError: py-spy is missing or may not look at the process.
    """
    program = shutil.which("py-spy") or shutil.which("py-spy", path=str(_bin()))
    if program is None:
        raise BenchError(_MISSING)
    command = [program, "record", "--pid", str(pid), "--output", str(output)]
    command += ["--format", "flamegraph" if flame else "raw", "--rate", str(_RATE)]
    command += ["--threads", "--nonblocking", "--duration", "100000"]
    command += ["--native"] * native
    with Child("py-spy", command) as spy:
        yield
        spy.interrupt()
        spy.wait(60.0)


def summary(output: Path, microseconds: float, main_share: float) -> str:
    """Return the functions' CPU time as text.

    Args:
        output: py-spy's stacks.
        microseconds: Of CPU for one request, of all threads.
        main_share: How much of it the main thread used.
    """
    stacks = parse(output.read_text(encoding="utf-8").splitlines())
    main = microseconds * main_share
    return render(summarise(stacks, main, microseconds - main))


def flame_graph_notice(svg: Path) -> str:
    """Return a line that says where the flame graph is."""
    return f"the flame graph is in {svg}\n"


def _bin() -> Path:
    return Path(sys.executable).parent


def _below_roots(names: list[str]) -> tuple[str, ...]:
    """Return a stack without the frames that every stack of its thread begins with."""
    for depth, name in enumerate(names):
        if name in _ROOTS:
            return tuple(names[depth + 1 :]) or (name,)
    return tuple(names)


def _short(frame: str) -> str:
    """Return a frame without its line, with the last two parts of its file's path."""
    found = _FRAME.match(frame.strip())
    if found is None:
        return frame.strip()
    return f"{found['name']} ({'/'.join(found['file'].split('/')[-2:])})"
