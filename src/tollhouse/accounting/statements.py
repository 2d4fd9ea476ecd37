"""Statements of an account, and its activity; they only read.

A statement has an account's postings as lines, in pages:

    with details    every posting                                   by time
    without         charges of one UTC day and model are one line   by day, charges last

Activity has the counters of days.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from datetime import date
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from tollhouse.accounting.ledger import utc_day
from tollhouse.kernel.clock import from_millis, to_millis
from tollhouse.kernel.errors import Invalid
from tollhouse.kernel.pages import Page
from tollhouse.storage.tables.accounting import usage_days
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tollhouse.kernel.pages import Window
    from tollhouse.storage.database import Read


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
class StatementLine:
    """What changed a balance: a posting, or the charges of a UTC day for one model."""

    at: datetime | None
    """When; None for a day's charges."""
    day: date
    kind: str
    change_nano: int
    """What the balance rose by, negative where it fell."""
    balance_nano: int
    """The balance after it."""
    count: int
    """How many postings it stands for."""
    posting_id: str | None
    generation_id: str | None
    model: str | None
    """Of charges; None also where their generation is missing."""
    note: str | None


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


_GAINED: Final = """CASE WHEN destination = 'customer:' || postings.account_id
    THEN amount_nano ELSE -amount_nano END"""
_POSTINGS: Final = """
    SELECT {day} AS day, 0 AS place, postings.created_at AS at, postings.id, kind,
        {gained} AS change_nano, 1 AS size, postings.id AS posting_id, generation_id, model, note
    FROM postings LEFT JOIN generations
        ON generations.id = postings.generation_id AND kind = 'usage'
    WHERE postings.account_id = :account AND {period}
"""
_BY_DAY: Final = """
    WITH movements AS ({movements})
    SELECT * FROM movements WHERE kind <> 'usage'
    UNION ALL
    SELECT day, 1, 0, COALESCE(model, ''), 'usage', SUM(change_nano), COUNT(*), NULL, NULL, model,
        NULL
    FROM movements WHERE kind = 'usage' GROUP BY day, model
"""
_BEFORE: Final = """
    SELECT COALESCE(SUM({gained}), 0) AS change FROM postings
    WHERE account_id = :account AND created_at < {since}
"""
_SIZE: Final = """
    SELECT COUNT(*) AS total, COALESCE(SUM(change_nano), 0) AS change FROM ({lines}) AS lines
"""
_PAGE: Final = """
    SELECT lines.*, SUM(change_nano) OVER (ORDER BY day, place, at, id) AS rise
    FROM ({lines}) AS lines ORDER BY day, place, at, id LIMIT {limit} OFFSET {offset}
"""


async def statement(read: Read, query: StatementQuery) -> Statement:
    """Return what happened to an account's money in a period, which ends after it begins."""
    since, until = query.since, query.until
    if since is not None and until is not None and until < since:
        raise Invalid("The period ends before it begins.")

    async def rows(text: str, **parts: object) -> Sequence[sa.Row[Any]]:
        found = sa.text(text.format(gained=_GAINED, **parts))
        return (await read.execute(found.bindparams(account=query.account_id))).all()

    period, opening = "TRUE", 0
    if since is not None:
        [before] = await rows(_BEFORE, since=to_millis(since))
        opening = int(before.change)
        period += f" AND postings.created_at >= {to_millis(since)}"
    if until is not None:
        period += f" AND postings.created_at < {to_millis(until)}"
    day = utc_day(read.dialect, "postings.created_at")
    lines = _POSTINGS.format(day=day, gained=_GAINED, period=period)
    if not query.detail:
        lines = _BY_DAY.format(movements=lines)
    [size] = await rows(_SIZE, lines=lines)
    page = await rows(_PAGE, lines=lines, **asdict(query.window))
    found = [_line(row, opening) for row in page]
    return Statement(query.account_id, opening, int(size.change), found, size.total)


def _line(row: sa.Row[Any], opening_nano: int) -> StatementLine:
    return StatementLine(
        at=from_millis(row.at) if row.posting_id is not None else None,
        day=date.fromisoformat(row.day),
        kind=row.kind,
        change_nano=int(row.change_nano),
        balance_nano=opening_nano + int(row.rise),
        count=row.size,
        posting_id=row.posting_id,
        generation_id=row.generation_id,
        model=row.model,
        note=row.note,
    )


_PLACE: Final = ("day", "model", "provider")
_COUNTERS: Final = [
    each.name for each in fields(Activity) if each.name not in {*_PLACE, "key_hash", "workspace_id"}
]


async def activity(read: Read, query: ActivityQuery) -> Page[Activity]:
    """Return what was asked of which model on which day, the latest day first."""
    days = usage_days.c
    wanted = [
        days.account_id == query.account_id,
        days.day >= query.since.isoformat(),
        days.day < query.until.isoformat(),
    ]
    if query.key_hash is not None:
        wanted.append(days.key_hash == query.key_hash)
    if query.workspace_id is not None:
        wanted.append(days.workspace_id == query.workspace_id)
    if query.user_id is not None:
        made = sa.select(api_keys.c.hash).where(api_keys.c.creator_user_id == query.user_id)
        wanted.append(days.key_hash.in_(made))
    place = [days[name] for name in (*_PLACE, query.split_by) if name is not None]
    sums = [sa.func.sum(days[name]).label(name) for name in _COUNTERS]
    rows = sa.select(*place, *sums).where(*wanted).group_by(*place)
    page = rows.order_by(days.day.desc(), *place[1:])
    page = page.limit(query.window.limit).offset(query.window.offset)
    items: list[Activity] = []
    for row in (await read.execute(page)).mappings():
        facts: dict[str, Any] = dict(row)
        # PostgreSQL's sums of whole numbers are decimals.
        facts |= {name: int(facts[name]) for name in _COUNTERS}
        items.append(Activity(**facts))
    count = sa.select(sa.func.count()).select_from(rows.subquery())
    return Page(tuple(items), (await read.execute(count)).scalar_one())
