"""What requests cost: CPU beside nginx, latency, 1,000 streams at once, memory, starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, ClassVar, Final

from bench import cpu
from bench.formats import CHUNKS
from bench.load import Load, Target, gateway_target, run_load
from bench.report import MB
from bench.scenarios import Bench, Figure
from bench.servers import (
    MESSAGES_MODEL,
    MODEL,
    SLOW_MODEL,
    TLS_MODEL,
    TLS_UPSTREAM,
    UNBUFFERED,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.servers import Side

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
class Compared:
    """All cases, each beside nginx or beside chat."""

    rounds: int = 5
    whole: int = 5_000
    """Requests of a round."""
    streamed: int = 500
    names: tuple[str, ...] = tuple(CASES)
    name: str = "cases"
    keeps_running: ClassVar[bool] = True

    def load(self, case: Case) -> Load:
        """Return the load of a case."""
        requests = self.streamed if case.stream else self.whole
        return Load(case.model, requests, case.format, case.stream)

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure each case on all gateways."""
        costs: dict[tuple[str, str], float] = {}
        for name, case in CASES.items():
            if name not in self.names:
                continue
            load = self.load(case)
            beside = bench.beside(case.prefix, load)
            for side in bench.in_turns():
                cost = run_load(gateway_target(side.gateway), load).microseconds
                costs[side.name, name] = cost
                yield Figure(side.report, f"{name}, CPU", cost, "us")
                if beside is not None:
                    nginx = beside.microseconds
                    yield Figure(side.report, f"{name}, nginx, CPU", nginx, "us")
                    yield Figure(side.report, f"{name} over nginx", cost / nginx, "x", AIMS[name])
                chat = costs.get((side.name, "50-chunk stream" if case.stream else "whole request"))
                if case.prefix is None and chat is not None:
                    ratio = cost / chat
                    yield Figure(side.report, f"{name} over chat", ratio, "x", _TRANSLATED_AIM)


@dataclass(frozen=True, slots=True)
class Paced:
    """CPU and latency at a steady rate, beside nginx and a call without either."""

    rounds: int = 3
    requests: int = 500
    name: str = "paced"
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure the upstream itself, nginx, and all gateways."""
        load = Load(MODEL, self.requests, concurrency=8, rate=RATE)
        at_rate = f"at {RATE:.0f} a second"
        theirs = run_load(Target("direct", bench.upstream.child.pid, bench.upstream.plain), load)
        beside = bench.beside("", load)
        for side in bench.in_turns():
            ours, report = run_load(gateway_target(side.gateway), load), side.report
            if beside is not None:
                ratio = ours.microseconds / beside.microseconds
                yield Figure(report, f"CPU {at_rate} over nginx", ratio, "x", 3.0)
                yield Figure(report, f"CPU {at_rate}, nginx", beside.microseconds, "us")
            yield Figure(report, f"CPU {at_rate}", ours.microseconds, "us")
            yield Figure(report, f"added p50 {at_rate}", ours.p50_ms - theirs.p50_ms, "ms", 0.5)
            yield Figure(report, f"added p99 {at_rate}", ours.p99_ms - theirs.p99_ms, "ms", 1.5)


@dataclass(frozen=True, slots=True)
class Fast:
    """Full speed, then latency at a share of it, whatever becomes of each request."""

    rounds: int = 3
    requests: int = 5_000
    seconds: float = 4.0
    """At a share of full speed."""
    name: str = "fast"
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure all gateways."""
        for side in bench.in_turns():
            target = gateway_target(side.gateway)
            fastest = run_load(target, Load(MODEL, self.requests, warmup=self.requests)).per_second
            rate = _SHARE * fastest
            load = Load(MODEL, int(rate * self.seconds), concurrency=256, rate=rate)
            name = f"p99 at {_SHARE * 100:.0f} % of full speed"
            yield Figure(side.report, name, run_load(target, load).p99_ms, "ms", 10.0)
            yield Figure(side.report, "full speed", fastest, "a second")


@dataclass(frozen=True, slots=True)
class Crowd:
    """Many streams at once."""

    rounds: int = 3
    streams: int = 1_000
    waves: int = 2
    """How many streams each connection has, one after the other."""
    name: str = "crowd"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure a new gateway of each checkout."""
        size = self.streams
        load = Load(SLOW_MODEL, self.waves * size, stream=True, concurrency=size, warmup=0)
        name = f"{size} streams"
        for side in bench.in_turns():
            with side.start() as gateway, cpu.peak_memory(gateway.pid) as memory:
                done = run_load(gateway_target(gateway), load)
            report = side.report
            yield Figure(report, f"{name}, CPU an event", done.microseconds / CHUNKS, "us", 50.0)
            yield Figure(report, f"{name}, memory (PSS)", memory[0] / MB, "MB", 120.0)
            yield Figure(report, f"{name}, p99 from write to read", done.lag_p99_ms, "ms")


@dataclass(frozen=True, slots=True)
class Start:
    """Starts, in a new folder and in one that has a key, and memory after them."""

    rounds: int = 5
    idle_seconds: float = 5.0
    name: str = "start"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Start each checkout's gateway twice."""
        for side in bench.in_turns():
            shutil.rmtree(side.data, ignore_errors=True)
            side.keys = ()
            with side.start():
                yield from self._figures(side, "new folder", aim=1.0)
            with side.start() as gateway:
                yield from self._figures(side, "existing folder")
                sleep(self.idle_seconds)
                idle = cpu.memory(gateway.pid) / MB
                yield Figure(side.report, "idle memory (PSS)", idle, "MB", 110.0)

    @staticmethod
    def _figures(side: Side, folder: str, aim: float | None = None) -> Iterator[Figure]:
        gateway, report = side.gateway, side.report
        used = cpu.cpu_time({}, cpu.read(gateway.pid)).seconds
        yield Figure(report, f"CPU until ready, {folder}", used, "s")
        first = gateway.first_reply_seconds
        yield Figure(report, f"first reply of inference, {folder}", first, "s", aim)
        yield Figure(report, f"ready, {folder}", gateway.ready_seconds, "s", aim)
