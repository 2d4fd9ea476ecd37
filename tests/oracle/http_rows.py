"""What two gateways have booked: their rows by the titles of the requests, and their sums."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from tests.faults.ledger import verify
from tests.oracle.http_comparison import Difference, differences
from tests.support.backdoor import journal_bytes
from tests.support.server_process import ServerProcess

_OWN: Final = {
    *("id", "account_id", "workspace_id", "key_hash", "payer_hash", "generation_id"),
    *("created_at", "updated_at", "latency_ms", "generation_ms", "last_used_at", "day"),
}
"""Columns of ids and times."""
_SUMS: Final = (
    "account_totals",
    "account_days",
    "key_totals",
    "key_days",
    "owner_days",
    "reservations",
)
Row = dict[str, Any]
Booked = dict[str, list[Row]]


def booked(server: ServerProcess) -> Booked:
    """Return the generations of each title, with what was posted for them."""
    found: Booked = {}
    postings: Booked = {}
    for each in _rows(server, "postings"):
        for side in ("source", "destination"):
            each[side] = each[side].replace(each["account_id"], "the account")
        postings.setdefault(each["generation_id"], []).append(_without_own(each))
    for row in _rows(server, "generations"):
        row["attempts"] = [
            {name: value for name, value in each.items() if name not in _OWN}
            for each in json.loads(row["attempts"])
        ]
        shown = _without_own(row) | {"postings": postings.get(row["id"], [])}
        found.setdefault(row["app_title"], []).append(shown)
    return found


def differences_booked(old: ServerProcess, new: ServerProcess) -> Iterator[tuple[str, Difference]]:
    """Yield the differences of rows with the titles of their requests, then those of the sums."""
    one, other = booked(old), booked(new)
    for title in dict.fromkeys((*one, *other)):
        both = one.get(title, []), other.get(title, [])
        yield from ((title, each) for each in differences(*both, "generations"))
    yield from (("", each) for each in differences(_books(old), _books(new), "books"))


def _books(server: ServerProcess) -> Row:
    """Return the sums of the books, and whether they agree with the postings."""
    sums: Row = {name: _sum(_rows(server, name)) for name in _SUMS}
    return sums | {"verified": verify(server), "journal": journal_bytes(server.data_dir).decode()}


def _sum(rows: list[Row]) -> Row:
    found: Row = {"rows": 0}
    for row in rows:
        found["rows"] = 1
        for name, value in _without_own(row).items():
            if isinstance(value, int):
                found[name] = found.get(name, 0) + value
    return found


def _without_own(row: Row) -> Row:
    return {name: value for name, value in row.items() if name not in _OWN}


def _rows(server: ServerProcess, table: str) -> list[Row]:
    with closing(sqlite3.connect(server.data_dir / "tollhouse.db")) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table}")]  # noqa: S608
