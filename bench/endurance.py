"""An hour of traffic of good and misbehaving clients, and the gateway's memory meanwhile.

    whole, whole over TLS, streams      at a steady rate each, every reply checked to its end
    misbehaving clients                 hang up, send unknown keys, request unknown models

Each minute is a sample of resident memory; the slope is that of the line through the samples
after the first sixth, in which caches fill.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.cases import STREAM, TLS, WHOLE
from bench.gateway import Gateway, booked, write_config
from bench.processes import BenchError, Child
from bench.statistic import slope
from bench.suite import Dose, report_progress
from bench.target import Load, gateway_target, load_result, start_load, start_upstream

if TYPE_CHECKING:
    from pathlib import Path

    from bench.target import Target

_RATES: Final = ((WHOLE, 40.0), (TLS, 20.0), (STREAM, 10.0))
"""Requests a second of each case."""
_MB: Final = 1_000_000
_WARM: Final = 6


@dataclass(slots=True)
class Endurance:
    """The figures of an endurance run."""

    sample_seconds: float
    samples: list[int] = field(default_factory=list[int])
    """Resident bytes after each sample's traffic."""
    requests: int = 0
    """Requests of well-behaved clients, all answered whole."""
    rude: int = 0
    booked: int = 0

    @property
    def warm(self) -> list[int]:
        """The samples that the slope is made of."""
        return self.samples[len(self.samples) // _WARM :]

    @property
    def slope_mb_an_hour(self) -> float:
        """By how much memory grows, in MB an hour; below 0 where it shrinks."""
        return slope(self.warm) / _MB * 3600 / self.sample_seconds


def endure(folder: Path, minutes: int, *, sample_seconds: float = 60.0) -> Endurance:
    """Send mixed traffic for so many minutes.

    Raises:
        BenchError: Something did not start, or a reply was wrong.
    """
    done = Endurance(sample_seconds)
    dose = Dose()
    upstream = start_upstream(folder / "up", dose.chunk_interval_ms, dose.crowd_interval_ms)
    config = write_config(folder / "provider.yaml", upstream.ports)
    with (
        upstream.child,
        Gateway(folder / "data", config, authority=upstream.authority) as gateway,
    ):
        for number in range(1, minutes + 1):
            _traffic(gateway_target(gateway), done)
            done.samples.append(cpu.rss(gateway.pid))
            memory = f"{done.samples[-1] / _MB:.1f} MB"
            report_progress(f"sample {number}/{minutes}: {memory} after {done.requests} requests")
    done.booked = booked(folder / "data")
    if done.booked < done.requests:
        raise BenchError(f"{done.requests} requests were answered, {done.booked} are booked")
    return done


def report(done: Endurance) -> str:
    """Return the figures as lines for people."""
    megabytes = [size / _MB for size in done.samples]
    rates = ", ".join(f"{rate:.0f} {case.title}" for case, rate in _RATES)
    traffic = f"{done.requests} requests answered whole, {done.rude} rude ones"
    memory = (
        f"{megabytes[0]:.1f} MB after the first sample, {megabytes[-1]:.1f} MB after the last, "
        f"{max(megabytes):.1f} MB at the most"
    )
    lines = [
        f"- {len(megabytes)} samples, one each {done.sample_seconds:.0f} s; a second: {rates}",
        f"- {traffic}, {done.booked} generations booked",
        f"- Memory (RSS): {memory}",
        f"- **Slope after the first sixth: {done.slope_mb_an_hour:+.2f} MB an hour**",
    ]
    return "\n".join(lines)


def _traffic(target: Target, done: Endurance) -> None:
    """Send the traffic of one sample, all kinds at once."""
    loads = [
        (case, Load(int(rate * done.sample_seconds), 16, warmup=16, rate=rate))
        for case, rate in _RATES
    ]
    with ExitStack() as stack:
        children = [stack.enter_context(start_load(target, *each)) for each in loads]
        command = [sys.executable, "-m", "bench.misbehaving_clients", "--port", str(target.port)]
        command += ["--model", STREAM.model, "--key", target.key]
        command += ["--seconds", str(done.sample_seconds)]
        rude = stack.enter_context(Child("the rude clients", command, seconds=300.0))
        for child in children:
            child.send_line("go")
        for child in children:
            load_result(child)
        done.rude += int(rude.receive_object()["rude"])
    done.requests += sum(load.sent for _, load in loads)
