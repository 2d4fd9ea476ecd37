"""The figures in files: JSON for programs, `RESULTS.md` for people."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench import report
from bench.machine import machine, versions

if TYPE_CHECKING:
    from datetime import date

    from bench.suite import Dose, Figures

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
BEGIN: Final = "<!-- written by `make bench ARGS=--write-results`; begin -->"
END: Final = "<!-- end -->"


def as_json(figures: Figures, dose: Dose, nginx: str | None) -> str:
    """Return everything that was measured, round by round."""
    document = {
        "machine": machine(),
        "versions": versions(nginx),
        "dose": asdict(dose),
        "figures": asdict(figures),
        "aims": [asdict(verdict) for verdict in report.verdicts(figures)],
    }
    return json.dumps(document, indent=2) + "\n"


def section(figures: Figures, dose: Dose, nginx: str | None, day: date, command: str) -> str:
    """Return the section of `RESULTS.md` that a run writes."""
    facts = [
        f"- Date: {day.isoformat()}",
        f"- Command: `{command}`",
        f"- Machine: {machine()}",
        f"- Load average of the minute before: {figures.load_average:.1f}",
        f"- Versions: {', '.join(f'{name} {value}' for name, value in versions(nginx).items())}",
        (
            f"- Load: {dose.rounds} rounds of {dose.whole} whole and {dose.stream} streamed "
            f"requests, {dose.concurrency} connections, a chunk every {dose.chunk_interval_ms:g} ms"
        ),
    ]
    aims = ["| aim | measured | wanted | verdict |", "|---|---:|---:|---|"]
    aims += [
        f"| {each.name} | {each.measured} | {each.aim} | {each.verdict} |"
        for each in report.verdicts(figures)
    ]
    tables = f"```text\n{report.cpu_table(figures)}\n\n{report.start_table(figures)}\n```"
    return "\n\n".join(["\n".join(facts), "\n".join(aims), tables])


def replace_section(document: str, written: str) -> str:
    """Return a document with the section between the marks replaced.

    Raises:
        ValueError: The marks are not there.
    """
    before, begin, rest = document.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"no section between {BEGIN!r} and {END!r}"
        raise ValueError(message)
    return f"{before}{BEGIN}\n\n{written}\n\n{END}{after}"
