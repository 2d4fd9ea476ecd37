"""The whole benchmark and its endurance run, with doses that prove nothing but that they work."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench import batches, comparison, endurance, requests
from bench.requests import CASES
from bench.servers import this_tree

ROOT = Path(__file__).parents[3]
SMALL = comparison.Dose(
    comparison.PARTS,
    requests.Dose(2, 100, 20, 1, 10, 0.2, 20, 1, 1, 0.1),
    batches.Dose(1, 100, 100, 100, 50.0, 0.5),
)


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder of a short path: the gateways below it have sockets, whose paths have 107 bytes."""
    with TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_endurance_samples_memory_under_mixed_traffic(work: Path) -> None:
    figures = endurance.measure(work, 2, this_tree(), sample_seconds=3.0).figures
    assert len(figures["memory of all processes (PSS)"].values) == 2
    [answered], [booked] = (
        figures[name].values for name in ("requests answered whole", "generations booked")
    )
    assert booked >= answered > 400


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_two_checkouts_are_measured_in_the_same_rounds(work: Path) -> None:
    trees = [this_tree(), this_tree({"logging.level": "error"})]
    ours, theirs = (report.figures for report in comparison.measure(work, trees, SMALL))
    for name in CASES:
        assert len(ours[f"{name}, CPU"].values) == len(theirs[f"{name}, CPU"].values) == 2
    assert ours["messages on chat, stream over chat"].aim == 2.0
    for name in (
        "whole request over nginx",
        "CPU at 50 a second over nginx",
        "p99 at 80 % of full speed",
        "20 streams, CPU an event",
        "first reply of inference, new folder",
        "idle memory (PSS)",
        "ingest of 0 MB, CPU",
        "batch item over live request",
        "live p99 while a batch runs over without",
    ):
        assert min(ours[name].values) > 0
        assert min(theirs[name].values) > 0
