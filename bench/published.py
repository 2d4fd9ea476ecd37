"""Figures in the forms in which gateways publish theirs.

eight at once    microseconds of a core for a request, with eight of them under way
frontier         the best rate at which the slowest of a hundred requests take at most so long
long prompts     50,000 and 100,000 tokens, of a key that has a limit
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Final

from bench.holders import new_key
from bench.load import Load, gateway_target, run_load
from bench.scenarios import Bench, Figure
from bench.servers import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.load import Target

_BOUNDS_MS: Final = (1, 5, 10, 50, 100)
_SHARES: Final = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Of full speed: the rates of the frontier."""
_TOKEN_BYTES: Final = 4
_PROMPTS: Final = (50_000, 100_000)
"""Tokens. The longer one's body is one that a worker reads."""


@dataclass(frozen=True, slots=True)
class Published:
    """All three, for each gateway."""

    rounds: int = 3
    requests: int = 5_000
    seconds: float = 4.0
    """At each rate of the frontier."""
    long: int = 200
    """Requests with each of the long prompts."""
    name: str = "published"
    keeps_running: ClassVar[bool] = True

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure all gateways."""
        eight = Load(MODEL, self.requests, concurrency=8, warmup=self.requests)
        beside = bench.beside("", eight)
        for side in bench.in_turns():
            target, report = gateway_target(side.gateway), side.report
            done = run_load(target, eight)
            yield Figure(report, "eight at once, CPU", done.microseconds, "us")
            yield Figure(report, "eight at once", done.per_second, "a second")
            if beside is not None:
                yield Figure(report, "eight at once, nginx, CPU", beside.microseconds, "us")
            for bound, rate in self._frontier(target, done.per_second).items():
                yield Figure(report, f"best rate at p99 <= {bound} ms", rate, "a second")
            limited = replace(target, key=new_key(side.gateway)[0])
            for tokens in _PROMPTS:
                size, name = tokens * _TOKEN_BYTES, f"prompt of {tokens:,} tokens"
                load = Load(MODEL, self.long, concurrency=8, prompt_bytes=size)
                done = run_load(limited, load)
                yield Figure(report, f"{name}, CPU", done.microseconds / 1e3, "ms")
                yield Figure(report, name, done.per_second, "a second")
                yield Figure(report, f"{name}, p99", done.p99_ms, "ms")

    def _frontier(self, target: Target, fastest: float) -> dict[int, float]:
        """Return the best rate for each bound; 0 where even the lowest rate is too much."""
        best = dict.fromkeys(_BOUNDS_MS, 0.0)
        for share in _SHARES:
            rate = share * fastest
            load = Load(MODEL, int(rate * self.seconds), concurrency=256, rate=rate)
            p99 = run_load(target, load).p99_ms
            best |= {bound: rate for bound in _BOUNDS_MS if p99 <= bound}
            if p99 > _BOUNDS_MS[-1]:
                break
        return best
