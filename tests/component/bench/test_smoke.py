"""The whole benchmark and its endurance run, with doses that prove nothing but that they work."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench import comparison
from bench.batches import Ingest, Item, Live
from bench.endurance import NAME, Endurance
from bench.holders import Shared, Workers
from bench.published import Published
from bench.requests import CASES, Compared, Crowd, Fast, Paced, Start
from bench.servers import this_tree

SMALL = (
    Compared(2, 100, 20),
    Paced(1, 10),
    Fast(1, 100, 0.2),
    Workers(1, 100),
    Shared(1, 5, 0.5, 1),
    Crowd(1, 20, 1),
    Start(1, 0.1),
    Ingest(1, 100),
    Item(1, 100, 100),
    Live(1, 100, 50.0, 0.5),
    Published(1, 100, 0.2, 5),
)

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


@pytest.fixture
def work() -> Iterator[Path]:
    """A folder of a short path: the gateways below it have sockets, whose paths have 107 bytes."""
    with TemporaryDirectory(prefix="bench-") as folder:
        yield Path(folder)


def test_endurance_samples_memory_under_mixed_traffic(work: Path) -> None:
    [report] = comparison.measure(work, [this_tree()], [Endurance(2, 3.0)], NAME)
    figures = report.figures
    assert len(figures["memory of all processes (PSS)"].values) == 2
    answered = sum(figures["requests answered whole, a sample"].values)
    [booked] = figures["generations booked"].values
    assert booked >= answered > 400


def test_two_checkouts_are_measured_in_the_same_rounds(work: Path) -> None:
    trees = [this_tree(), this_tree({"logging.level": "error"})]
    ours, theirs = (report.figures for report in comparison.measure(work, trees, SMALL))
    for name in CASES:
        assert len(ours[f"{name}, CPU"].values) == len(theirs[f"{name}, CPU"].values) == 2
    assert ours["messages on chat, stream over chat"].aim == 2.0
    for name in (
        "CPU at 50 a second",
        "p99 at 80 % of full speed",
        "20 streams, CPU an event",
        "first reply of inference, new folder",
        "idle memory (PSS)",
        "ingest of 0 MB, CPU",
        "batch item over live request",
        "live p99 while a batch runs over without",
        "eight at once, CPU",
        "prompt of 100,000 tokens, CPU",
    ):
        assert min(ours[name].values) > 0
        assert min(theirs[name].values) > 0
