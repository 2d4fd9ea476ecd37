"""What batches cost: their ingest, an item of a run, and the live requests beside a run.

submit, cancel (this process)  ──>  gateway with its ingest child (measured)  ──>  upstream
live requests (process)        ──>      │
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

import msgspec

from bench import cpu
from bench.batch_bodies import ITEM_BYTES, write_body
from bench.load import Load, gateway_target, load_result, run_load, start_load
from bench.processes import BenchError
from bench.report import MB, percentile
from bench.servers import MODEL

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.servers import Gateway, Side, Upstream

_PATH: Final = "/v1/batches"
_LONGEST_SECONDS: Final = 600.0
_ENDLESS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Dose:
    """How much is measured."""

    rounds: int = 3
    ingested: int = 50_000
    """Items of a batch that is only taken."""
    items: int = 20_000
    """Of a batch that runs."""
    live: int = 5_000
    """Live requests that an item is compared with."""
    rate: float = 50.0
    """Live requests a second beside a batch."""
    quiet_seconds: float = 12.0
    """How long they have nothing beside them."""


FULL: Final = Dose()
QUICK: Final = Dose(1, 50_000, 3_000, 1_500, 50.0, 4.0)


class BatchBench:
    """Batches on one gateway after the other, in the same rounds."""

    def __init__(self, sides: list[Side], upstream: Upstream, folder: Path, dose: Dose) -> None:
        self._sides = sides
        self._upstream = upstream
        self._folder = folder
        self._dose = dose

    def ingest(self) -> None:
        """Measure the largest batch until it is accepted, its items before or after the rest."""
        items = self._dose.ingested
        size = items * ITEM_BYTES / MB
        for number in range(self._dose.rounds):
            body = self._body(items, requests_first=bool(number % 2))
            for side in self._sides:
                with side.start() as gateway:
                    run_to_end(gateway, self._body(1), 1)
                    before = cpu.read(gateway.pid)
                    with cpu.PeakMemory(gateway.pid, 0.1) as memory:
                        batch, began, accepted = submit(gateway, body)
                        used = cpu.cpu_time(before, cpu.read(gateway.pid)).seconds
                    gateway.expect("POST", f"{_PATH}/{batch}/cancel")
                    _wait(gateway, batch, "cancelled")
                name = f"ingest of {size:.0f} MB"
                side.report.add(f"{name}, CPU", used, "s", aim=1.2 * size / 200)
                side.report.add(f"{name}, until the 202", accepted - began, "s")
                side.report.add(f"{name}, most memory (PSS)", memory.pss / MB, "MB")

    def item(self) -> None:
        """Measure an item of a batch and a live request, in turns."""
        items = self._dose.items
        body = self._body(items)
        for _ in range(self._dose.rounds):
            for side in self._sides:
                with side.start() as gateway:
                    run_to_end(gateway, self._body(1), 1)
                    live = run_load(gateway_target(gateway), Load(MODEL, self._dose.live))
                    self._received()
                    batch, _, accepted = submit(gateway, body)
                    before = cpu.read(gateway.pid)
                    ended = _wait(gateway, batch, "completed")
                    used = cpu.cpu_time(before, cpu.read(gateway.pid)).seconds / items * 1e6
                if (count := self._received()) != items:
                    raise BenchError(f"{items} items asked the provider {count} times")
                ratio = used / live.microseconds
                side.report.add("batch item over live request", ratio, "x", aim=0.9)
                side.report.add("batch item, CPU", used, "us")
                side.report.add("live request, CPU", live.microseconds, "us")
                side.report.add("batch items", items / (ended - accepted), "a second")

    def live(self) -> None:
        """Measure live requests alone, and while a batch runs."""
        dose = self._dose
        load = Load(MODEL, _ENDLESS, concurrency=8, rate=dose.rate, each=True)
        for _ in range(dose.rounds):
            for side in self._sides:
                with side.start() as gateway:
                    run_to_end(gateway, self._body(1), 1)
                    with start_load(gateway_target(gateway), load) as loading:
                        loading.send_line("go")
                        began = monotonic()
                        sleep(dose.quiet_seconds)
                        quiet = [(began, monotonic())]
                        running = [run_to_end(gateway, self._body(dose.items), dose.items)]
                        loading.send_line("stop")
                        said = load_result(loading)
                alone, beside = (
                    percentile(latencies_within(said["each"], stretches), 99)
                    for stretches in (quiet, running)
                )
                name = "live p99 while a batch runs"
                side.report.add(f"{name} over without", beside / alone, "x", aim=2.0)
                side.report.add("live p99 without a batch", alone, "ms")
                side.report.add(name, beside, "ms")

    def _body(self, items: int, *, requests_first: bool = False) -> Path:
        path = self._folder / f"{items}-{'first' if requests_first else 'last'}.json"
        return write_body(path, items, requests_first=requests_first)

    def _received(self) -> int:
        """Return how many items came to the upstream since the last call."""
        port = self._upstream.plain
        with closing(HTTPConnection("127.0.0.1", port, timeout=300)) as connection:
            connection.request("GET", "/received")
            return int(msgspec.json.decode(connection.getresponse().read())["count"])


def submit(gateway: Gateway, body: Path) -> tuple[str, float, float]:
    """Send a batch; return its id, when its first byte was sent, and when the 202 came.

    Raises:
        BenchError: It is refused.
    """
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
    if response.status != 202:
        raise BenchError(f"a batch was answered with {response.status}: {said[:500]!r}")
    return msgspec.json.decode(said)["id"], began, accepted


def run_to_end(gateway: Gateway, body: Path, items: int) -> tuple[float, float]:
    """Run a batch to its end and delete it; return when it was accepted and when it ended."""
    batch, _, accepted = submit(gateway, body)
    ended = _wait(gateway, batch, "completed")
    gateway.expect("DELETE", f"{_PATH}/{batch}")
    gateway.sent += items
    return accepted, ended


def latencies_within(
    each: Iterable[tuple[float, float]], stretches: list[tuple[float, float]]
) -> list[float]:
    """Return the latencies, in milliseconds, of requests that were due in stretches of time.

    Args:
        each: When a request was due and how long it took, in seconds.
        stretches: When each began and ended, by the same clock.
    """
    return [
        seconds * 1000
        for due, seconds in each
        if any(began <= due < ended for began, ended in stretches)
    ]


def _wait(gateway: Gateway, batch: str, status: str) -> float:
    """Wait until a batch has ended as expected; return the time."""
    deadline = monotonic() + _LONGEST_SECONDS
    query = "SELECT status FROM batches WHERE id = ?"
    while (found := gateway.query(query, batch)) != status:
        if found in {"failed", "expired"} or monotonic() > deadline:
            raise BenchError(f"a batch is {found} that should have {status}")
        sleep(0.02)
    return monotonic()
