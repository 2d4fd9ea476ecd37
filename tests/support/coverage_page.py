"""Writes docs/development/coverage.md: the branches that tests from outside reach.

    python -m tests.support.coverage_page OUTSIDE.json INSIDE.json >docs/development/coverage.md

Both are reports of `coverage json`, of the tests from outside and of all others.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

SLICES: Final = ("accounting", "inference", "api", "batches")
_SOURCE: Final = PurePosixPath("src/tollhouse")
_HEAD: Final = """\
# What tests from outside reach

`make coverage` runs `tests/acceptance`, `tests/contract` and `tests/faults` with the branches of
all processes counted, then `tests/unit` and `tests/component`, and writes this page. It is read
before a slice is rebuilt: the old tests of its inside go with it, and what they alone reach is
tested from outside first, kept as a table of a pure function, or declared unneeded. A process that
a test kills tells nothing, so what only killed processes ran counts as not reached.

| slice | branches | from outside | only from inside | by none |
|---|---:|---:|---:|---:|
"""


@dataclass
class Branches:
    """The branches of a function, a file or a slice; each is a pair of lines."""

    outside: set[tuple[str, int, int]] = field(default_factory=set)
    inside: set[tuple[str, int, int]] = field(default_factory=set)
    all: set[tuple[str, int, int]] = field(default_factory=set)

    @property
    def only_inside(self) -> set[tuple[str, int, int]]:
        return self.inside - self.outside

    def add(self, other: Branches) -> None:
        self.outside |= other.outside
        self.inside |= other.inside
        self.all |= other.all


def functions_of(outside: Mapping[str, Any], inside: Mapping[str, Any]) -> dict[str, Branches]:
    """Return the branches of each function, named `FILE:FUNCTION`."""
    found = defaultdict[str, Branches](Branches)
    for report, reached in ((outside, "outside"), (inside, "inside")):
        for file, facts in report["files"].items():
            path = PurePosixPath(file).relative_to(_SOURCE)
            for name, function in facts["functions"].items():
                each = found[f"{path}:{name}"]
                executed = {(file, *pair) for pair in function["executed_branches"]}
                getattr(each, reached).update(executed)
                each.all |= executed | {(file, *pair) for pair in function["missing_branches"]}
    return found


def page(functions: Mapping[str, Branches]) -> Iterator[str]:
    """Return the lines of the page."""
    slices = {name: Branches() for name in SLICES}
    for name, branches in functions.items():
        slice_ = name.partition("/")[0]
        if slice_ in slices:
            slices[slice_].add(branches)
    yield _HEAD.rstrip("\n")
    for name, branches in slices.items():
        whole, reached = len(branches.all), len(branches.outside)
        none = whole - len(branches.outside | branches.inside)
        share = f"{reached} ({100 * reached / whole:.0f} %)"
        yield f"| {name} | {whole} | {share} | {len(branches.only_inside)} | {none} |"
    for slice_ in SLICES:
        yield f"\n## Only from inside: {slice_}\n"
        yield from _only_inside(functions, slice_) or ["Nothing."]


def _only_inside(functions: Mapping[str, Branches], slice_: str) -> list[str]:
    """Return a line for each file: its functions with the number of their branches."""
    files = defaultdict[str, list[str]](list)
    for name, branches in sorted(functions.items()):
        file, _, function = name.partition(":")
        if file.startswith(f"{slice_}/") and branches.only_inside:
            shown = f"`{function}`" if function else "the module itself"
            files[file].append(f"{shown} {len(branches.only_inside)}")
    return [
        f"- `{file.removeprefix(f'{slice_}/')}`: {', '.join(shown)}"
        for file, shown in files.items()
    ]


def main() -> None:
    outside, inside = (json.loads(Path(file).read_text()) for file in sys.argv[1:])
    sys.stdout.write("\n".join(page(functions_of(outside, inside))) + "\n")


if __name__ == "__main__":
    main()
