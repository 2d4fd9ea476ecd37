"""What is submitted as a batch, who measures it, and what is said of it."""

import asyncio
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import cast

import pytest

from bench import cpu, results
from bench.batches import report
from bench.batches.bodies import ITEM_BYTES, ITEMS_MODEL, REPLY_BYTES, item, replies, write_body
from bench.batches.bodies import ITEMS_PATH as PATH
from bench.batches.figures import (
    FIRST,
    IDLE,
    INGEST,
    LAST,
    RUN,
    Amount,
    BatchDose,
    BatchFigures,
    Download,
    Ingest,
    Latency,
    Run,
    Stretch,
    latency,
)
from bench.batches.watch import ChildWatch
from bench.load import Plan
from bench.upstream import ReplyTable, Upstream
from tollhouse.settings.stored import BatchSettings

MB = 1_000_000
DOSE = BatchDose((Amount(1_000, 2, 1), Amount(50_000, 2, 1)))


def ingest(seconds: float, megabytes: int) -> Ingest:
    return Ingest(seconds / 4, seconds * 3 / 4, megabytes // 4 * MB, megabytes // 4 * 3 * MB, 2.5)


def measured() -> BatchFigures:
    return BatchFigures(
        ingests={
            items: {LAST: [ingest(0.8, 40), ingest(1.2, 60)], FIRST: [ingest(0.4, 80)]}
            for items in (1_000, 50_000)
        },
        runs={
            1_000: [Run(300.0, 1.0, 2.5, 100.0, 0.1)],
            50_000: [Run(240.0, 50.0, 0.1, 200.0, 5.0)],
        },
        downloads={
            1_000: [Download(0.01, 1 * MB, 4 * MB, 0.1)],
            50_000: [Download(0.5, 90 * MB, 200 * MB, 2.0)],
        },
        peaks={1_000: 120 * MB, 50_000: 310 * MB},
        live={
            IDLE: Latency(100, 1.0, 2.0, 3.0),
            INGEST: Latency(200, 2.0, 12.5, 30.0),
            RUN: Latency(300, 4.0, 8.0, 16.0),
        },
        refused={"status 503: try again": 2},
    )


def test_a_batch_of_50_000_items_is_just_below_what_is_taken() -> None:
    size = 50_000 * ITEM_BYTES + 1_000
    limit = BatchSettings().body_limit_bytes
    assert limit * 0.99 < size < limit


@pytest.mark.parametrize("requests_first", [True, False])
def test_a_body_is_a_batch_with_its_fields_in_either_order(
    tmp_path: Path,
    requests_first: bool,  # noqa: FBT001 - a parameter
) -> None:
    body = write_body(tmp_path / "body.json", 3, requests_first=requests_first).read_bytes()
    batch = json.loads(body)
    assert body.startswith(b'{"requests":') == requests_first
    assert (batch["endpoint"], batch["model"]) == ("/v1/chat/completions", ITEMS_MODEL)
    assert [each["custom_id"] for each in batch["requests"]] == [
        "request-00000",
        "request-00001",
        "request-00002",
    ]
    texts = {each["body"]["messages"][1]["content"] for each in batch["requests"]}
    assert len(texts) == 3


def test_items_and_replies_are_all_of_one_size() -> None:
    assert {len(item(number)) for number in (0, 7, 49_999)} == {ITEM_BYTES - 1}
    assert {len(reply) for reply in replies()} == {REPLY_BYTES}


class Wire:
    """A transport that keeps what is written to it."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)


async def test_the_upstream_counts_items_and_answers_each_with_another_text() -> None:
    upstream, wire = Upstream(0.0, ReplyTable()), Wire()
    upstream.connection_made(cast("asyncio.Transport", wire))
    for target in (f"POST {PATH}", f"POST {PATH}", "GET /asked", "GET /asked"):
        upstream.data_received(f"{target} HTTP/1.1\r\ncontent-length: 2\r\n\r\n{{}}".encode())
    first, second, asked, again = (written.partition(b"\r\n\r\n")[2] for written in wire.writes)
    assert first != second
    assert json.loads(asked)["count"] == 2
    assert json.loads(asked)["first_ns"] > 0
    assert json.loads(again) == {"count": 0, "first_ns": 0}


async def test_a_stopped_load_ends_with_its_running_requests() -> None:
    plan = Plan(b"", lambda _: None, left=10, finished=asyncio.get_running_loop().create_future())
    assert plan.finished is not None
    plan.take()
    plan.stop()
    assert not plan.finished.done()
    plan.end(None)
    assert plan.finished.done()
    assert (plan.good, plan.take()) == (1, False)


def test_latency_counts_what_was_due_in_a_stretch() -> None:
    each = [(1.0, 0.001), (2.0, 0.002), (3.0, 0.003), (4.0, 0.5)]
    found = latency(each, [Stretch(0.5, 1.5), Stretch(2.5, 4.0)])
    assert found == Latency(2, 3.0, 3.0, 3.0)
    assert latency(each, []) == Latency(0, 0.0, 0.0, 0.0)


def test_cpu_time_of_children_that_have_ended_is_known() -> None:
    line = "1 (x) S " + " ".join(str(number) for number in range(100, 140))
    hertz = os.sysconf("SC_CLK_TCK")
    assert cpu.parse_stat(line, of_ended=True) == cpu.Ticks(112 / hertz, 113 / hertz)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux' /proc")
def test_a_childs_memory_is_known_after_its_end() -> None:
    code = "import time; kept = bytearray(40_000_000); time.sleep(0.3)"
    with ChildWatch(os.getpid()) as watch:
        subprocess.run([sys.executable, "-S", "-c", code], check=True)
    assert watch.peak > 40 * MB


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux' /proc")
def test_a_peak_is_forgotten() -> None:
    code = "del kept; cpu.forget_peak(os.getpid()); print(cpu.peak_rss(os.getpid()))"
    code = f"import os; from bench import cpu; kept = bytearray(90_000_000); {code}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 90 * MB


def rows_of(text: str, name: str) -> list[str]:
    """Return the cells behind a row's name."""
    return next(line for line in text.splitlines() if line.startswith(name))[len(name) :].split()


def test_ingest_is_reported_with_median_times_and_peak_memory() -> None:
    text = report.ingest_table(measured())
    cells = ["1.00", "0.25", "0.75", "60", "15", "45", "2.50"]
    assert rows_of(text, "50000 items, requests last") == cells
    assert rows_of(text, "1000 items, requests first")[0] == "0.40"


def test_a_run_is_reported_beside_the_bare_loop() -> None:
    cells = ["240", "200", "1.20", "50.0", "1000", "10000", "0.100"]
    assert rows_of(report.run_table(measured()), "50000 items") == cells


def test_results_are_reported_with_peak_memory() -> None:
    cells = ["200", "0.50", "100", "90", "310"]
    assert rows_of(report.read_table(measured()), "50000 items") == cells


def test_live_requests_are_reported_by_concurrent_activity() -> None:
    text = report.live_table(measured(), DOSE)
    assert "50/s" in text
    assert rows_of(text, "during ingest") == ["2.0", "12.5", "30.0", "200"]
    assert text.endswith("not answered, 2 times: status 503: try again")


def test_aims_are_those_of_the_largest_batches() -> None:
    found = {each.name: (each.measured, each.verdict) for each in report.verdicts(measured(), DOSE)}
    assert found == {
        "ingest of 50000 items, requests last, CPU": ("1.00 s", "met"),
        "ingest of 50000 items, requests first, CPU": ("0.40 s", "met"),
        "ingest of 50000 items, more memory": ("80 MB", "missed by 16 MB (25 %)"),
        "p99 of live requests during ingest": ("12.5 ms", "missed by 2.5 ms (25 %)"),
        "live requests that were refused": ("2", "missed by 2"),
        "CPU for an item over the bare loop": ("1.20 x", "met"),
        "50000 items from the 202 to the end": ("50.0 s", "met"),
        "first item at the provider after the 202 (slowest)": (
            "2.50 s",
            "missed by 0.50 s (25 %)",
        ),
        "results of 50000 items, more memory": ("90 MB", "missed by 26 MB (41 %)"),
        "memory at the most, 50000 items": ("310 MB", "missed by 10 MB (3 %)"),
    }


def test_the_report_has_every_table() -> None:
    text = report.text(measured(), DOSE)
    for title in ("ingest", "from the 202 to the end", "results", "live requests", "aim"):
        assert any(line.startswith(title) for line in text.splitlines())


def test_the_section_of_batches_has_a_place_of_its_own() -> None:
    command = 'make bench ARGS="--batches --write-results"'
    written = results.batches_section(measured(), DOSE, date(2030, 1, 2), command)
    assert "- Date: 2030-01-02" in written
    assert "nginx" not in written
    assert "| memory at the most, 50000 items | 310 MB | <= 300 MB |" in written
    document = results.RESULTS.read_text(encoding="utf-8")
    renewed = results.replace_section(document, written, results.BATCHES_BEGIN)
    before, _, rest = document.partition(results.BATCHES_BEGIN)
    assert renewed.startswith(before)
    assert renewed.endswith(rest.partition(results.END)[2])
    assert results.batches_document(measured(), DOSE)["aims"]
