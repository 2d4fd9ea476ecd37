"""Where the CPU time of a whole request goes: a running gateway, cut at growing depth.

A stage costs what a cut behind it costs more than one before it. All cuts are measured in each
round, beside nginx, so that the sum of the stages is the whole request: its journal and its books
are told apart by their threads and processes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

import msgspec

from bench.cut_server import ANSWERING, CUTS, WHOLE
from bench.formats import FORMATS, chat_request
from bench.load import Load, Target, gateway_target, run_load
from bench.processes import BenchError
from bench.report import Report, table
from bench.servers import (
    MODEL,
    NGINX_MISSING,
    Gateway,
    find_nginx,
    nginx_version,
    start_nginx,
    start_upstream,
    write_config,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.servers import Tree

NAME: Final = "stages"
NAMES: Final = (*CUTS, "pending, journal", "books")
_QUIET_MICROSECONDS: Final = 14.0
"""Of nginx for a request on a quiet machine."""
_COMMAND: Final = (sys.executable, "-m", "bench.cut_server")


@dataclass(frozen=True, slots=True)
class Dose:
    """How much is measured."""

    rounds: int = 7
    requests: int = 4_000


FULL: Final = Dose()
QUICK: Final = Dose(3, 1_500)


def measure(folder: Path, tree: Tree, dose: Dose) -> Report:
    """Measure all stages of a whole request.

    Raises:
        BenchError: nginx is missing; something did not start; a cut is not where requests pass.
    """
    program = find_nginx()
    if program is None:
        raise BenchError(NGINX_MISSING)
    report = Report(
        NAME,
        f"{dose.rounds} rounds of {dose.requests} whole requests for each depth, on 32 "
        f"connections; beside {nginx_version(program)}",
        tree=tree.name,
    )
    load = Load(MODEL, dose.requests)
    upstream = start_upstream(folder / "upstream")
    config = write_config(folder / "config.yaml", upstream, tree.settings)
    with upstream.child:
        child, port = start_nginx(program, folder / "nginx", upstream)
        with child, Gateway(folder / "data", config, command=_COMMAND) as gateway:
            run_load(gateway_target(gateway), load)
            for _ in range(dose.rounds):
                nginx = run_load(Target("nginx", child.pid, port), load).microseconds
                report.add("nginx, CPU", nginx, "us")
                for name, microseconds in _costs(gateway, load).items():
                    report.add(f"up to: {name}", microseconds / nginx, "x nginx")
    report.summary = summary(report)
    return report


def _costs(gateway: Gateway, load: Load) -> Mapping[str, float]:
    """Return the microseconds of a request up to the end of each stage."""
    target, costs = Target("cut", gateway.pid, gateway.port, gateway.key), list[float]()
    for cut in CUTS:
        _cut(gateway, cut)
        costs.append(run_load(target, load).microseconds)
    _cut(gateway, WHOLE)
    done = run_load(gateway_target(gateway), load)
    costs += (done.main, done.microseconds)
    return dict(zip(NAMES, costs, strict=True))


def _cut(gateway: Gateway, cut: str) -> None:
    """Cut the gateway, and see that a request comes to the cut.

    Raises:
        BenchError: It does not.
    """
    gateway.child.send_line(cut)
    if gateway.child.receive_object(5.0) != {"cut": cut}:
        raise BenchError(f"the gateway was not cut at {cut}")
    gateway.sent += cut == WHOLE
    body = msgspec.Raw(chat_request(MODEL, stream=False))
    said = str(gateway.expect("POST", FORMATS["chat"].path, body)["id"])
    if (said == f"cut: {cut}") != (cut in tuple(CUTS)[:ANSWERING]):
        raise BenchError(f"requests do not pass where the gateway is cut: {cut}")


def summary(report: Report) -> str:
    """Return the stages and their sum as a table."""
    rows = [["stage", "x nginx", f"us, nginx at {_QUIET_MICROSECONDS:g}", "up to its end"]]
    before = 0.0
    for name, figure in report.figures.items():
        if name.startswith("up to: "):
            total = median(figure.values)
            part = total - before
            cells = (f"{part:.2f}", f"{part * _QUIET_MICROSECONDS:.0f}", f"{total:.2f}")
            rows.append([name.removeprefix("up to: "), *cells])
            before = total
    return table([*rows, ["sum", f"{before:.2f}", f"{before * _QUIET_MICROSECONDS:.0f}", ""]])
