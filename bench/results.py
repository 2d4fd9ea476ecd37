"""The figures in files: JSON for programs, `RESULTS.md` for people."""

from __future__ import annotations

import ssl
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench import report
from bench.batches import report as batch_report
from bench.egress import report as egress_report
from bench.interns import report as intern_report
from bench.machine import machine, own_versions, versions

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import date

    from bench.batches.figures import BatchDose, BatchFigures
    from bench.egress.figures import EgressDose, EgressFigures
    from bench.interns.figures import InternDose, InternFigures
    from bench.statistic import Verdict
    from bench.suite import Dose, Figures

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
BEGIN: Final = "<!-- written by `make bench ARGS=--write-results`; begin -->"
ENDURANCE_BEGIN: Final = "<!-- written by `make endurance ARGS=--write-results`; begin -->"
BATCHES_BEGIN: Final = "<!-- written by `make bench ARGS='--batches --write-results'`; begin -->"
EGRESS_BEGIN: Final = "<!-- written by `make bench ARGS='--egress --write-results'`; begin -->"
FAIRNESS_BEGIN: Final = "<!-- written by `make bench ARGS='--fairness --write-results'`; begin -->"
INTERNS_BEGIN: Final = "<!-- written by `make bench ARGS='--interns --write-results'`; begin -->"
END: Final = "<!-- end -->"


def document(figures: Figures, dose: Dose, nginx: str | None) -> dict[str, Any]:
    """Return everything that was measured, round by round."""
    return {
        "machine": machine(),
        "versions": versions(nginx),
        "dose": asdict(dose),
        "figures": asdict(figures),
        "aims": [asdict(verdict) for verdict in report.verdicts(figures, dose)],
    }


def batches_document(figures: BatchFigures, dose: BatchDose) -> dict[str, Any]:
    """Return everything that was measured of batches, round by round."""
    return {
        "machine": machine(),
        "versions": own_versions(),
        "dose": asdict(dose),
        "figures": asdict(figures),
        "aims": [asdict(verdict) for verdict in batch_report.verdicts(figures, dose)],
    }


def egress_document(figures: EgressFigures, dose: EgressDose) -> dict[str, Any]:
    """Return everything that was measured of the egress proxy, round by round."""
    return {
        "machine": machine(),
        "versions": _egress_versions(figures),
        "dose": asdict(dose),
        "figures": asdict(figures),
        "aims": [asdict(verdict) for verdict in egress_report.verdicts(figures, dose)],
    }


def interns_document(figures: InternFigures, dose: InternDose) -> dict[str, Any]:
    """Return everything that was measured of interns, round by round."""
    return {
        "machine": machine(),
        "versions": _intern_versions(figures),
        "dose": asdict(dose),
        "figures": asdict(figures),
        "aims": [asdict(verdict) for verdict in intern_report.verdicts(figures, dose)],
    }


def section(figures: Figures, dose: Dose, nginx: str | None, day: date, command: str) -> str:
    """Return the section of `RESULTS.md` that a run writes."""
    facts = [
        f"- Date: {day.isoformat()}",
        f"- Command: `{command}`",
        f"- Machine: {machine()}",
        f"- Load average of the minute before: {figures.load_average:.1f}",
        f"- Versions: {_listed(versions(nginx))}",
        f"- Load: {_load(dose)}",
    ]
    tables = f"```text\n{report.tables(figures, dose)}\n```"
    return "\n\n".join(["\n".join(facts), _aims(report.verdicts(figures, dose)), tables])


def batches_section(figures: BatchFigures, dose: BatchDose, day: date, command: str) -> str:
    """Return the section of batches."""
    rounds = ", ".join(
        f"{each.ingests} rounds of each order taken in and {each.runs} run to the end of "
        f"{each.items} items"
        for each in dose.amounts
    )
    live = (
        f"{dose.rate:g} live requests a second through {dose.idle_seconds:g} s of nothing else, "
        f"{dose.live_ingests} ingests of {dose.largest} items and a run of {dose.live_items}"
    )
    facts = [
        f"- Date: {day.isoformat()}",
        f"- Command: `{command}`",
        f"- Machine: {machine()}",
        f"- Load average of the minute before: {figures.load_average:.1f}",
        f"- Versions: {_listed(own_versions())}",
        f"- Load: {rounds}; {live}",
    ]
    tables = f"```text\n{batch_report.tables(figures, dose)}\n```"
    return "\n\n".join(["\n".join(facts), _aims(batch_report.verdicts(figures, dose)), tables])


def egress_section(figures: EgressFigures, dose: EgressDose, day: date, command: str) -> str:
    """Return the section of the egress proxy."""
    load = (
        f"{dose.rounds} rounds of all cases of {dose.requests} requests on connections that stay "
        f"open, and of {dose.hosts} new hosts, one after the other; {dose.body_rounds} bodies of "
        f"each kind; {dose.tunnels} tunnels, half of them unread, with one request through each"
    )
    facts = [
        f"- Date: {day.isoformat()}",
        f"- Command: `{command}`",
        f"- Machine: {machine()}",
        f"- Load average of the minute before: {figures.load_average:.1f}",
        f"- Versions: {_listed(_egress_versions(figures))}",
        f"- Load: {load}",
    ]
    tables = f"```text\n{egress_report.tables(figures, dose)}\n```"
    return "\n\n".join(["\n".join(facts), _aims(egress_report.verdicts(figures, dose)), tables])


def interns_section(figures: InternFigures, dose: InternDose, day: date, command: str) -> str:
    """Return the section of interns."""
    size = dose.files_bytes / report.MB
    load = (
        f"{dose.servers} servers with {1 + dose.later} new interns each, one after the other; "
        f"{dose.suspends} suspensions without files and {dose.suspends_with_files} with "
        f"{dose.files} files of {size:g} MB together, written right before; up to "
        f"{figures.memory[-1].running} interns that do nothing, for {dose.idle_seconds:g} s; "
        f"{dose.first_runs} agents that start"
    )
    facts = [
        f"- Date: {day.isoformat()}",
        f"- Command: `{command}`",
        f"- Machine: {machine()}",
        f"- Load average of the minute before: {figures.load_average:.1f}",
        f"- Versions: {_listed(_intern_versions(figures))}",
        f"- Load: {load}",
    ]
    tables = f"```text\n{intern_report.tables(figures)}\n```"
    return "\n\n".join(["\n".join(facts), _aims(intern_report.verdicts(figures, dose)), tables])


def _intern_versions(figures: InternFigures) -> dict[str, str]:
    return own_versions() | {"bubblewrap": figures.bubblewrap}


def _egress_versions(figures: EgressFigures) -> dict[str, str]:
    return own_versions() | {
        "h11": version("h11"),
        "OpenSSL": ssl.OPENSSL_VERSION.split()[1],
        "mitmproxy": figures.mitmproxy or "not installed",
    }


def _aims(verdicts: Iterable[Verdict]) -> str:
    rows = ["| aim | measured | wanted | verdict |", "|---|---:|---:|---|"]
    rows += [
        f"| {each.name} | {each.measured} | {each.aim} | {each.verdict} |" for each in verdicts
    ]
    return "\n".join(rows)


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in versions.items())


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


def fairness_section(text: str, day: date, command: str) -> str:
    """Return the section that `make bench ARGS=--fairness` writes."""
    facts = (f"- Date: {day.isoformat()}", f"- Command: `{command}`", f"- Machine: {machine()}")
    return "\n".join([*facts, "", "```text", text.rstrip(), "```"])


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
