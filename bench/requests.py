"""What requests cost: CPU beside nginx, latency, 1,000 streams at once, memory, starts.

Each gateway of a run is measured in the same rounds, in turns with nginx, so that all of them see
the same machine; a ratio is of one round.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.formats import CHUNKS
from bench.load import Load, Target, gateway_target, run_load
from bench.report import MB
from bench.servers import (
    MESSAGES_MODEL,
    MODEL,
    SLOW_MODEL,
    TLS_MODEL,
    TLS_UPSTREAM,
    UNBUFFERED,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.load import Round
    from bench.servers import Side, Upstream

RATE: Final = 50.0
"""Requests a second, where added latency is measured: far from what saturates anything."""
_SHARE: Final = 0.8
"""Of full speed."""


@dataclass(frozen=True, slots=True)
class Case:
    """A client's format and a provider's, whole or streamed."""

    model: str = MODEL
    """Its provider is one port and one format."""
    format: str = "chat"
    """The client's."""
    stream: bool = False
    prefix: str | None = None
    """What nginx has before the path, for the same port; None where nginx is not measured."""


CASES: Final[Mapping[str, Case]] = {
    "whole request": Case(prefix=""),
    "TLS upstream": Case(TLS_MODEL, prefix=TLS_UPSTREAM),
    "50-chunk stream": Case(stream=True, prefix=UNBUFFERED),
    "messages on chat": Case(format="messages"),
    "chat on messages": Case(MESSAGES_MODEL),
    "responses on chat": Case(format="responses"),
    "responses on messages": Case(MESSAGES_MODEL, "responses"),
    "messages on chat, stream": Case(format="messages", stream=True),
    "chat on messages, stream": Case(MESSAGES_MODEL, stream=True),
    "responses on chat, stream": Case(format="responses", stream=True),
    "responses on messages, stream": Case(MESSAGES_MODEL, "responses", stream=True),
}
"""In their order in a round: what is compared is side by side."""
AIMS: Final = {"whole request": 5.0, "TLS upstream": 4.0, "50-chunk stream": 2.0}
"""Times nginx."""
_TRANSLATED_AIM: Final = 2.0
"""Times chat."""


@dataclass(frozen=True, slots=True)
class Dose:
    """How much is measured."""

    rounds: int = 5
    whole: int = 5_000
    """Requests of a round."""
    streamed: int = 500
    few_rounds: int = 3
    """Of what takes longer: a steady rate, a share of full speed, many streams."""
    paced: int = 500
    """Requests of a round at a steady rate."""
    fast_seconds: float = 4.0
    """At a share of full speed."""
    crowd: int = 1_000
    """Streams at once."""
    waves: int = 2
    """How many streams each connection has, one after the other."""
    starts: int = 5
    idle_seconds: float = 5.0


FULL: Final = Dose()
QUICK: Final = Dose(6, 1_000, 100, 2, 150, 1.5, 300, 1, 2, 1.0)


class RequestBench:
    """One run of all measurements of requests."""

    def __init__(
        self,
        sides: list[Side],
        upstream: Upstream,
        dose: Dose,
        nginx: Target | None,
        cases: Mapping[str, Case] = CASES,
    ) -> None:
        """Prepare.

        Args:
            sides: The gateways.
            upstream: What stands behind them.
            dose: How much is measured.
            nginx: What they are compared with; None where it is not installed.
            cases: Which of the cases.
        """
        self._sides = sides
        self._upstream = upstream
        self._dose = dose
        self._nginx = nginx
        self._cases = cases

    def compare(self) -> None:
        """Measure all cases, each beside nginx or beside chat."""
        with self._running():
            for _ in range(self._dose.rounds):
                costs: dict[tuple[str, str], float] = {}
                for name, case in self._cases.items():
                    self._compare_case(name, case, costs)

    def _compare_case(self, name: str, case: Case, costs: dict[tuple[str, str], float]) -> None:
        """Measure a case on all sides; `costs` has what was measured in this round."""
        load = self._load(case)
        beside = None
        if case.prefix is not None and self._nginx is not None:
            beside = self._beside(case.prefix, load).microseconds
        for side in self._in_turns():
            cost = run_load(gateway_target(side.gateway), load).microseconds
            costs[side.name, name] = cost
            side.report.add(f"{name}, CPU", cost, "us")
            if beside is not None:
                side.report.add(f"{name}, nginx, CPU", beside, "us")
                side.report.add(f"{name} over nginx", cost / beside, "x", aim=AIMS[name])
            chat = costs.get((side.name, "50-chunk stream" if case.stream else "whole request"))
            if case.prefix is None and chat is not None:
                side.report.add(f"{name} over chat", cost / chat, "x", aim=_TRANSLATED_AIM)

    def pace(self) -> None:
        """Measure CPU and latency at a steady rate, beside nginx and a call without either."""
        load = Load(MODEL, self._dose.paced, concurrency=8, rate=RATE)
        direct = Target("direct", self._upstream.child.pid, self._upstream.plain)
        at_rate = f"at {RATE:.0f} a second"
        with self._running():
            for _ in range(self._dose.few_rounds):
                theirs = run_load(direct, load)
                beside = None if self._nginx is None else self._beside("", load).microseconds
                for side in self._in_turns():
                    ours, report = run_load(gateway_target(side.gateway), load), side.report
                    if beside is not None:
                        ratio = ours.microseconds / beside
                        report.add(f"CPU {at_rate} over nginx", ratio, "x", aim=3.0)
                        report.add(f"CPU {at_rate}, nginx", beside, "us")
                    report.add(f"CPU {at_rate}", ours.microseconds, "us")
                    report.add(f"added p50 {at_rate}", ours.p50_ms - theirs.p50_ms, "ms", aim=0.5)
                    report.add(f"added p99 {at_rate}", ours.p99_ms - theirs.p99_ms, "ms", aim=1.5)

    def hurry(self) -> None:
        """Measure full speed, then latency at a share of it, whatever becomes of each request."""
        with self._running():
            for side in self._sides:
                run_load(gateway_target(side.gateway), self._load(Case()))
            for _ in range(self._dose.few_rounds):
                for side in self._in_turns():
                    target = gateway_target(side.gateway)
                    fastest = run_load(target, self._load(Case())).per_second
                    rate = _SHARE * fastest
                    requests = int(rate * self._dose.fast_seconds)
                    found = run_load(target, Load(MODEL, requests, concurrency=256, rate=rate))
                    name = f"p99 at {_SHARE * 100:.0f} % of full speed"
                    side.report.add(name, found.p99_ms, "ms", aim=10.0)
                    side.report.add("full speed", fastest, "a second")

    def crowd(self) -> None:
        """Measure many streams at once."""
        crowd = self._dose.crowd
        load = Load(SLOW_MODEL, self._dose.waves * crowd, stream=True, concurrency=crowd, warmup=0)
        name = f"{crowd} streams"
        for _ in range(self._dose.few_rounds):
            for side in self._in_turns():
                with side.start() as gateway, cpu.PeakMemory(gateway.pid) as memory:
                    done = run_load(gateway_target(gateway), load)
                report = side.report
                report.add(f"{name}, CPU an event", done.microseconds / CHUNKS, "us", aim=50.0)
                report.add(f"{name}, memory (PSS)", memory.pss / MB, "MB", aim=120.0)
                report.add(f"{name}, memory (RSS)", memory.rss / MB, "MB")
                report.add(f"{name}, p99 from write to read", done.lag_p99_ms, "ms")

    def start(self) -> None:
        """Measure starts, in a new folder and in one that has a key, and memory after them."""
        dose = self._dose
        for _ in range(dose.starts):
            for side in self._in_turns():
                shutil.rmtree(side.data, ignore_errors=True)
                side.key, report = "", side.report
                with side.start():
                    self._add_start(side, "new folder", aim=1.0)
                with side.start() as gateway:
                    self._add_start(side, "existing folder")
                    idle, resident = gateway.idle_memory(dose.idle_seconds)
                    report.add("idle memory (PSS)", idle / MB, "MB", aim=110.0)
                    report.add("idle memory (RSS)", resident / MB, "MB")

    @staticmethod
    def _add_start(side: Side, folder: str, aim: float | None = None) -> None:
        gateway, add = side.gateway, side.report.add
        add(f"CPU until ready, {folder}", cpu.used(gateway.pid), "s")
        add(f"first reply of inference, {folder}", gateway.first_reply_seconds, "s", aim=aim)
        add(f"ready, {folder}", gateway.ready_seconds, "s", aim=aim)

    def _running(self) -> ExitStack:
        """Start all gateways; the result ends them."""
        stack = ExitStack()
        try:
            for side in self._sides:
                stack.enter_context(side.start())
        except BaseException:
            stack.close()
            raise
        return stack

    def _in_turns(self) -> list[Side]:
        """Return the sides, another one first each time."""
        self._sides.append(self._sides.pop(0))
        return list(self._sides)

    def _beside(self, prefix: str, load: Load) -> Round:
        nginx = self._nginx
        if nginx is None:
            raise ValueError("nginx is not installed")
        return run_load(Target("nginx", nginx.pid, nginx.port, prefix=prefix), load)

    def _load(self, case: Case) -> Load:
        requests = self._dose.streamed if case.stream else self._dose.whole
        return Load(case.model, requests, case.format, case.stream)
