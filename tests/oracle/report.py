"""A comparison, as text and as JSON."""

from __future__ import annotations

from typing import Any

from tests.oracle.differences import Comparison, text_of

MOST_GROUPS = 60
LONGEST_INPUT = 700
LONGEST_VALUE = 300


def text(found: Comparison) -> str:
    """Return what was found: the groups with the most inputs first, with an example each."""
    lines: list[str] = []
    groups = sorted(found.groups.items(), key=lambda each: -each[1].count)
    for (op, client, dialect, what), group in groups[:MOST_GROUPS]:
        pair = " -> ".join(filter(None, (client, dialect)))
        assert group.found
        lines += [
            f"{group.count:6}  {op}{f' {pair}' if pair else ''}  {what}",
            f"        before  {_short(group.found.before, LONGEST_VALUE)}",
            f"        after   {_short(group.found.after, LONGEST_VALUE)}",
            f"        input {group.number}  {_short(group.example, LONGEST_INPUT)}",
            "",
        ]
    if len(groups) > MOST_GROUPS:
        lines += [f"{len(groups) - MOST_GROUPS} more kinds of differences: --json has all.", ""]
    for decision in found.decisions:
        lines.append(f"{found.uses[decision.why]:6}  decided: {decision.why}")
    lines.append(
        f"{found.equal} equal, {found.decided} decided, {found.differing} different"
        f" in {len(groups)} ways"
    )
    return "\n".join(lines)


def as_json(found: Comparison) -> Any:
    """Return the same with every group and whole examples."""
    return {
        "equal": found.equal,
        "decided": found.decided,
        "different": found.differing,
        "decisions": {each.why: found.uses[each.why] for each in found.decisions},
        "groups": [
            {
                "op": op,
                "client": client,
                "dialect": dialect,
                "what": what,
                "count": group.count,
                "number": group.number,
                "before": group.found.before if group.found else None,
                "after": group.found.after if group.found else None,
                "input": group.example,
            }
            for (op, client, dialect, what), group in sorted(
                found.groups.items(), key=lambda each: -each[1].count
            )
        ],
    }


def _short(value: Any, longest: int) -> str:
    said = ascii(text_of(value))[1:-1]
    return said if len(said) <= longest else f"{said[:longest]}... ({len(said)} characters)"
