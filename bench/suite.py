"""Runs the measurements: which processes, which loads, in which order."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench import cpu, nginx
from bench.cases import CASES, SLOW, WHOLE
from bench.gateway import Gateway, booked, write_config
from bench.hangups import hang_ups
from bench.money import measure as measure_money
from bench.processes import BenchError
from bench.target import Load, Target, gateway_target, measure, start_upstream, upstream_target

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.cases import Case
    from bench.gateway import Keys
    from bench.target import Round, Upstream


@dataclass(frozen=True, slots=True)
class Dose:
    """How much is measured."""

    rounds: int = 5
    whole: int = 5_000
    """Requests of a round, plain or over TLS."""
    stream: int = 500
    concurrency: int = 32
    chunk_interval_ms: float = 5.0
    crowd: int = 1_000
    """Streams at once."""
    crowd_interval_ms: float = 200.0
    crowd_rounds: int = 2
    paced: int = 500
    """Requests of a round at a steady rate."""
    paced_rounds: int = 4
    hang_ups: int = 300
    money: int = 20_000
    """Requests of a round of the money alone."""
    money_rounds: int = 3
    few: int = 1_000
    """Requests before memory is measured first, and before it is measured again."""
    many: int = 100_000
    starts: int = 3
    idle_seconds: float = 2.0

    def load(self, case: Case) -> Load:
        """Return one round of a case."""
        return Load(self.stream if case.stream else self.whole, self.concurrency)


QUICK = Dose(
    rounds=2,
    whole=200,
    stream=40,
    chunk_interval_ms=1.0,
    crowd=50,
    crowd_interval_ms=10.0,
    crowd_rounds=1,
    paced=25,
    paced_rounds=1,
    hang_ups=5,
    money=320,
    money_rounds=1,
    few=100,
    many=400,
    starts=1,
    idle_seconds=0.2,
)
RATE: Final = 50.0
"""Requests a second, where added latency is measured: far from what saturates anything."""


@dataclass(slots=True)
class Figures:
    """All figures."""

    rounds: dict[str, dict[str, list[Round]]] = field(default_factory=dict)
    """Case -> server -> its rounds."""
    crowd: dict[str, list[Round]] = field(default_factory=dict)
    """Server -> its rounds with many streams at once."""
    paced: dict[str, list[Round]] = field(default_factory=dict)
    """Server -> its rounds at a steady rate."""
    hang_ups: list[float] = field(default_factory=list)
    """Milliseconds from a client's hang-up until the provider sees it."""
    money: list[Mapping[str, float]] = field(default_factory=list)
    """Microseconds of each billing step, round by round."""
    ready_fresh: list[float] = field(default_factory=list)
    ready_existing: list[float] = field(default_factory=list)
    ready_cpu: list[float] = field(default_factory=list)
    """CPU seconds of the process until it is ready in an existing folder."""
    idle_simulated: int = 0
    """Resident bytes after the start, as are the next two."""
    idle_provider: int = 0
    loaded: int = 0
    """After all rounds."""
    crowded: int = 0
    """The most resident bytes with many streams at once."""
    after_few: int = 0
    after_many: int = 0
    load_average: float = 0.0
    """The machine's load in the minute before: above 0, others disturb the figures."""
    sent: int = 0
    booked: int = 0

    def of(self, case: str, server: str) -> list[Round]:
        """Return the rounds of one server."""
        return self.rounds.setdefault(case, {}).setdefault(server, [])


def report_progress(text: str) -> None:
    """Print the progress on standard error."""
    print(text, file=sys.stderr, flush=True)


class Suite:
    """One run of all measurements."""

    def __init__(self, folder: Path, dose: Dose, nginx_program: str | None) -> None:
        """Plan a run.

        Args:
            folder: An empty folder for data and configurations.
            dose: How much.
            nginx_program: Where nginx is; None to measure the gateway alone.
        """
        self._folder = folder
        self._dose = dose
        self._nginx = nginx_program
        self._figures = Figures(load_average=os.getloadavg()[0])

    def run(self) -> Figures:
        """Measure everything.

        Raises:
            BenchError: Something did not start, or answered wrongly.
        """
        dose, figures = self._dose, self._figures
        upstream = start_upstream(
            self._folder / "upstream", dose.chunk_interval_ms, dose.crowd_interval_ms
        )
        with upstream.child:
            config = write_config(self._folder / "provider.yaml", upstream.ports)
            keys = self._starts(config)

            def gateway() -> Gateway:
                return Gateway(self._folder / "data", config, keys, authority=upstream.authority)

            with gateway() as running:
                figures.idle_provider = running.idle_rss(dose.idle_seconds)
                self._compare(running, upstream)
                self._pace(running, upstream)
                figures.loaded = cpu.rss(running.pid)
            with gateway() as running:
                self._crowd(running, upstream)
            with gateway() as running:
                self._grow(running)
        figures.hang_ups = hang_ups(self._folder / "hang-ups", dose.hang_ups)
        self._count_money()
        figures.booked = booked(self._folder / "data")
        if figures.booked != figures.sent:
            raise BenchError(f"{figures.sent} requests were answered, {figures.booked} are booked")
        return figures

    def _compare(self, gateway: Gateway, upstream: Upstream) -> None:
        """Measure the gateway in all cases, beside nginx where that can do them, in turns."""
        with ExitStack() as stack:
            targets = [gateway_target(gateway)]
            if self._nginx is not None:
                child, port = nginx.start(self._nginx, self._folder / "nginx", upstream)
                stack.enter_context(child)
                targets.append(Target("nginx", child.pid, port, prefixed=True))
            for number in range(1, self._dose.rounds + 1):
                for name, case in CASES.items():
                    for target in targets if case.prefix is not None else targets[:1]:
                        done = self._measure(target, case, self._dose.load(case))
                        self._figures.of(name, target.name).append(done)
                        cost = f"{done.microseconds:.1f} us"
                        report_progress(
                            f"{name} {number}/{self._dose.rounds} {target.name}: {cost}"
                        )

    def _pace(self, gateway: Gateway, upstream: Upstream) -> None:
        """Measure latency at a steady rate, beside that of a call without the gateway."""
        load = Load(self._dose.paced, 8, rate=RATE)
        targets = [gateway_target(gateway), upstream_target(upstream, upstream.ports.plain)]
        for number in range(1, self._dose.paced_rounds + 1):
            for target in targets:
                done = self._measure(target, WHOLE, load)
                self._figures.paced.setdefault(target.name, []).append(done)
                report_progress(
                    f"paced {number}/{self._dose.paced_rounds} {target.name}: {done.p50_ms:.2f} ms"
                )

    def _crowd(self, gateway: Gateway, upstream: Upstream) -> None:
        """Measure many streams at once, beside the same without the gateway."""
        load = Load(2 * self._dose.crowd, self._dose.crowd, warmup=0)
        targets = [gateway_target(gateway), upstream_target(upstream, upstream.ports.slow)]
        for number in range(1, self._dose.crowd_rounds + 1):
            for target in targets:
                done = self._measure(target, SLOW, load)
                self._figures.crowd.setdefault(target.name, []).append(done)
                lag = f"p99 of the lag {done.lag_p99_ms:.1f} ms"
                report_progress(f"crowd {number}/{self._dose.crowd_rounds} {target.name}: {lag}")
        self._figures.crowded = cpu.peak_rss(gateway.pid)

    def _grow(self, gateway: Gateway) -> None:
        """Measure memory after few and after many requests."""
        dose, figures, target = self._dose, self._figures, gateway_target(gateway)
        self._measure(target, WHOLE, Load(dose.few, dose.concurrency, warmup=0))
        figures.after_few = gateway.idle_rss(dose.idle_seconds)
        self._measure(target, WHOLE, Load(dose.many - dose.few, dose.concurrency, warmup=0))
        figures.after_many = gateway.idle_rss(dose.idle_seconds)
        report_progress(f"memory after {dose.few} and {dose.many} requests measured")

    def _count_money(self) -> None:
        """Measure the billing steps without HTTP."""
        for number in range(1, self._dose.money_rounds + 1):
            folder = self._folder / f"money-{number}"
            folder.mkdir()
            costs = measure_money(folder, self._dose.money)
            self._figures.money.append(costs)
            report_progress(f"money {number}/{self._dose.money_rounds}: {costs['total']:.1f} us")

    def _measure(self, target: Target, case: Case, load: Load) -> Round:
        done = measure(target, case, load)
        if target.priced:
            self._figures.sent += load.sent
        return done

    def _starts(self, config: Path) -> Keys:
        """Measure several starts; leaves a data folder that was used."""
        folder, dose, figures = self._folder, self._dose, self._figures
        plain = write_config(folder / "simulated.yaml", None)
        with Gateway(folder / "simulated", plain) as gateway:
            figures.idle_simulated = gateway.idle_rss(dose.idle_seconds)
        keys: Keys | None = None
        for number in range(1, dose.starts + 1):
            shutil.rmtree(folder / "data", ignore_errors=True)
            with Gateway(folder / "data", config) as gateway:
                figures.ready_fresh.append(gateway.ready_seconds)
                keys = gateway.keys
            with Gateway(folder / "data", config, keys) as gateway:
                figures.ready_existing.append(gateway.ready_seconds)
                figures.ready_cpu.append(gateway.ready_cpu_seconds)
            report_progress(
                f"start {number}/{dose.starts}: ready after {figures.ready_fresh[-1]:.2f} s in a "
                f"fresh folder, {figures.ready_existing[-1]:.2f} s in an existing one"
            )
        if keys is None:
            raise BenchError("at least one start is needed")
        return keys
