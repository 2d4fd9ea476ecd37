"""The SQL of statements: an account's postings as movements, in pages.

--detail      every posting                                        by time
otherwise     charges of one UTC day and model are one movement    by day, charges last
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.accounting.ledger.checks import utc_day
from tollhouse.accounting.ledger.types import Movement
from tollhouse.accounting.policy import CUSTOMER
from tollhouse.accounting.types import PostingKind
from tollhouse.storage.tables.accounting import generations, postings
from tollhouse.storage.tables.base import from_millis, to_millis

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tollhouse.accounting.ledger.types import StatementQuery
    from tollhouse.storage.transaction import Read

    Query = sa.Select[*tuple[Any, ...]]

_AT = sa.type_coerce(postings.c.created_at, sa.BigInteger)
_ORDER = ("day", "place", "at", "id")


async def balance_before(read: Read, account_id: str, instant: datetime | None) -> int:
    """Return the sum of an account's postings before an instant; 0 for None."""
    if instant is None:
        return 0
    gained = _gained(account_id)
    query = sa.select(sa.func.sum(gained)).where(
        postings.c.account_id == account_id, to_millis(instant) > _AT
    )
    return int((await read.execute(query)).scalar_one() or 0)


async def size(read: Read, query: StatementQuery) -> tuple[int, int]:
    """Return how many movements a statement has, and their sum."""
    lines = _movements(read.dialect, query).subquery()
    found = sa.select(
        sa.func.count().label("total"), sa.func.sum(lines.c.change_nano).label("change")
    ).select_from(lines)
    row = (await read.execute(found)).mappings().one()
    return row["total"], int(row["change"] or 0)


async def change_of_first(read: Read, query: StatementQuery) -> int:
    """Return the sum of the movements that a page skips."""
    skipped = _in_order(_movements(read.dialect, query)).limit(query.window.offset).subquery()
    found = sa.select(sa.func.sum(skipped.c.change_nano))
    return int((await read.execute(found)).scalar_one() or 0)


async def movements(read: Read, query: StatementQuery) -> Sequence[Movement]:
    """Return a page of movements."""
    page = _in_order(_movements(read.dialect, query))
    rows = await read.execute(page.limit(query.window.limit).offset(query.window.offset))
    return [_movement(row) for row in rows]


def _movements(dialect: str, query: StatementQuery) -> Query:
    whole = _postings(dialect, query).subquery("movements")
    if query.detail:
        return sa.select(whole)
    is_usage = whole.c.kind == PostingKind.USAGE.value
    charges = (
        sa.select(
            whole.c.day,
            sa.literal_column("1", sa.Integer).label("place"),
            sa.literal_column("0", sa.BigInteger).label("at"),
            sa.func.coalesce(whole.c.model, "").label("id"),
            sa.func.min(whole.c.kind).label("kind"),
            sa.func.sum(whole.c.change_nano).label("change_nano"),
            sa.func.count().label("size"),
            sa.null().label("posting_id"),
            sa.null().label("generation_id"),
            whole.c.model,
            sa.null().label("note"),
        )
        .where(is_usage)
        .group_by(whole.c.day, whole.c.model)
    )
    return sa.select(sa.union_all(sa.select(whole).where(~is_usage), charges).subquery("lines"))


def _postings(dialect: str, query: StatementQuery) -> Query:
    day = utc_day(dialect, postings)
    wanted = [postings.c.account_id == query.account_id]
    if query.since is not None:
        wanted.append(to_millis(query.since) <= _AT)
    if query.until is not None:
        wanted.append(to_millis(query.until) > _AT)
    charged = sa.and_(
        generations.c.id == postings.c.generation_id,
        postings.c.kind == PostingKind.USAGE.value,
    )
    return (
        sa.select(
            day.label("day"),
            sa.literal_column("0", sa.Integer).label("place"),
            _AT.label("at"),
            postings.c.id,
            postings.c.kind,
            _gained(query.account_id).label("change_nano"),
            sa.literal_column("1", sa.Integer).label("size"),
            postings.c.id.label("posting_id"),
            postings.c.generation_id,
            generations.c.model,
            postings.c.note,
        )
        .select_from(postings.outerjoin(generations, charged))
        .where(*wanted)
    )


def _gained(account_id: str) -> sa.ColumnElement[int]:
    amount = postings.c.amount_nano
    return sa.case((postings.c.destination == CUSTOMER + account_id, amount), else_=-amount)


def _in_order(lines: Query) -> Query:
    found = lines.subquery()
    return sa.select(found).order_by(*(found.c[name] for name in _ORDER))


def _movement(row: sa.Row[Any]) -> Movement:
    return Movement(
        at=from_millis(row.at) if row.posting_id is not None else None,
        day=date.fromisoformat(row.day),
        kind=row.kind,
        change_nano=int(row.change_nano),
        count=row.size,
        posting_id=row.posting_id,
        generation_id=row.generation_id,
        model=row.model,
        note=row.note,
    )
