"""Where the books differ from what they have to say, named. Rows come from `checks`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tollhouse.accounting.ledger.types import Difference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tollhouse.accounting.settlement.journal import MissingCharges

SUM: Final = "sum of all accounts of the ledger"
STORED, RECOMPUTED = "stored_", "recomputed_"
"""Before a column's name in a row that has both values of it."""


def of_counters(
    table: str, keys: Sequence[str], counters: Sequence[str], row: Mapping[str, object]
) -> Iterator[Difference]:
    """Yield the counters of a row that are not the sum of what they count.

    Args:
        table: What the row is a row of.
        keys: Columns that tell whose counters they are.
        counters: Columns that were compared.
        row: The keys, and each counter twice; a missing row counts as zeros.
    """
    whose = " ".join(str(row[key]) for key in keys)
    for name in counters:
        stored, recomputed = row[STORED + name], row[RECOMPUTED + name]
        if stored != recomputed:
            yield Difference(f"{table}.{name}", whose, _text(stored), _text(recomputed))


def of_sides(row: Mapping[str, object]) -> Iterator[Difference]:
    """Yield the posting whose kind moves no amount between these two accounts."""
    customer = f"customer:{row['account_id']}"
    expected = {
        "purchase": f"purchases -> {customer}",
        "grant": f"grants -> {customer}",
        "refund": f"{customer} -> purchases",
        "adjustment": f"adjustments -> {customer}, or back",
        "usage": f"{customer} -> revenue",
    }
    stored = f"{row['source']} -> {row['destination']}"
    yield Difference(
        "postings.source, destination", str(row["id"]), stored, expected[str(row["kind"])]
    )


def of_charge(row: Mapping[str, object]) -> Iterator[Difference]:
    """Yield where a generation's usage posting is missing, or not of what it cost."""
    whose = str(row["id"])
    if row["posting_id"] is None:
        yield Difference("usage posting of a generation", whose, None, _text(row["cost_nano"]))
        return
    for name, expected in (
        ("amount_nano", "cost_nano"),
        ("account_id", "account_id"),
        ("created_at", "created_at"),
    ):
        stored, recomputed = row[f"posting_{name}"], row[expected]
        if stored != recomputed:
            what = f"usage posting of a generation: {name}"
            yield Difference(what, whose, _text(stored), _text(recomputed))


def of_several_charges(row: Mapping[str, object]) -> Iterator[Difference]:
    """Yield the generation that was charged more than once."""
    yield Difference("usage postings of a generation", str(row["id"]), _text(row["count"]), "1")


def of_lost_generation(row: Mapping[str, object]) -> Iterator[Difference]:
    """Yield the posting whose generation is not there, or not its account's."""
    what = f"generation of {'an' if row['kind'] == 'adjustment' else 'a'} {row['kind']} posting"
    yield Difference(what, str(row["id"]), None, _text(row["generation_id"]))


def of_balances(balances: Mapping[str, int]) -> Iterator[Difference]:
    """Yield the sum of all accounts of the ledger, if it is not zero."""
    total = sum(balances.values())
    if total:
        yield Difference(SUM, "ledger", str(total), "0")


def of_journal(missing: Iterable[MissingCharges]) -> Iterator[Difference]:
    """Return that charges were gone from the journal at a start."""
    for each in missing:
        found, expected = f"{each.found} bytes", f"{each.expected} bytes"
        yield Difference("journal", each.file, found, expected)


def _text(value: object) -> str | None:
    return None if value is None else str(value)
