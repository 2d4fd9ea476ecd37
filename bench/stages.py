"""Where the CPU time of a whole request goes: a running gateway, cut at growing depth.

A stage costs what a cut behind it costs more than one before it. All cuts are measured in each
round, beside nginx, so that the sum of the stages is the whole request: its journal and its books
are told apart by their threads and processes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from bench.cut_server import ANSWERING, CUTS, WHOLE
from bench.formats import FORMATS, chat_request
from bench.load import Load, Target, gateway_target, run_load
from bench.report import Report, table
from bench.scenarios import Bench, Figure, require
from bench.scenarios import measure as measure_all
from bench.servers import MODEL, NGINX_MISSING, Gateway, find_nginx, nginx_version

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.servers import Tree

NAME: Final = "stages"
NAMES: Final = (*CUTS, "pending, journal", "books")
_QUIET_MICROSECONDS: Final = 14.0
"""Of nginx for a request on a quiet machine."""
_COMMAND: Final = (sys.executable, "-m", "bench.cut_server")


@dataclass(frozen=True, slots=True)
class Stages:
    """A whole request up to each cut."""

    rounds: int = 7
    requests: int = 4_000
    name: str = NAME
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure nginx, then the gateway at each cut."""
        load, [side] = Load(MODEL, self.requests), bench.sides
        gateway = side.gateway
        nginx = bench.beside("", load)
        assert nginx is not None
        yield Figure(side.report, "nginx, CPU", nginx.microseconds, "us")
        target, costs = Target("cut", gateway.pid, gateway.port, gateway.key), list[float]()
        for cut in CUTS:
            _cut(gateway, cut)
            costs.append(run_load(target, load).microseconds)
        _cut(gateway, WHOLE)
        done = run_load(gateway_target(gateway), load)
        for name, cost in zip(NAMES, (*costs, done.main, done.microseconds), strict=True):
            yield Figure(side.report, f"up to: {name}", cost / nginx.microseconds, "x nginx")


FULL: Final = Stages()
QUICK: Final = Stages(3, 1_500)


def measure(folder: Path, tree: Tree, stages: Stages) -> Report:
    """Measure all stages of a whole request."""
    require(find_nginx(), NGINX_MISSING)
    report = Report(
        NAME,
        f"{stages.rounds} rounds of {stages.requests} whole requests for each depth, on 32 "
        f"connections; beside {nginx_version()}",
        tree=tree.name,
    )
    measure_all(folder, [replace(tree, command=_COMMAND)], [report], [stages])
    report.summary = summary(report)
    return report


def _cut(gateway: Gateway, cut: str) -> None:
    """Cut the gateway, and see that a request comes to the cut."""
    gateway.child.send_line(cut)
    cutting = gateway.child.receive_object(5.0) == {"cut": cut}
    require(cutting, f"the gateway was not cut at {cut}")
    gateway.sent += cut == WHOLE
    body = msgspec.Raw(chat_request(MODEL, stream=False))
    said = str(gateway.expect("POST", FORMATS["chat"].path, body)["id"])
    passes = (said == f"cut: {cut}") == (cut in tuple(CUTS)[:ANSWERING])
    require(passes, f"requests do not pass where the gateway is cut: {cut}")


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
