"""Where the CPU time of a proxied request goes: py-spy on the proxy while values are put in."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.egress import load
from bench.egress.figures import PROXY, EgressDose
from bench.egress.hosts import BOUND
from bench.egress.suite import start_bench
from bench.egress.target import measure
from bench.profiling import flame_graph_notice, sampled, summary
from bench.suite import report_progress

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "egress"
"""What it is called beside the cases."""
_DOSE: Final = EgressDose(rounds=1, requests=10_000, hosts=1)
_CONNECTIONS: Final = 32


def profile_egress(folder: Path, *, svg: Path | None, native: bool) -> str:
    """Send requests with a secret through the proxy under py-spy.

    Args:
        folder: An empty folder for data and configurations.
        svg: Where a flame graph goes; None for a summary.
        native: Whether frames of C extensions are shown.

    Returns:
        The summary, for one request; or where the flame graph is.

    Raises:
        BenchError: py-spy is missing or may not look at the process.
    """
    requests = _DOSE.requests
    with ExitStack() as stack:
        bench = start_bench(folder, _DOSE, stack)
        proxy = bench.pids[PROXY]
        plan = load.Requests(bench.session.route, BOUND, _CONNECTIONS, requests, secret=True)
        microseconds = measure(plan, {PROXY: proxy}).seconds[PROXY] / requests * 1e6
        report_progress(f"{NAME}: {microseconds:.1f} us a request without the profiler")
        output = svg or folder / "stacks.txt"
        with sampled(proxy, output, flame=svg is not None, native=native):
            measure(plan, {})
    if svg is not None:
        return flame_graph_notice(svg)
    return summary(output, microseconds, 1.0)  # all of it is on the loop
