"""What is found in the books: differences, statements, activity. Rows come from `checks`."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import date, datetime

    from tollhouse.accounting.settlement.records import MissingCharges
    from tollhouse.kernel.pages import Window


@dataclass(frozen=True, slots=True)
class Difference:
    """One value that is not what it has to be."""

    what: str
    """The table and the column, or the rule that is broken."""
    whose: str
    """The key of the row; the parts of a longer one are separated by spaces."""
    stored: str | None
    """What the books say; None where there is nothing."""
    recomputed: str | None


@dataclass(frozen=True, slots=True)
class LedgerScope:
    """Which part of the books is looked at."""

    account_ids: tuple[str, ...] | None = None
    """None: every account."""
    since: datetime | None = None
    """The first instant of a UTC day: only what was booked from then on, and no totals. None: all
    of it."""


@dataclass(frozen=True, slots=True)
class LedgerReport:
    """What looking at the books has found."""

    postings: int
    generations: int
    balances: Mapping[str, int]
    """Of every account of the ledger, in nano-credits; all customers are one. They add up to 0."""
    differences: Sequence[Difference]
    more: bool


@dataclass(frozen=True, slots=True)
class StatementQuery:
    """Which statement is wanted."""

    account_id: str
    since: datetime | None
    """The first instant that counts; None: the beginning."""
    until: datetime | None
    """The first instant that does not count any more; None: everything until now."""
    detail: bool
    """Whether each charge is a line, and not the charges of a day and model together."""
    window: Window


@dataclass(frozen=True, slots=True)
class Movement:
    """What changed a balance: a posting, or the charges of a UTC day for one model."""

    at: datetime | None
    """When; None for a day's charges."""
    day: date
    kind: str
    change_nano: int
    """What the balance rose by, negative where it fell."""
    count: int
    """How many postings it stands for."""
    posting_id: str | None
    generation_id: str | None
    model: str | None
    """Of charges; None also where their generation is missing."""
    note: str | None


@dataclass(frozen=True, slots=True)
class StatementLine:
    """A line of a statement."""

    movement: Movement
    balance_nano: int


def running_balances(opening_nano: int, movements: Sequence[Movement]) -> list[StatementLine]:
    """Return movements, in order, with the balance after each."""
    balances = accumulate((each.change_nano for each in movements), initial=opening_nano)
    return [StatementLine(*each) for each in zip(movements, list(balances)[1:], strict=True)]


@dataclass(frozen=True, slots=True)
class Statement:
    """What happened to an account's money in a period."""

    account_id: str
    opening_nano: int
    change_nano: int
    """The sum of every line of the period, also of those that are not among `lines`."""
    lines: Sequence[StatementLine]
    total: int

    @property
    def closing_nano(self) -> int:
        """The balance at the end of the period."""
        return self.opening_nano + self.change_nano


@dataclass(frozen=True, slots=True)
class ActivityQuery:
    """Which activity is wanted."""

    account_id: str
    since: date
    until: date
    """The day after the last one."""
    window: Window
    key_hash: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    split_by: str | None = None
    """`key_hash` or `workspace_id`: a row for each; None: rows of all together."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What was asked of a model at a provider on one day."""

    day: str
    model: str
    provider: str
    """Its slug; empty where nobody answered."""
    requests: int
    prompt_tokens: int
    completion_tokens: int
    reasoning_tokens: int
    cached_tokens: int
    usage_nano: int
    byok_usage_nano: int
    key_hash: str | None = None
    workspace_id: str | None = None


SUM: Final = "sum of all accounts of the ledger"
STORED, RECOMPUTED = "stored_", "recomputed_"
"""Before a column's name in a row that has both values of it."""


def of_counters(
    table: str, keys: Sequence[str], counters: Sequence[str], row: Mapping[str, object]
) -> Iterator[Difference]:
    """Yield the counters of a row that are not the sum of what they count.

    The row has the columns `keys`, and each of `counters` twice; a missing row counts as zeros.
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
    """Yield that charges were gone from the journal at a start."""
    for each in missing:
        yield Difference("journal", each.file, f"{each.found} bytes", f"{each.expected} bytes")


def _text(value: object) -> str | None:
    return None if value is None else str(value)
