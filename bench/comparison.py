"""The table of aims: one or two checkouts, beside nginx, in the same rounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bench import batches, requests
from bench.batches import BatchBench
from bench.load import Target
from bench.report import Report, report_progress
from bench.requests import CASES, RequestBench
from bench.servers import (
    NGINX_MISSING,
    Side,
    find_nginx,
    nginx_version,
    start_nginx,
    start_upstream,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from bench.servers import Tree, Upstream

NAME: Final = "aims"
_CASES: Final = {
    "whole": ("whole request",),
    "tls": ("TLS upstream",),
    "stream": ("50-chunk stream",),
    "translated": tuple(name for name in CASES if " on " in name and "stream" not in name),
    "streams": tuple(name for name in CASES if " on " in name and "stream" in name),
}
PARTS: Final = (*_CASES, "paced", "fast", "crowd", "start", "ingest", "item", "live")
"""Of the table, in its order."""
_CHUNK_MS: Final = 5.0
_CROWD_MS: Final = 200.0


@dataclass(frozen=True, slots=True)
class Dose:
    """How much is measured."""

    parts: Collection[str]
    """Of the table."""
    requests: requests.Dose
    batches: batches.Dose


FULL: Final = Dose(PARTS, requests.FULL, batches.FULL)
QUICK: Final = Dose(tuple(set(PARTS) - {"streams"}), requests.QUICK, batches.QUICK)


def measure(folder: Path, trees: Sequence[Tree], dose: Dose) -> list[Report]:
    """Measure the table; return a report for each checkout.

    Raises:
        BenchError: Something did not start, or answered wrongly.
    """
    many = dose.requests
    program = find_nginx()
    if program is None:
        report_progress(NGINX_MISSING)
    load = (
        f"{many.rounds} rounds of {many.whole} whole or {many.streamed} streamed requests on 32 "
        f"connections, chunks {_CHUNK_MS:g} ms apart; {many.crowd} streams at once, chunks "
        f"{_CROWD_MS:g} ms apart; beside {nginx_version(program) if program else 'nothing'}"
    )
    upstream = start_upstream(folder / "upstream", _CHUNK_MS, _CROWD_MS)
    with upstream.child:
        sides = [
            Side(name, tree, folder, upstream, Report(NAME, load, tree=f"{name} {tree.name}"))
            for name, tree in zip(("this", "other"), trees, strict=False)
        ]
        reports = [side.report for side in sides]
        if program is None:
            _measure(folder, sides, upstream, None, dose)
        else:
            child, port = start_nginx(program, folder / "nginx", upstream)
            with child:
                _measure(folder, sides, upstream, Target("nginx", child.pid, port), dose)
    return reports


def _measure(
    folder: Path, sides: list[Side], upstream: Upstream, nginx: Target | None, dose: Dose
) -> None:
    names = [name for part, names in _CASES.items() if part in dose.parts for name in names]
    # What is compared with chat needs chat in the same round.
    if "translated" in dose.parts:
        names.append("whole request")
    if "streams" in dose.parts:
        names.append("50-chunk stream")
    cases = {name: case for name, case in CASES.items() if name in names}
    single = RequestBench(sides, upstream, dose.requests, nginx, cases)
    many = BatchBench(sides, upstream, folder, dose.batches)
    if cases:
        single.compare()
    for part, run in (
        ("paced", single.pace),
        ("fast", single.hurry),
        ("crowd", single.crowd),
        ("start", single.start),
        ("ingest", many.ingest),
        ("item", many.item),
        ("live", many.live),
    ):
        if part in dose.parts:
            run()
