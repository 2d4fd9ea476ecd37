"""The measurements: which processes run, what is sent to whom, in which order."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bench import cpu, nginx
from bench.gateway import Gateway, booked, write_config
from bench.processes import BenchError, Child

if TYPE_CHECKING:
    from pathlib import Path

    from bench.gateway import Keys

CASES = ("whole", "stream")


@dataclass(frozen=True, slots=True)
class Dose:
    """How much is measured."""

    rounds: int = 5
    whole: int = 5_000
    """Requests of a round."""
    stream: int = 500
    concurrency: int = 32
    chunk_interval_ms: float = 5.0
    starts: int = 3
    idle_seconds: float = 2.0

    def requests(self, case: str) -> int:
        """Return the requests of one round of a case."""
        return self.whole if case == "whole" else self.stream


QUICK = Dose(rounds=2, whole=200, stream=40, chunk_interval_ms=1.0, starts=1, idle_seconds=0.2)


@dataclass(frozen=True, slots=True)
class Round:
    """One load on one server."""

    microseconds: float
    """CPU time of the measured process for one request."""
    system_share: float
    main_share: float
    requests_per_second: float
    p50_ms: float
    p99_ms: float
    pieces: float
    """Reads at the client for one reply."""


@dataclass(slots=True)
class Figures:
    """Everything that was measured."""

    rounds: dict[str, dict[str, list[Round]]] = field(default_factory=dict)
    """Case -> server -> its rounds."""
    ready_fresh: list[float] = field(default_factory=list)
    ready_existing: list[float] = field(default_factory=list)
    ready_cpu: list[float] = field(default_factory=list)
    """CPU seconds of the process until it is ready in an existing folder."""
    idle_simulated: int = 0
    """Resident bytes after the start, as are the next two."""
    idle_provider: int = 0
    loaded: int = 0
    """After all rounds."""
    load_average: float = 0.0
    """Of the machine, in the minute before: above 0 others disturb."""
    sent: int = 0
    booked: int = 0

    def of(self, case: str, server: str) -> list[Round]:
        """Return the rounds of one server."""
        return self.rounds.setdefault(case, {}).setdefault(server, [])


@dataclass(frozen=True, slots=True)
class Target:
    """A server that stands between the load and the upstream."""

    name: str
    pid: int
    port: int
    key: str = "none"
    stream_prefix: str = ""
    priced: bool = False


def say(text: str) -> None:
    """Tell the person who waits how far it is."""
    print(text, file=sys.stderr, flush=True)


def start_upstream(dose: Dose) -> tuple[Child, int]:
    """Start the upstream and return it with its port."""
    interval = str(dose.chunk_interval_ms)
    command = [sys.executable, "-m", "bench.upstream", "--chunk-interval-ms", interval]
    child = Child("the upstream", command)
    try:
        return child, int(child.hear()["port"])
    except BaseException:
        child.stop()
        raise


def start_load(target: Target, case: str, dose: Dose, requests: int) -> Child:
    """Start a load, warm up with it, and return it ready to go."""
    prefix = target.stream_prefix if case == "stream" else ""
    command = [sys.executable, "-m", "bench.load", "--port", str(target.port)]
    command += ["--prefix", prefix, "--key", target.key]
    command += ["--requests", str(requests), "--warmup", str(warmup(dose))]
    command += ["--concurrency", str(dose.concurrency)]
    command += ["--stream"] * (case == "stream") + ["--priced"] * target.priced
    child = Child("the load", command, seconds=150.0)
    try:
        child.hear()
    except BaseException:
        child.stop()
        raise
    return child


def warmup(dose: Dose) -> int:
    """Return how many requests go before the measured ones: every connection is used."""
    return 2 * dose.concurrency


def go(load: Child) -> dict[str, Any]:
    """Let a load run and return its result.

    Raises:
        BenchError: A reply was wrong: figures of a server that fails say nothing.
    """
    load.say("go")
    result = load.hear()
    if result["failures"]:
        raise BenchError(f"replies were wrong: {result['failures']}")
    return result


def measure(target: Target, case: str, dose: Dose) -> Round:
    """Send one round of requests and return what they cost the target."""
    with start_load(target, case, dose, dose.requests(case)) as load:
        before = cpu.read(target.pid)
        result = go(load)
        used = cpu.used(before, cpu.read(target.pid))
    requests = int(result["requests"])
    return Round(
        microseconds=used.seconds / requests * 1e6,
        system_share=used.system_share,
        main_share=used.main_share,
        requests_per_second=requests / float(result["seconds"]),
        p50_ms=float(result["p50_ms"]),
        p99_ms=float(result["p99_ms"]),
        pieces=float(result["pieces"]) / requests,
    )


def run(folder: Path, dose: Dose, nginx_program: str | None) -> Figures:
    """Measure everything.

    Args:
        folder: An empty folder for data and configurations.
        dose: How much.
        nginx_program: Where nginx is; None to measure the gateway alone.

    Raises:
        BenchError: Something did not start, or answered wrongly.
    """
    figures = Figures(load_average=os.getloadavg()[0])
    with ExitStack() as stack:
        upstream, upstream_port = start_upstream(dose)
        stack.enter_context(upstream)
        config = write_config(folder / "provider.yaml", upstream_port)
        keys = _starts(folder, config, dose, figures)
        gateway = stack.enter_context(Gateway(folder / "data", config, keys))
        figures.idle_provider = gateway.idle_rss(dose.idle_seconds)
        targets = [gateway_target(gateway)]
        if nginx_program is not None:
            child, port = nginx.start(nginx_program, folder / "nginx", upstream_port)
            stack.enter_context(child)
            targets.append(Target("nginx", child.pid, port, stream_prefix=nginx.UNBUFFERED))
        for case in CASES:
            _rounds(targets, case, dose, figures)
        figures.loaded = cpu.rss(gateway.pid)
    figures.sent = sum(dose.rounds * (dose.requests(case) + warmup(dose)) for case in CASES)
    figures.booked = booked(folder / "data")
    if figures.booked != figures.sent:
        raise BenchError(f"{figures.sent} requests were answered and {figures.booked} are booked")
    return figures


def gateway_target(gateway: Gateway) -> Target:
    """Return the gateway as a target."""
    return Target("gateway", gateway.pid, gateway.port, key=gateway.keys.api_key, priced=True)


def _rounds(targets: list[Target], case: str, dose: Dose, figures: Figures) -> None:
    for number in range(1, dose.rounds + 1):
        for target in targets:
            done = measure(target, case, dose)
            figures.of(case, target.name).append(done)
            say(f"{case} {number}/{dose.rounds} {target.name}: {done.microseconds:.1f} us")


def _starts(folder: Path, config: Path, dose: Dose, figures: Figures) -> Keys:
    """Start it often enough to know how long that takes; leave a folder that was used before."""
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
        say(
            f"start {number}/{dose.starts}: ready after {figures.ready_fresh[-1]:.2f} s in a "
            f"fresh folder, {figures.ready_existing[-1]:.2f} s in an existing one"
        )
    if keys is None:
        raise BenchError("at least one start is needed")
    return keys
