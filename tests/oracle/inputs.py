"""A file of inputs: JSON lines in zstd, which `zstdcat FILE | jq` shows.

    {"op": "request", "client", "dialect", "body", "headers"?, "query"?, "endpoint"?}
    {"op": "reply", ...the request, "reply", "maker"?}
    {"op": "stream", ...the request, "events", "end", "error"?, "maker"?, "tokens"?}
    {"op": "client error", "client", "error": {"kind", "facts"}, "generation"}
    {"op": "provider error", "data"}
    {"op": "whole reply", "dialect", "data"}

Bytes are texts, in which those that are not UTF-8 are lone surrogates. `end` is `end`, `fail`,
`as it came` for what fits the state of the stream, or null where nobody ends it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tollhouse.kernel.files import zstd

Input = dict[str, Any]
LARGEST = 64 * 1024
"""Bytes of the bodies of an input; larger ones are left out."""


class Inputs:
    """Different inputs, in the order in which they came."""

    def __init__(self) -> None:
        self._lines: dict[str, None] = {}
        self.left_out = 0
        """How many were too large."""

    def __len__(self) -> int:
        return len(self._lines)

    def add(self, asked: Input) -> None:
        line = json.dumps(asked)
        if len(line) > 2 * LARGEST or _size(asked) > LARGEST:
            self.left_out += 1
        else:
            self._lines[line] = None

    def lines(self) -> list[str]:
        return list(self._lines)

    def all(self) -> list[Input]:
        return [json.loads(line) for line in self._lines]


def _size(asked: Input) -> int:
    texts = [asked.get(name, "") for name in ("body", "reply", "data")]
    return sum(map(len, [*texts, *asked.get("events", ())]))


def write_lines(file: Path, lines: Iterable[str]) -> None:
    """Write lines to a compressed file."""
    with zstd.open(file, "wt", encoding="ascii") as target:
        target.writelines(f"{line}\n" for line in lines)


def read_lines(file: Path) -> list[str]:
    """Return the lines of a compressed file."""
    with zstd.open(file, "rt", encoding="ascii") as source:
        return source.read().splitlines()
