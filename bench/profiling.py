"""Where the CPU time goes: py-spy on a process during a load, summed up by function.

py-spy's raw format is one line a stack, `thread;frame;frame COUNT`, outermost frame first.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections import Counter
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
    from collections.abc import Iterable

BATCH: Final = "batch"
PROFILED: Final = (*CASES, BATCH)
_RATE: Final = 500
_MOST: Final = 40
_ITEMS: Final = 5_000
_WAITING: Final = ("_worker (", "_connection_worker_thread (")
"""Innermost functions of threads that have nothing to do."""
_FRAME: Final = re.compile(r"(.+) \((?:.*/)?([^/]+/[^/:]+)(?::\d+)?\)")


def profile(folder: Path, name: str, *, svg: Path | None) -> str:
    """Run one load under py-spy; return what costs most, or where the flame graph is."""
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
        used = cpu.cpu_time(before, cpu.read(gateway.pid)).first / count * 1e6
        output = svg or folder / "stacks.txt"
        with _sampler(gateway.pid, output) as spy:
            run()
            spy.interrupt(60.0)
    report_progress(f"{name}: {used:.1f} us of the server without the profiler")
    if svg is not None:
        return f"the flame graph is in {svg}"
    return _summary(output.read_text(encoding="utf-8").splitlines(), used)


def _sampler(pid: int, output: Path) -> Child:
    """Start py-spy, which watches a process until it is interrupted."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent))
    if program is None:
        raise BenchError("py-spy is not installed; `make setup-dev` brings it")
    form = "flamegraph" if output.suffix == ".svg" else "raw"
    command = [program, "record", "--pid", str(pid), "--output", str(output), "--format", form]
    command += ["--rate", str(_RATE), "--threads", "--nonblocking", "--duration", "100000"]
    return Child("py-spy", command)


def _summary(lines: Iterable[str], used: float) -> str:
    """Return what threads and functions cost, as shares of the microseconds of a request."""
    threads, alone, inclusive = Counter[str](), Counter[str](), Counter[str]()
    for line in lines:
        text, _, samples = line.rpartition(" ")
        thread, *frames = text.split(";")
        if not frames or frames[-1].startswith(_WAITING):
            continue
        names = [_FRAME.sub(r"\1 (\2)", frame) for frame in frames]
        threads[thread] += int(samples)
        alone[names[-1]] += int(samples)
        for name in set(names):
            inclusive[name] += int(samples)
    tables: list[str] = []
    for title, found in (
        ("thread", threads),
        ("function alone", alone),
        ("function and what it calls", inclusive),
    ):
        a_sample = used / max(1, threads.total())
        rows = [[name, f"{each * a_sample:.1f}"] for name, each in found.most_common(_MOST)]
        tables.append(table([[title, "us a request"], *rows]))
    return "\n\n".join(tables)
