"""Requests, replies and streams that are large in one dimension each; the file beside has them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable

GIVEN = yaml.load(Path(__file__).with_suffix(".yaml").read_bytes(), yaml.CSafeLoader)
KNOWN = {f"${name}": value for name, value in GIVEN["known"].items()}
LINES = "a line of text\n" * 4
REPEATED = {"each": 1, "half": 2, "third": 3}
LONG: dict[str, Callable[[int], str]] = {
    "long": lambda n: LINES * n,
    "json": lambda n: json.dumps({"a": LINES * n}),
    "open": lambda n: '{"a":"' + "b" * 40 * n,
    "options": lambda n: "ask: which? (" + "|" * 20 * n,
}


def shapes(kind: str) -> dict[str, dict[str, Any]]:
    """Return the shapes by format or dialect, and their names; in `plain` is what others lack."""
    return GIVEN[kind]


def large(kind: str, form: str, shape: str, n: int) -> Any:
    """Return a body, or the events of a stream, with `n` of what its shape is large in."""
    given = GIVEN[kind][form]
    body = given[shape] if kind == "streams" else given["plain"] | given[shape]
    made = _grown(body, n, 0)
    if "fields" in made:
        made |= {f"field{number}": number for number in made.pop("fields")}
    return made


def _grown(value: Any, n: int, number: int) -> Any:
    if isinstance(value, str):
        return _text(value, n, number)
    if isinstance(value, dict):
        return {name: _grown(each, n, number) for name, each in value.items()}
    if not isinstance(value, list):
        return value
    items: list[Any] = []
    for each in value:
        word = next(iter(each), "") if isinstance(each, dict) else ""
        if word not in REPEATED:
            items.append(_grown(each, n, number))
            continue
        inner = KNOWN.get(each[word], each[word]) if isinstance(each[word], str) else each[word]
        repeated = inner if isinstance(inner, list) else [inner]
        for at in range(each.get("times", n // REPEATED[word])):
            items += [_grown(one, n, at) for one in repeated]
    return items


def _text(value: str, n: int, number: int) -> Any:
    if value in KNOWN:
        return _grown(KNOWN[value], n, number)
    if value in LONG:
        return LONG[value](n)
    if value == "#":
        return number
    return value.replace("#", str(number)).replace("@", str(n - 1))
