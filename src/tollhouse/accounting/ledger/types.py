"""What is found in the books: differences, statements, activity."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date, datetime

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
    """What it has to be."""


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
    """Whether there are more differences than are named."""


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
    """The balance after it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What happened to an account's money in a period."""

    account_id: str
    opening_nano: int
    """The balance before the period."""
    change_nano: int
    """The sum of every line of the period, also of those that are not among `lines`."""
    lines: Sequence[StatementLine]
    total: int
    """How many lines the period has."""

    @property
    def closing_nano(self) -> int:
        """The balance at the end of the period."""
        return self.opening_nano + self.change_nano


@dataclass(frozen=True, slots=True)
class ActivityQuery:
    """Which activity is wanted."""

    account_id: str
    since: date
    """The first UTC day."""
    until: date
    """The day after the last one."""
    window: Window
    key_hash: str | None = None
    workspace_id: str | None = None
    user_id: str | None = None
    """Whose keys."""
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
    key_hash: str | None = field(default=None)
    """Where rows are split by keys."""
    workspace_id: str | None = field(default=None)
    """Where rows are split by workspaces."""
