"""Statistics over rounds: medians, spreads, slopes and verdicts. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import linear_regression, median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Spread:
    """Several measurements of one thing."""

    median: float
    least: float
    most: float


def spread(values: Sequence[float]) -> Spread:
    """Return the median and the bounds of at least one value."""
    return Spread(median(values), min(values), max(values))


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio of each round: its two halves saw the same noise."""
    return [mine / other for mine, other in zip(ours, theirs, strict=True) if other > 0]


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the value that so many percent of the values do not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else 0.0


def slope(values: Sequence[float]) -> float:
    """Return by how much values grow from one to the next: that of the least-squares line.

    Args:
        values: In the order in which they were measured; 0 is returned for fewer than two.
    """
    if len(values) < 2:
        return 0.0
    return linear_regression(range(len(values)), values).slope


@dataclass(frozen=True, slots=True)
class Verdict:
    """An aim and the measured figure."""

    name: str
    measured: str
    aim: str
    verdict: str
    """`met`, `missed by ...`, or `not measured`."""


def judge(
    name: str, measured: float | None, limit: float | None, unit: str, digits: int = 0
) -> Verdict:
    """Return whether a figure keeps an upper limit.

    Args:
        name: What was measured.
        measured: The figure; None where it could not be measured.
        limit: The most that it may be; None where that depends on what could not be measured.
        unit: Written behind both.
        digits: Decimals to show.
    """

    def text(value: float | None) -> str:
        return "-" if value is None else f"{value:.{digits}f}{unit}"

    aim = f"<= {text(limit)}"
    if measured is None or limit is None:
        return Verdict(name, text(measured), aim, "not measured")
    if measured <= limit:
        return Verdict(name, text(measured), aim, "met")
    missed = f"missed by {text(measured - limit)}"
    if limit:
        missed += f" ({(measured / limit - 1) * 100:.0f} %)"
    return Verdict(name, text(measured), aim, missed)


def scaled_limit(limit: float, yardstick: float | None, least: float, most: float) -> float | None:
    """Return a limit that was set for a machine whose yardstick lies between two figures.

    On a slower or faster machine it grows or shrinks with the yardstick; None without one.
    """
    if yardstick is None:
        return None
    nearest = min(max(yardstick, least), most)
    return limit * yardstick / nearest
