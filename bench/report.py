"""Figures, round by round: medians, bounds, aims, and how they are printed and written down.

A suite adds values to a `Report`; everything else about a figure is here.
"""

from __future__ import annotations

import os
import platform
import re
import sys
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from tollhouse import __version__
from tollhouse.kernel.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS: Final = Path(__file__).with_name("RESULTS.md")
MB: Final = 1_000_000
_PACKAGES: Final = ("uvicorn", "uvloop", "httptools", "msgspec")
_END: Final = "<!-- end -->"


@dataclass(slots=True)
class Figure:
    """What was measured of one thing, once a round."""

    unit: str
    aim: float | None = None
    """The most that its median may be; None where there is no aim."""
    values: list[float] = field(default_factory=list[float])

    @property
    def verdict(self) -> str:
        """`met`, `missed by ...`, or nothing where there is no aim."""
        if self.aim is None:
            return ""
        missed = median(self.values) - self.aim
        if missed <= 0:
            return "met"
        share = f" ({missed / self.aim * 100:.0f} %)" if self.aim else ""
        return f"missed by {_number(missed)}{share}"


@dataclass(slots=True)
class Report:
    """The figures of a suite."""

    name: str
    load: str
    """What was sent, in words."""
    tree: str = ""
    """The checkout that was measured."""
    figures: dict[str, Figure] = field(default_factory=dict)
    load_average: float = field(default_factory=lambda: os.getloadavg()[0])
    """The machine's in the minute before: above 0, others disturb the figures."""

    def add(self, name: str, value: float, unit: str, *, aim: float | None = None) -> None:
        """Add one round's value of a figure, and show it on standard error."""
        self.figures.setdefault(name, Figure(unit, aim)).values.append(value)
        report_progress(f"{self.tree or self.name}: {name}: {_number(value)} {unit}")

    def text(self) -> str:
        """Return a table of the figures that have an aim, and one of the others."""
        tables = (self._table(with_aim=True), self._table(with_aim=False))
        return "\n\n".join(each for each in tables if each)

    def _table(self, *, with_aim: bool) -> str:
        rows = [[self.name, "median", "min", "max", "unit", "rounds", "aim", "verdict"]]
        if not with_aim:
            rows = [["what stands behind them", *rows[0][1:6], "", ""]]
        rows += [
            [
                name,
                *map(_number, (median(each.values), min(each.values), max(each.values))),
                each.unit,
                str(len(each.values)),
                "" if each.aim is None else f"<= {_number(each.aim)}",
                each.verdict,
            ]
            for name, each in self.figures.items()
            if (each.aim is not None) == with_aim
        ]
        return table(rows) if len(rows) > 1 else ""

    def beside(self, other: Report) -> str:
        """Return all figures as a table beside those of another run of the same rounds."""
        title = f"{self.tree}, {other.tree}"
        rows = [[title, "this", "other", "unit", "ratio", "min", "max", "verdict"]]
        for name, each in self.figures.items():
            if name not in other.figures:
                continue
            theirs = other.figures[name].values
            pairs = zip(each.values, theirs, strict=False)
            ratios = [mine / their for mine, their in pairs if their]
            bounds = map(_number, (median(ratios), min(ratios), max(ratios))) if ratios else "---"
            medians = _number(median(each.values)), _number(median(theirs))
            rows.append([name, *medians, each.unit, *bounds, each.verdict])
        return table(rows)

    def write(self, command: str) -> None:
        """Replace this suite's section of `RESULTS.md`."""
        facts = [
            f"- Date: {SystemClock().now().date().isoformat()}",
            f"- Command: `{command}`",
            f"- Machine: {_machine()}",
            f"- Load average of the minute before: {self.load_average:.1f}",
            f"- Versions: {_versions()}",
            f"- Load: {self.load}",
        ]
        section = "\n".join([*facts, "", "```text", self.text(), "```"])
        document = RESULTS.read_text(encoding="utf-8")
        RESULTS.write_text(replace_section(document, self.name, section), encoding="utf-8")
        report_progress(f"wrote the section of {self.name} in {RESULTS.name}")


def replace_section(document: str, name: str, written: str) -> str:
    """Return a document with the section of a suite replaced."""
    mark = f"<!-- {name}; begin -->"
    before, begin, rest = document.partition(mark)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        message = f"no section between {mark!r} and {_END!r}"
        raise ValueError(message)
    return f"{before}{mark}\n\n{written}\n\n{_END}{after}"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as columns: the first one to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent of the values do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def report_progress(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def _machine() -> str:
    """Return the machine in one line."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    model = found[1].strip() if found else platform.machine()
    return f"{os.cpu_count()} cores, {model}, Linux {platform.release()}"


def _versions() -> str:
    """Return the versions of the gateway and of what it runs on."""
    packages = (f"{name} {version(name)}" for name in _PACKAGES)
    return ", ".join((f"tollhouse {__version__}", f"Python {platform.python_version()}", *packages))


def _number(value: float) -> str:
    """Return a number with three significant digits at least."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f}"
