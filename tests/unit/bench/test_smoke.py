"""The whole benchmark and its endurance run, with doses that prove nothing but that they work."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bench.batches.bodies import REPLY_BYTES
from bench.batches.figures import QUICK_BATCHES
from bench.cases import CASES
from bench.egress.figures import BODIES, MITMPROXY, PROXY, QUICK_EGRESS
from bench.egress.figures import CASES as EGRESS_CASES
from bench.endurance import endure
from bench.interns.figures import BESIDE, BOOTS, QUICK_INTERNS
from bench.suite import QUICK

ROOT = Path(__file__).parents[3]


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder of a short path: the gateways below it have sockets, whose paths have 107 bytes."""
    with TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_endurance_samples_memory_under_mixed_traffic(work: Path) -> None:
    done = endure(work, 2, sample_seconds=3.0)
    assert len(done.samples) == 2
    assert done.booked >= done.requests > 400
    assert done.rude == 30


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_a_quick_run_measures_everything_and_leaves_nothing(tmp_path: Path, work: Path) -> None:
    output = tmp_path / "figures.json"
    command = [sys.executable, "-m", "bench", "--quick", "--json", str(output)]
    command += ["--work-dir", str(work)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "50-chunk stream, gateway" in done.stdout
    document = json.loads(output.read_text())
    assert_batches_were_measured(document["batches"]["figures"])
    assert_the_egress_proxy_was_measured(document["egress"]["figures"])
    if document["interns"] is not None:  # a machine may make no sandboxes
        assert_interns_were_measured(document["interns"]["figures"])
    figures = document["figures"]
    assert figures["sent"] == figures["booked"] > 0
    assert "messages on chat, streamed, times chat" in done.stdout
    assert set(figures["rounds"]) == set(CASES)
    for servers in figures["rounds"].values():
        rounds = servers["gateway"]
        assert len(rounds) == QUICK.rounds
        assert all(min(each["microseconds"], each["p50_ms"]) > 0 for each in rounds)
    assert figures["crowd"]["gateway"][0]["lag_p99_ms"] > 0
    assert all(figures["paced"][which][0]["p50_ms"] > 0 for which in ("gateway", "direct"))
    assert min(figures["crowded"], figures["after_few"]) > 0
    assert list(work.iterdir()) == []


def assert_batches_were_measured(figures: dict[str, Any]) -> None:
    items = str(QUICK_BATCHES.largest)
    for rounds in figures["ingests"][items].values():
        assert len(rounds) == QUICK_BATCHES.amounts[0].ingests
        assert all(min(each["child_seconds"], each["child_bytes"]) > 0 for each in rounds)
    (run,), (download,) = figures["runs"][items], figures["downloads"][items]
    assert run["microseconds"] > run["bare_microseconds"] > 0
    assert download["size"] > QUICK_BATCHES.largest * REPLY_BYTES
    assert all(each["requests"] > 0 for each in figures["live"].values())


def assert_the_egress_proxy_was_measured(figures: dict[str, Any]) -> None:
    for name, case in EGRESS_CASES.items():
        if case.through != MITMPROXY or figures["mitmproxy"] is not None:
            (done,) = figures["requests"][name]
            assert done["host"] > 0
            assert (done["proxy"] > 0) == (case.through in {PROXY, MITMPROXY})
            assert (done["server"] > 0) or not case.secret or case.through == MITMPROXY
    assert all(figures["bodies"][name][0]["proxy_seconds"] > 0 for name in BODIES)
    assert figures["hosts"][0]["proxy_ms"] > 0
    memory = figures["memory"]
    assert min(memory["idle"], memory["loaded"], memory["before"], memory["tunnels"]) > 0
    assert len(figures["hosts"]) == QUICK_EGRESS.rounds


def assert_interns_were_measured(figures: dict[str, Any]) -> None:
    assert set(figures["boots"]) == set(BOOTS)
    for boots in figures["boots"].values():
        for boot in boots:
            assert sum(boot["steps"].values()) == pytest.approx(boot["seconds"])
    assert len(figures["boots"][BESIDE]) == QUICK_INTERNS.running[-1] - 1
    assert [each["running"] for each in figures["memory"]] == [0, *QUICK_INTERNS.running]
    assert all(each["daemon"] > each["bubblewrap"] > 0 for each in figures["memory"][1:])
    assert figures["idling"][-1]["server"] > 0
    [run] = figures["first_runs"]
    assert run["first_seconds"] > run["later_seconds"] > 0
    assert run["cpu_seconds"] > 0
    assert run["after"] > run["before"] > 0
