"""Where the CPU time goes: py-spy on a process during a load, summed up by function.

py-spy's raw format is one line a stack, `frame;frame;frame COUNT`, outermost frame first; a frame
reads `function (path/file.py:line)`, and a thread's name comes first of all.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.batch_bodies import write_body
from bench.batches import run_to_end
from bench.load import gateway_target, run_load
from bench.processes import BenchError, Child
from bench.report import Report, report_progress, table
from bench.requests import CASES, Compared
from bench.servers import Side, start_upstream, this_tree

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

BATCH: Final = "batch"
PROFILED: Final = (*CASES, BATCH)
_RATE: Final = 500
_MAIN: Final = "MainThread"
_WAITING: Final = frozenset(
    {"_worker (futures/thread.py)", "_connection_worker_thread (aiosqlite/core.py)"}
)
_ROOTS: Final = frozenset({"Runner.run (asyncio/runners.py)", "_WorkItem.run (futures/thread.py)"})
_FRAME: Final = re.compile(r"^(?P<name>.+) \((?P<file>[^():]+)(?::\d+)?\)$")
_ITEMS: Final = 5_000


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

    def text(self, most: int = 40) -> str:
        """Return the functions that cost most."""
        parts = {
            "thread": self.threads,
            "function alone": self.own,
            "function and what it calls": self.inclusive,
        }
        return "\n\n".join(
            table(
                [[title, "us a request"], *([n, f"{cost:.1f}"] for n, cost in c.most_common(most))]
            )
            for title, c in parts.items()
        )


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
    """Return what functions cost."""
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


def profile(folder: Path, name: str, *, svg: Path | None, native: bool) -> str:
    """Run one load under py-spy."""
    output = svg or folder / "stacks.txt"
    upstream = start_upstream(folder / "up")
    side = Side("this", this_tree(), folder, upstream, Report("profile", ""))
    with upstream.child, side.start() as gateway:
        if name == BATCH:
            body = write_body(folder / "items.json", _ITEMS, requests_first=False)
            count, run = _ITEMS, partial(run_to_end, gateway, body, _ITEMS)
        else:
            load = Compared().load(CASES[name])
            count, run = load.requests, partial(run_load, gateway_target(gateway), load)
        run()
        before = cpu.read(gateway.pid)
        run()
        used = cpu.cpu_time(before, cpu.read(gateway.pid))
        with sampled(gateway.pid, output, native=native):
            run()
    report_progress(f"{name}: {used.seconds / count * 1e6:.1f} us without the profiler")
    if svg is not None:
        return f"the flame graph is in {svg}"
    main, first = (seconds / count * 1e6 for seconds in (used.main, used.first))
    lines = output.read_text(encoding="utf-8").splitlines()
    return summarise(parse(lines), main, first - main).text()


@contextmanager
def sampled(pid: int, output: Path, *, native: bool) -> Generator[None]:
    """Watch a process with py-spy for as long as the block lasts."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        raise BenchError("py-spy is not installed; `make setup-dev` brings it")
    form = "flamegraph" if output.suffix == ".svg" else "raw"
    command = [program, "record", "--pid", str(pid), "--output", str(output), "--format", form]
    command += ["--rate", str(_RATE), "--threads", "--nonblocking", "--duration", "100000"]
    with Child("py-spy", command + ["--native"] * native) as spy:
        yield
        spy.interrupt(60.0)


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
