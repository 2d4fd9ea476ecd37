"""The statements that book charges on PostgreSQL, and their one argument: rows as JSON.

Without the database's driver, which a server with an SQLite file does not load.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.accounting.settlement import booking
from tollhouse.accounting.settlement.booking import (
    GENERATION,
    ONCE,
    POSTING,
    TOTALS,
    adding,
    generation_row,
    makers_of,
    raising_booked,
    releasing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.settlement.booking import Row
    from tollhouse.accounting.types import GenerationRecord


def _numbered(statement: str) -> str:
    """Return a statement with the places of its values as this database has them."""
    first, *parts = statement.split("?")
    return first + "".join(f"${number}{part}" for number, part in enumerate(parts, 1))


def _recordset(table: str, columns: Sequence[str], zeros: Sequence[str] = ()) -> str:
    names = ", ".join((*columns, *("0" for _ in zeros)))
    return f"SELECT {names} FROM json_populate_recordset(NULL::{table}, $1::json)"  # noqa: S608


ADD_GENERATIONS: Final = (
    adding("generations", GENERATION, _recordset("generations", GENERATION))
    + f" {ONCE} RETURNING id"
)
RAISE_BOOKED: Final = raising_booked("$1", "$2", "greatest")
_IN_ORDER: Final = (
    "SELECT 1 FROM budgets JOIN leases USING (scope, id, period) WHERE holder = $1 "
    "ORDER BY scope, id, period FOR UPDATE OF budgets"
)
_KNOWN, _GONE, *_BACK = releasing("$1")
RELEASE: Final = (_KNOWN, _GONE, _IN_ORDER, *_BACK)
STATEMENTS: Final = {
    "postings": adding("postings", POSTING, _recordset("postings", POSTING)),
    **{
        table: each.raising(table, _recordset(table, each.columns, each.zeros), "greatest")
        for table, each in TOTALS.items()
    },
}
"""By table, for `rows_json`."""
BUDGETS_OF: Final = (
    "SELECT scope, id, period, include_byok FROM budgets "
    "JOIN unnest($1::text[], $2::text[]) AS owners (scope, id) USING (scope, id) "
    "ORDER BY scope, id, period FOR UPDATE OF budgets"
)
PEOPLE_OF: Final = makers_of("hash = ANY($1::text[])")
LEASES_OF, CHANGE_BUDGET, CHANGE_LEASE = map(
    _numbered, (booking.LEASES_OF, booking.CHANGE_BUDGET, booking.CHANGE_LEASE)
)
_COLUMNS: Final = {"postings": POSTING, **{name: each.columns for name, each in TOTALS.items()}}
_ATTEMPTS: Final = GENERATION.index("attempts")


def rows_json(table: str, rows: Sequence[Row]) -> str:
    """Return rows of a `Booking` as the argument of their table's statement."""
    columns = _COLUMNS[table]
    return msgspec.json.encode([dict(zip(columns, row, strict=True)) for row in rows]).decode()


def generations_json(records: Sequence[GenerationRecord]) -> str:
    """Return the argument of `ADD_GENERATIONS`."""
    rows: list[dict[str, object]] = []
    for row in map(generation_row, records):
        each: dict[str, object] = dict(zip(GENERATION, row, strict=True))
        each["attempts"] = msgspec.Raw(str(row[_ATTEMPTS]).encode())
        rows.append(each)
    return msgspec.json.encode(rows).decode()
