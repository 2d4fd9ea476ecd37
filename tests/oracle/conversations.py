"""`python -m tests.oracle.conversations --repo OLD`: do two checkouts' gateways do the same?

Random conversations are held with both, in front of one provider. The exit status is 1 where
something differs that nobody has decided (`http_decided.yaml`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import yaml

from tests.oracle.http_run import LANES, Found, Result, compare

_DECIDED: Final = Path(__file__).with_name("http_decided.yaml")


def decided(path: Path = _DECIDED) -> dict[str, str]:
    """Return the reasons for differences that are decided, by patterns of their kinds."""
    listed: list[dict[str, str]] = yaml.safe_load(path.read_bytes()) or []
    return {each["kind"]: each["reason"] for each in listed}


def report(result: Result, reasons: Mapping[str, str]) -> dict[str, Any]:
    """Return what is printed: the differences by path, each with its formats and an example."""
    groups: dict[tuple[str, str | None], list[Found]] = {}
    for each in result.found:
        groups.setdefault((each.path, each.reason(reasons)), []).append(each)
    shown: dict[str, list[dict[str, Any]]] = {"undecided": [], "decided": []}
    for (path, reason), found in sorted(groups.items(), key=lambda item: -len(item[1])):
        example = min(found, key=lambda each: len(each.old) + len(each.new))
        formats = dict(Counter(each.formats for each in found).most_common())
        row = {"path": path, "count": len(found), "formats": formats, "example": asdict(example)}
        shown["decided" if reason else "undecided"].append(row | {"reason": reason})
    names = ("conversations", "equal", "requests", "seed", "seconds")
    turns = dict(result.turns.most_common())
    return {**{name: getattr(result, name) for name in names}, "turns": turns, **shown}


def _print(shown: Mapping[str, Any]) -> None:
    equal, held = f"{shown['equal']:,}", f"{shown['conversations']:,}"
    costs = f"{shown['requests']:,} requests, {shown['seconds']:,} s, seed {shown['seed']}"
    lines = [f"{equal} of {held} conversations are equal: {costs}"]
    for name in ("undecided", "decided"):
        lines += [f"\nDifferences, {name}:"] if shown[name] else []
        for row in shown[name]:
            example = row["example"]
            formats = "; ".join(f"{count} {each}" for each, count in row["formats"].items())
            lines += [f"{row['count']:6,}  {row['path']}", f"        {formats}"]
            lines += [f"        {row['reason']}"] if row["reason"] else []
            if example["conversation"] is not None:
                place = f"conversation {example['conversation']}, turn {example['turn']}"
                lines += [f"        {place}, {example['formats']}"]
            lines += [f"          {side} {example[side]}" for side in ("old", "new")]
    sys.stdout.write("\n".join(lines) + "\n")


def _folder(given: str) -> Path:
    return Path(given).resolve()


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.oracle.conversations",
        description="Hold random conversations with the gateways of two checkouts: do they differ?",
    )
    parser.add_argument("--repo", type=_folder, required=True, help="the other checkout")
    parser.add_argument("-n", type=int, default=10_000, help="how many conversations")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", type=int, metavar="NUMBER", help="this conversation alone")
    parser.add_argument("--lanes", type=int, default=LANES, help="how many at the same time")
    parser.add_argument("--decided", type=Path, default=_DECIDED, help="a list of patterns")
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args()
    reasons = decided(given.decided)
    result = compare(
        given.repo, given.n, reasons, seed=given.seed, only=given.only, lanes=given.lanes
    )
    shown = report(result, reasons)
    if given.json:
        sys.stdout.write(json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
    else:
        _print(shown)
    return 1 if shown["undecided"] else 0


if __name__ == "__main__":
    sys.exit(main())
