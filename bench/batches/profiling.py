"""Where the CPU time of a batch goes: py-spy on the gateway while one runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.batches.bodies import write_body
from bench.batches.suite import BatchBench
from bench.gateway import Gateway, write_config
from bench.profiling import flame_graph_notice, sampled, summary
from bench.suite import report_progress
from bench.target import start_upstream

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "batch"
"""What it is called beside the cases."""
_ITEMS: Final = 5_000


def profile_batch(folder: Path, *, svg: Path | None, native: bool) -> str:
    """Run a batch under py-spy.

    Args:
        folder: An empty folder for data and configurations.
        svg: Where a flame graph goes; None for a summary.
        native: Whether frames of C extensions are shown.

    Returns:
        The summary, for one item; or where the flame graph is.

    Raises:
        BenchError: py-spy is missing or may not look at the process.
    """
    upstream = start_upstream(folder / "up", 5.0, 200.0)
    config = write_config(folder / "p.yaml", upstream.ports)
    body = write_body(folder / "body.json", _ITEMS, requests_first=False)
    with upstream.child, Gateway(folder / "data", config) as gateway:
        bench = BatchBench(gateway, folder / "data", upstream)
        bench.run(body)
        before = cpu.read(gateway.pid)
        bench.run(body)
        used = cpu.cpu_time(before, cpu.read(gateway.pid))
        microseconds = used.seconds / _ITEMS * 1e6
        report_progress(f"{NAME}: {microseconds:.1f} us an item without the profiler")
        output = svg or folder / "stacks.txt"
        with sampled(gateway.pid, output, flame=svg is not None, native=native):
            bench.run(body)
    if svg is not None:
        return flame_graph_notice(svg)
    return summary(output, microseconds, used.main_share)
