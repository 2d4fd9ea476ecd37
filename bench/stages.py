"""Where the CPU time of a whole request goes: a running gateway, cut at growing depth.

A stage costs what a cut behind it costs more than one before it. All cuts are measured in each
round, beside nginx, so that the sum of the stages is the whole request: its journal and its books
are told apart by their threads and processes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from bench.cut_server import ANSWERING, CUTS, WHOLE
from bench.formats import FORMATS, chat_request
from bench.load import Load, Target, gateway_target, run_load
from bench.processes import BenchError
from bench.scenarios import Bench, Figure, require
from bench.servers import MODEL, NGINX_MISSING, Gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME: Final = "stages"
NAMES: Final = (*CUTS, "pending, journal", "books")


@dataclass(frozen=True, slots=True)
class Stages:
    """What a whole request costs from each cut to the next."""

    rounds: int = 7
    requests: int = 4_000
    name: str = NAME
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure nginx, then the gateway at each cut."""
        load, [side] = Load(MODEL, self.requests), bench.sides
        gateway = side.gateway
        nginx = bench.beside("", load)
        if nginx is None:
            raise BenchError(NGINX_MISSING)
        yield Figure(side.report, "nginx, CPU", nginx.microseconds, "us")
        target, costs = Target("cut", gateway.pid, gateway.port, gateway.key), list[float]()
        for cut in CUTS:
            _cut(gateway, cut)
            costs.append(run_load(target, load).microseconds)
        _cut(gateway, WHOLE)
        done, before = run_load(gateway_target(gateway), load), 0.0
        for name, cost in zip(NAMES, (*costs, done.main, done.microseconds), strict=True):
            yield Figure(side.report, name, (cost - before) / nginx.microseconds, "x nginx")
            before = cost
        yield Figure(side.report, "all of them", before / nginx.microseconds, "x nginx")


FULL: Final = Stages()
QUICK: Final = Stages(3, 1_500)
COMMAND: Final = (sys.executable, "-m", "bench.cut_server")
"""What starts a gateway that can be cut."""


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
