"""The table of aims: one or two checkouts, beside nginx, in the same rounds."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from bench.batches import Ingest, Item, Live
from bench.formats import CHUNK_MS, SLOW_MS
from bench.holders import Shared, Workers
from bench.neighbours import Neighbours
from bench.published import Published
from bench.report import Report, report_progress
from bench.requests import CASES, Compared, Crowd, Fast, Paced, Start
from bench.scenarios import Bench, Scenario
from bench.servers import (
    NGINX_MISSING,
    Side,
    find_nginx,
    nginx_beside,
    nginx_version,
    start_upstream,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from bench.servers import Tree

_CASES: Final = {
    "whole": ("whole request",),
    "tls": ("TLS upstream",),
    "stream": ("50-chunk stream",),
    # What is compared with chat needs chat in the same round.
    "translated": (
        "whole request",
        *(name for name in CASES if " on " in name and "stream" not in name),
    ),
    "streams": (
        "50-chunk stream",
        *(name for name in CASES if " on " in name and "stream" in name),
    ),
}
FULL: Final = (
    *(Compared(), Paced(), Fast(), Workers(), Shared(), Crowd(), Start()),
    *(Ingest(), Item(), Live(), Published(), Neighbours()),
)
QUICK: Final = (
    Compared(6, 1_000, 100, sum((_CASES[part] for part in _CASES if part != "streams"), ())),
    Paced(2, 150),
    Fast(2, 1_000, 1.5),
    Workers(1, 2_000),
    Shared(1, 100),
    Crowd(2, 300, 1),
    Start(2, 1.0),
    Ingest(1),
    Item(1, 3_000, 1_500),
    Live(1, 3_000, 50.0, 4.0),
    Published(1, 1_000, 1.5, 50),
    Neighbours(1, requests=500),
)
PARTS: Final = (*_CASES, *(scenario.name for scenario in FULL[1:]))
"""Of the table, in its order."""


def chosen(dose: Sequence[Scenario], parts: Collection[str]) -> list[Scenario]:
    """Return the scenarios of some parts of the table, at a dose."""
    cases = [name for part in parts for name in _CASES.get(part, ())]
    found: list[Scenario] = [scenario for scenario in dose if scenario.name in parts]
    for scenario in dose:
        if isinstance(scenario, Compared) and cases:
            found.insert(0, Compared(scenario.rounds, scenario.whole, scenario.streamed, (*cases,)))
    return found


def measure(
    folder: Path, trees: Sequence[Tree], scenarios: Sequence[Scenario], name: str = "aims"
) -> list[Report]:
    """Measure all rounds of some scenarios; return a report for each checkout."""
    if find_nginx() is None:
        report_progress(NGINX_MISSING)
    parts = ", ".join(f"{each.name} {each.rounds} times" for each in scenarios)
    load = (
        f"{parts}; chunks {CHUNK_MS:g} ms apart, {SLOW_MS:g} in a crowd; beside {nginx_version()}"
    )
    reports = [
        Report(name, load, f"{which} {tree.name}")
        for which, tree in zip(("this", "other"), trees, strict=False)
    ]
    with (
        start_upstream(folder / "upstream") as upstream,
        nginx_beside(folder / "nginx", upstream) as nginx,
    ):
        pairs = zip(("this", "other"), trees, reports, strict=False)
        sides = [Side(which, tree, folder, upstream, report) for which, tree, report in pairs]
        bench = Bench(folder, sides, upstream, nginx)
        for scenario in scenarios:
            with ExitStack() as stack:
                for side in sides if scenario.keeps_running else ():
                    stack.enter_context(side.start())
                for _ in range(scenario.rounds):
                    for report, figure, value, unit, aim in scenario.round(bench):
                        report.add(figure, value, unit, aim=aim)
    return reports
