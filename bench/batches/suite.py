"""Runs the measurements of batches.

Of each size a gateway of its own: batches that are only taken, in both orders of fields, each
cancelled once it is taken; then batches that run to their end and are read, each with the bare loop
right after it. At last a gateway that answers live requests meanwhile.
"""

from __future__ import annotations

import os
import sys
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from bench import cpu
from bench.batches.bodies import write_body
from bench.batches.client import BatchClient, items_received
from bench.batches.figures import (
    FIRST,
    IDLE,
    INGEST,
    LAST,
    ORDERS,
    RUN,
    BatchFigures,
    Download,
    Ingest,
    Run,
    Stretch,
    latency,
)
from bench.batches.watch import ChildWatch
from bench.cases import WHOLE
from bench.gateway import Gateway, status_of_batch, write_config
from bench.processes import BenchError, Child
from bench.suite import report_progress
from bench.target import Load, gateway_target, start_load, start_upstream

if TYPE_CHECKING:
    from pathlib import Path

    from bench.batches.client import Submitted
    from bench.batches.figures import Amount, BatchDose
    from bench.target import Upstream

_PAUSE: Final = 0.02
_LONGEST_SECONDS: Final = 600.0
_ENDLESS: Final = 1_000_000_000
_MB: Final = 1_000_000


class BatchSuite:
    """One run of all measurements of batches."""

    def __init__(self, folder: Path, dose: BatchDose) -> None:
        """Plan a run.

        Args:
            folder: An empty folder for data, bodies and configurations.
            dose: How much.
        """
        self._folder = folder
        self._dose = dose
        self._figures = BatchFigures(load_average=os.getloadavg()[0])

    def run(self) -> BatchFigures:
        """Measure everything.

        Raises:
            BenchError: Something did not start, or answered wrongly.
        """
        upstream = start_upstream(self._folder / "upstream", 5.0, 200.0)
        with upstream.child:
            config = write_config(self._folder / "batches.yaml", upstream.ports)
            for amount in self._dose.amounts:
                data = self._folder / f"data-{amount.items}"
                with Gateway(data, config) as gateway:
                    self._measure(BatchBench(gateway, data, upstream), amount)
            data = self._folder / "data-live"
            with Gateway(data, config) as gateway:
                self._live(BatchBench(gateway, data, upstream))
        return self._figures

    def _measure(self, bench: BatchBench, amount: Amount) -> None:
        """Measure batches of one size."""
        items, figures = amount.items, self._figures
        bodies = {order: self._body(items, order) for order in ORDERS}
        bench.run(self._body(1, LAST))
        cpu.forget_peak(bench.pid)
        ingests = figures.ingests[items] = {order: [] for order in ORDERS}
        for number in range(1, amount.ingests + 1):
            for order, body in bodies.items():
                taken = bench.ingest(body)
                ingests[order].append(taken)
                report_progress(
                    f"ingest {number}/{amount.ingests} of {items} items, {order}: "
                    f"{taken.cpu_seconds:.2f} s of CPU, {taken.more_bytes / _MB:.0f} MB"
                )
                figures.peaks[items] = max(figures.peaks.get(items, 0), cpu.peak_rss(bench.pid))
        for number in range(1, amount.runs + 1):
            ran, read, peak = bench.whole(bodies[LAST], items)
            figures.runs.setdefault(items, []).append(ran)
            figures.downloads.setdefault(items, []).append(read)
            figures.peaks[items] = max(figures.peaks[items], peak)
            report_progress(
                f"run {number}/{amount.runs} of {items} items: {ran.microseconds:.0f} us an item, "
                f"{ran.bare_microseconds:.0f} us bare"
            )

    def _live(self, bench: BatchBench) -> None:
        """Measure live requests: alone, during ingest, and while a batch runs."""
        dose = self._dose
        body = self._body(dose.largest, FIRST)
        small = self._body(dose.live_items, LAST)
        bench.run(self._body(1, LAST))
        load = Load(_ENDLESS, 8, rate=dose.rate, each=True)
        stretches: dict[str, list[Stretch]] = {INGEST: []}
        with start_load(gateway_target(bench.gateway), WHOLE, load) as loading:
            loading.send_line("go")
            began = monotonic()
            sleep(dose.idle_seconds)
            stretches[IDLE] = [Stretch(began, monotonic())]
            for number in range(1, dose.live_ingests + 1):
                stretches[INGEST].append(bench.take(body))
                report_progress(f"live requests during ingest {number}/{dose.live_ingests}")
            stretches[RUN] = [bench.run(small)]
            loading.send_line("stop")
            said = loading.receive_object()
        # A request that is refused beside a batch is a finding, and no reason to end the run.
        self._figures.refused = said["failures"]
        each = said["each"]
        for name in (IDLE, INGEST, RUN):
            self._figures.live[name] = latency(each, stretches[name])

    def _body(self, items: int, order: str) -> Path:
        path = self._folder / f"{items}-{order.replace(' ', '-')}.json"
        return path if path.exists() else write_body(path, items, requests_first=order == FIRST)


class BatchBench:
    """A gateway and the clients that measure it."""

    def __init__(self, gateway: Gateway, data: Path, upstream: Upstream) -> None:
        self.gateway = gateway
        self.pid = gateway.pid
        self._data = data
        self._upstream = upstream
        self._client = BatchClient(gateway)

    def ingest(self, body: Path) -> Ingest:
        """Measure a batch until it is accepted, and cancel it."""
        pid = self.pid
        resident = cpu.rss(pid)
        cpu.forget_peak(pid)
        before, ended = cpu.read(pid), cpu.ended(pid)
        with ChildWatch(pid) as watch:
            taken = self._client.submit(body)
            used = cpu.cpu_time(before, cpu.read(pid))
            peak = cpu.peak_rss(pid)
        child_seconds = cpu.ended(pid).total - ended.total
        self._discard(taken)
        return Ingest(used.seconds, child_seconds, peak - resident, watch.peak, taken.seconds)

    def take(self, body: Path) -> Stretch:
        """Submit a batch, cancel it, and return the seconds until the 202."""
        taken = self._client.submit(body)
        self._discard(taken)
        return Stretch(taken.began, taken.accepted)

    def run(self, body: Path) -> Stretch:
        """Run a batch to its end, delete it, and return how long that took."""
        taken = self._client.submit(body)
        stretch = Stretch(taken.accepted, self._end(taken, "completed"))
        self._client.delete(taken.id)
        return stretch

    def whole(self, body: Path, items: int) -> tuple[Run, Download, int]:
        """Measure a batch from its 202 to the last byte of its results, and the bare loop.

        Returns:
            Its run, its results, and the most resident memory from its first byte on.
        """
        pid, port = self.pid, self._upstream.ports.plain
        items_received(port)
        cpu.forget_peak(pid)
        taken = self._client.submit(body)
        before = cpu.read(pid)
        ended = self._end(taken, "completed")
        used = cpu.cpu_time(before, cpu.read(pid))
        count, first = items_received(port)
        if count != items:
            raise BenchError(f"a batch of {items} items asked the provider {count} times")
        peak = cpu.peak_rss(pid)
        read = self._download(taken, items)
        peak = max(peak, cpu.peak_rss(pid))
        self._client.delete(taken.id)
        bare_cpu, bare_seconds = self._bare(items)
        run = Run(
            microseconds=used.seconds / items * 1e6,
            seconds=ended - taken.accepted,
            first_seconds=max(0.0, first - taken.accepted),
            bare_microseconds=bare_cpu / items * 1e6,
            bare_seconds=bare_seconds,
        )
        return run, read, peak

    def _download(self, taken: Submitted, items: int) -> Download:
        resident = cpu.rss(self.pid)
        cpu.forget_peak(self.pid)
        before = cpu.read(self.pid)
        read = self._client.read(taken.id)
        used = cpu.cpu_time(before, cpu.read(self.pid))
        if read.answered != items:
            raise BenchError(f"of {items} items {read.answered} were answered")
        more = cpu.peak_rss(self.pid) - resident
        return Download(used.seconds, more, read.size, read.seconds)

    def _bare(self, items: int) -> tuple[float, float]:
        command = [sys.executable, "-m", "bench.batches.baseline"]
        command += ["--port", str(self._upstream.ports.plain), "--items", str(items)]
        with Child("the bare loop", command, seconds=300.0) as child:
            child.receive_object()
            child.send_line("go")
            said = child.receive_object()
        items_received(self._upstream.ports.plain)
        return float(said["cpu_seconds"]), float(said["seconds"])

    def _discard(self, taken: Submitted) -> None:
        self._client.cancel(taken.id)
        self._end(taken, "cancelled")
        self._client.delete(taken.id)

    def _end(self, taken: Submitted, status: str) -> float:
        """Wait until a batch has ended as expected; return the time."""
        deadline = monotonic() + _LONGEST_SECONDS
        while (found := status_of_batch(self._data, taken.id)) != status:
            if found in {"failed", "expired"} or monotonic() > deadline:
                raise BenchError(f"a batch is {found} that should have {status}")
            sleep(_PAUSE)
        return monotonic()
