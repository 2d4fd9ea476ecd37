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
ENDURANCE_BEGIN: Final = "<!-- written by `make endurance ARGS=--write-results`; begin -->"
END: Final = "<!-- end -->"


def as_json(figures: Figures, dose: Dose, nginx: str | None) -> str:
    """Return everything that was measured, round by round."""
    document = {
        "machine": machine(),
        "versions": versions(nginx),
        "dose": asdict(dose),
        "figures": asdict(figures),
        "aims": [asdict(verdict) for verdict in report.verdicts(figures, dose)],
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
        f"- Load: {_load(dose)}",
    ]
    aims = ["| aim | measured | wanted | verdict |", "|---|---:|---:|---|"]
    aims += [
        f"| {each.name} | {each.measured} | {each.aim} | {each.verdict} |"
        for each in report.verdicts(figures, dose)
    ]
    tables = f"```text\n{report.tables(figures, dose)}\n```"
    return "\n\n".join(["\n".join(facts), "\n".join(aims), tables])


def _load(dose: Dose) -> str:
    return (
        f"{dose.rounds} rounds of all cases, each of {dose.whole} whole or {dose.stream} streamed "
        f"requests on {dose.concurrency} connections, a chunk every {dose.chunk_interval_ms:g} ms; "
        f"{dose.paced_rounds} rounds of {dose.paced} requests at a steady rate; "
        f"{dose.crowd_rounds} rounds of {dose.crowd} streams at once, two after each other, a "
        f"chunk every {dose.crowd_interval_ms:g} ms"
    )


def endurance_section(text: str, day: date, command: str) -> str:
    """Return the section that `make endurance` writes."""
    facts = (f"- Date: {day.isoformat()}", f"- Command: `{command}`", f"- Machine: {machine()}")
    return "\n".join([*facts, text])


def replace_section(document: str, written: str, begin_mark: str = BEGIN) -> str:
    """Return a document with the section between a begin mark and the next end replaced.

    Raises:
        ValueError: The marks are not there.
    """
    before, begin, rest = document.partition(begin_mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        message = f"no section between {begin_mark!r} and {END!r}"
        raise ValueError(message)
    return f"{before}{begin_mark}\n\n{written}\n\n{END}{after}"
