"""Reads the cases in `corpus/`: requests, replies and streams, from one format to another.

A file has one pair of formats and their plain case, which is tested, too. A row has the fields that
differ from it: in `show` and `facts` at any depth, elsewhere whole. `(left out)` stands for a field
of the plain case that the row's lacks.

    client, dialect   the client's format, and the provider's
    ask, send         the client's request, and the provider's
    reply, show       the provider's reply, and the client's
    events            the events of a provider's stream: JSON, data as text, or names of `known`
    body              a request or a reply that is not made of the plain one: JSON, or its text
    holds             what the result has in it, byte for byte
    refuse            the message; one that ends with `...` is the beginning
    lose              parameters of the request that the provider does not receive
    ends              malformed, cut, or the provider's error
    facts             what is read of a reply for its charge and its record
    shared            what several rows have in them
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

CORPUS = Path(__file__).parent / "corpus"
LEFT_OUT = "(left out)"
Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One row, with what its file says of all rows."""

    client: str
    dialect: str
    plain: Body
    row: Body

    def whole(self, name: str) -> Body:
        """Return a body of the row: the plain one, with the row's fields in place of its own."""
        plain, own = self.plain.get(name, {}), self.row.get(name, {})
        merged = _merged(plain, own) if name in {"show", "facts"} else {**plain, **own}
        return {field: value for field, value in merged.items() if value != LEFT_OUT}

    def encoded(self, name: str) -> bytes:
        """Return a body of the row as JSON; its `body` instead, where it gives the bytes."""
        if "body" in self.row and name != "ask":
            return data_of(self.row["body"])
        return data_of(self.whole(name))

    def events(self) -> list[bytes]:
        """Return the data of the events of a provider's stream."""
        known = self.plain.get("known", {})
        found: list[Any] = []
        for event in self.row.get("events", self.plain.get("events")):
            value = known.get(event, event) if isinstance(event, str) else event
            found += value if isinstance(value, list) else [value]
        return [data_of(each) for each in found]


def cases(kind: str) -> dict[str, Case]:
    """Return the cases of all files in a folder, by their names."""
    return {
        name: case for path in sorted((CORPUS / kind).glob("*.yaml")) for name, case in _of(path)
    }


def _of(path: Path) -> Iterator[tuple[str, Case]]:
    plain = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    for name, rows in {"plain": {}, **plain["cases"]}.items():
        for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
            case = Case(plain["client"], plain["dialect"], plain, row)
            yield f"{path.stem}: {name}{f' ({number})' if number else ''}", case


def _merged(plain: Body, own: Body) -> Body:
    merged = dict(plain)
    for name, value in own.items():
        before = merged.get(name)
        both = isinstance(before, dict) and isinstance(value, dict)
        merged[name] = _merged(before, value) if both else value
    return {name: value for name, value in merged.items() if value != LEFT_OUT}


def data_of(value: Any) -> bytes:
    """Return text as it is, and anything else as JSON; `\\xff` in a text is that byte."""
    if isinstance(value, str):
        return re.sub(
            rb"\\x([0-9a-f]{2})", lambda at: bytes.fromhex(at[1].decode()), value.encode()
        )
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
