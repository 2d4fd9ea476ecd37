"""What several processes of one server count, as one: counters and gauges add up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_HIGHEST: Final = frozenset(("tollhouse_invariant_broken",))
"""Gauges of which the highest counts: each process says the same thing."""


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """A value, by its name and labels."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """A metric with its samples."""

    name: str
    kind: str
    """`counter` or `gauge`."""
    documentation: str
    samples: list[Sample]


def merge(reports: Iterable[Sequence[Family]]) -> list[Family]:
    """Return the families of all reports, each once."""
    found: dict[str, Family] = {}
    values: dict[str, dict[tuple[str, tuple[tuple[str, str], ...]], float]] = {}
    for family in (each for report in reports for each in report):
        found.setdefault(family.name, family)
        known = values.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            if family.name in _HIGHEST:
                known[key] = max(known.get(key, sample.value), sample.value)
            else:
                known[key] = known.get(key, 0.0) + sample.value
    return [
        Family(
            name,
            family.kind,
            family.documentation,
            [Sample(each, dict(labels), value) for (each, labels), value in values[name].items()],
        )
        for name, family in found.items()
    ]


def counters(report: Sequence[Family]) -> list[Family]:
    """Return what stays of a report once its process has ended."""
    return [family for family in report if family.kind == "counter"]
