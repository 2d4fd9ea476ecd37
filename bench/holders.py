"""Several processes: how fast they are, and what it costs that they spend one budget together.

workers     1, 2 and 4 of one server, on SQLite
shared      two servers on one PostgreSQL database; what is granted is counted in its rows
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import perf_counter, sleep
from typing import TYPE_CHECKING, ClassVar, Final

from bench import cpu
from bench.load import Load, Round, gateway_target, load_result, run_load, start_load
from bench.report import MB
from bench.scenarios import Bench, Figure
from bench.servers import MODEL
from tests.support.fake_s3 import blobs_at, s3_beside
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.postgresql_server import postgresql_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.servers import Gateway

_RATE: Final = 100.0
"""Requests a second of one budget, at which what is granted is counted."""
_KEYS: Final = "/v1/keys"


@dataclass(frozen=True, slots=True)
class Workers:
    """Full speed of several processes, beside the load and the upstream on the same machine."""

    rounds: int = 3
    requests: int = 5_000
    name: str = "workers"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure a new gateway of this checkout with 1, 2 and 4 workers."""
        report, load = bench.sides[0].report, Load(MODEL, self.requests, warmup=self.requests)
        for number in (1, 2, 4):
            with bench.sides[0].start("--workers", str(number)) as gateway:
                done, name = run_load(gateway_target(gateway), load), f"{number} workers"
                yield Figure(report, f"{name}, memory (PSS)", cpu.memory(gateway.pid) / MB, "MB")
            yield Figure(report, f"{name}, p99 at full speed", done.p99_ms, "ms")
            yield Figure(report, f"{name}, full speed", done.per_second, "a second")
            yield Figure(report, f"{name}, CPU a request", done.microseconds, "us")


@dataclass(frozen=True, slots=True)
class Shared:
    """Two servers of this checkout that spend one budget."""

    rounds: int = 3
    keys: int = 200
    """Whose first requests each wait for a grant."""
    seconds: float = 30.0
    """Of requests at a rate, after a few that make known how much is spent."""
    revoked: int = 5
    name: str = "shared"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Measure one server alone, and then beside the other."""
        report = bench.sides[0].report
        with ExitStack() as stack:
            databases = PostgresqlDatabases(stack.enter_context(postgresql_server()))
            more = {
                "database_url": plain_url(databases.take()),
                "blobs": blobs_at(stack.enter_context(s3_beside())),
                "limits.admission_wait_seconds": 10,
            }
            one = stack.enter_context(bench.sides[0].another("one", more).start())
            key = new_key(one)[0]
            yield Figure(report, "grants a request, one server", self._grants([one], key), "", 0.0)
            other = bench.sides[0].another("two", more)
            other.keys = one.keys
            two = stack.enter_context(other.start())
            grants = self._grants([one, two], key)
            yield Figure(report, "grants a request, two servers", grants, "")
            (new, each), (_, free) = self._requests(two, 1), self._requests(two, 1, limit=None)
            yield Figure(report, "a grant, CPU", each.microseconds - free.microseconds, "us")
            cost = grants * (each.microseconds - free.microseconds)
            yield Figure(report, "grants of a request, CPU", cost, "us", 2.0)
            yield Figure(report, "first request of a key, CPU", new.microseconds, "us")
            new, _ = self._requests(two, 32)
            yield Figure(report, "first requests of keys", new.per_second, "a second")
            for _ in range(self.revoked):
                yield Figure(
                    report, "until a revoked key is refused", _revoked(one, two), "ms", 1e3
                )

    def _grants(self, servers: list[Gateway], key: str) -> float:
        """Return for how many grants a request asks that is one of many, sent to all in turn."""
        rate = _RATE / len(servers)
        load = Load(MODEL, int(rate * self.seconds), concurrency=8, warmup=int(6 * rate), rate=rate)
        with ExitStack() as stack:
            targets = [replace(gateway_target(each), key=key) for each in servers]
            loads = [stack.enter_context(start_load(target, load)) for target in targets]
            before = _granted(servers[0])
            for each in loads:
                each.send_line("go")
            sent = sum(load_result(each)["requests"] for each in loads)
            return (_granted(servers[0]) - before) / sent

    def _requests(
        self, server: Gateway, at_once: int, limit: float | None = 1.0
    ) -> tuple[Round, Round]:
        """Send two requests with each of many new keys: the second ones need a grant, too.

        Nobody spends at a rate yet, so that each was granted just what it needed.
        """
        keys = ",".join(new_key(server, limit)[0] for _ in range(self.keys))
        load = Load(MODEL, self.keys, concurrency=at_once, warmup=0)
        done: list[Round] = []
        for _ in range(2):
            server.sent = _all_booked(server)
            done.append(run_load(replace(gateway_target(server), key=keys), load))
        return done[0], done[1]


def new_key(server: Gateway, limit: float | None = 1e6) -> tuple[str, str]:
    """Make a key; return it and its hash."""
    made = server.expect("POST", _KEYS, {"name": "bench", "limit": limit}, server.keys[1])
    return made["key"], made["data"]["hash"]


def _all_booked(server: Gateway) -> int:
    """Return how many generations there are once what both servers were asked is booked."""
    before = -1
    while (booked := server.booked()) != before:
        before = booked
        sleep(0.5)
    return booked


def _granted(server: Gateway) -> int:
    """Return how many times holders were granted something, or gave something back."""
    return int(server.query("SELECT coalesce(sum(op), 0) FROM holders"))


def _revoked(one: Gateway, two: Gateway) -> float:
    """Delete a key that another server has used; return after how many ms that refuses it."""
    key, key_hash = new_key(one)
    two.expect("GET", "/v1/key", key=key)
    one.expect("DELETE", f"{_KEYS}/{key_hash}", key=one.keys[1])
    began = perf_counter()
    while two.ask("GET", "/v1/key", key=key)[0] != 401:
        sleep(0.001)
    return (perf_counter() - began) * 1e3
