"""What batches cost: their ingest, an item of a run, and the live requests beside a run.

submit, cancel (this process)  ──>  gateway with its ingest child (measured)  ──>  upstream
live requests (process)        ──>      │
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from time import monotonic, sleep
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from bench import cpu
from bench.formats import ITEM_BYTES, write_body
from bench.load import Load, gateway_target, load_result, run_load, start_load
from bench.processes import BenchError
from bench.report import MB, percentile
from bench.scenarios import Bench, Figure, require
from bench.servers import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bench.servers import Gateway

_PATH: Final = "/v1/batches"
_LONGEST_SECONDS: Final = 600.0
_ENDLESS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Ingest:
    """The largest batch until it is accepted."""

    rounds: int = 3
    items: int = 50_000
    name: str = "ingest"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Submit one to each gateway, and cancel it."""
        size = self.items * ITEM_BYTES / MB
        body = _body(bench, self.items)
        for side in bench.sides:
            with side.start() as gateway:
                run_to_end(gateway, _body(bench, 1), 1)
                before = cpu.read(gateway.pid)
                with cpu.peak_memory(gateway.pid, 0.1) as memory:
                    batch, began, accepted = submit(gateway, body)
                    used = cpu.cpu_time(before, cpu.read(gateway.pid)).seconds
                gateway.expect("POST", f"{_PATH}/{batch}/cancel")
                _wait(gateway, batch, "cancelled")
            name = f"ingest of {size:.0f} MB"
            yield Figure(side.report, f"{name}, CPU", used, "s", 1.2 * size / 200)
            yield Figure(side.report, f"{name}, until the 202", accepted - began, "s")
            yield Figure(side.report, f"{name}, most memory (PSS)", memory[0] / MB, "MB")


@dataclass(frozen=True, slots=True)
class Item:
    """An item of a batch and a live request, in turns."""

    rounds: int = 3
    items: int = 20_000
    live: int = 5_000
    """Live requests that an item is compared with."""
    name: str = "item"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Run a batch on each gateway."""
        items, body = self.items, _body(bench, self.items)
        for side in bench.sides:
            with side.start() as gateway:
                run_to_end(gateway, _body(bench, 1), 1)
                live = run_load(gateway_target(gateway), Load(MODEL, self.live)).microseconds
                bench.items_received()
                batch, _, accepted = submit(gateway, body)
                before = cpu.read(gateway.pid)
                ended = _wait(gateway, batch, "completed")
                used = cpu.cpu_time(before, cpu.read(gateway.pid)).seconds / items * 1e6
            received = bench.items_received()
            require(received == items, f"{items} items asked the provider {received} times")
            yield Figure(side.report, "batch item over live request", used / live, "x", 0.9)
            yield Figure(side.report, "batch item, CPU", used, "us")
            yield Figure(side.report, "live request, CPU", live, "us")
            yield Figure(side.report, "batch items", items / (ended - accepted), "a second")


@dataclass(frozen=True, slots=True)
class Live:
    """Live requests alone, and while a batch runs."""

    rounds: int = 3
    items: int = 20_000
    rate: float = 50.0
    """Live requests a second."""
    quiet_seconds: float = 12.0
    """How long they have nothing beside them."""
    name: str = "live"
    keeps_running: ClassVar[bool] = False

    def round(self, bench: Bench) -> Iterator[Figure]:
        """Send both to each gateway."""
        load = Load(MODEL, _ENDLESS, concurrency=8, rate=self.rate, each=True)
        for side in bench.sides:
            with side.start() as gateway:
                run_to_end(gateway, _body(bench, 1), 1)
                with start_load(gateway_target(gateway), load) as loading:
                    loading.send_line("go")
                    began = monotonic()
                    sleep(self.quiet_seconds)
                    quiet = (began, monotonic())
                    running = run_to_end(gateway, _body(bench, self.items), self.items)
                    loading.send_line("stop")
                    said = load_result(loading)
            # When each request was due, by the same clock, and how long it took.
            alone, beside = (
                percentile([took for due, took in said["each"] if begin <= due < end], 99) * 1000
                for begin, end in (quiet, running)
            )
            name = "live p99 while a batch runs"
            yield Figure(side.report, f"{name} over without", beside / alone, "x", 2.0)
            yield Figure(side.report, "live p99 without a batch", alone, "ms")
            yield Figure(side.report, name, beside, "ms")


def _body(bench: Bench, items: int) -> Path:
    path = bench.folder / f"{items}.json"
    return path if path.exists() else write_body(path, items)


def submit(gateway: Gateway, body: Path) -> tuple[str, float, float]:
    """Send a batch; return its id, when its first byte was sent, and when the 202 came."""
    with (
        closing(HTTPConnection("127.0.0.1", gateway.port, timeout=300)) as connection,
        body.open("rb") as file,
    ):
        began = monotonic()
        connection.putrequest("POST", _PATH)
        connection.putheader("authorization", f"Bearer {gateway.key}")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", str(body.stat().st_size))
        connection.endheaders()
        connection.sock.sendfile(file)
        response = connection.getresponse()
        accepted, said = monotonic(), response.read()
    require(response.status == 202, f"a batch was answered with {response.status}: {said[:500]!r}")
    return msgspec.json.decode(said)["id"], began, accepted


def run_to_end(gateway: Gateway, body: Path, items: int) -> tuple[float, float]:
    """Run a batch to its end and delete it; return when it was accepted and when it ended."""
    batch, _, accepted = submit(gateway, body)
    ended = _wait(gateway, batch, "completed")
    gateway.expect("DELETE", f"{_PATH}/{batch}")
    gateway.sent += items
    return accepted, ended


def _wait(gateway: Gateway, batch: str, status: str) -> float:
    """Wait until a batch has ended as expected; return the time."""
    deadline = monotonic() + _LONGEST_SECONDS
    query = "SELECT status FROM batches WHERE id = ?"
    while (found := gateway.query(query, batch)) != status:
        if found in {"failed", "expired"} or monotonic() > deadline:
            raise BenchError(f"a batch is {found} that should have {status}")
        sleep(0.02)
    return monotonic()
