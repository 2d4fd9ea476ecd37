"""The SQL of statements and of activity.

A statement has an account's postings as movements, in pages:

    with details    every posting                                        by time
    without         charges of one UTC day and model are one movement    by day, charges last

Activity has the counters of days.
"""

from __future__ import annotations

from dataclasses import fields
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.accounting.ledger.checks import utc_day
from tollhouse.accounting.ledger.types import Activity, ActivityQuery, Movement, StatementQuery
from tollhouse.accounting.types import CUSTOMER, PostingKind
from tollhouse.kernel.clock import from_millis, to_millis
from tollhouse.kernel.pages import Page
from tollhouse.storage.tables.accounting import generations, postings, usage_days
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.storage.database import Read

    Query = sa.Select[*tuple[Any, ...]]

_AT = sa.type_coerce(postings.c.created_at, sa.BigInteger)
_ORDER = ("day", "place", "at", "id")
_ACTIVITY = ("day", "model", "provider")
_SPLITS = ("key_hash", "workspace_id")
_COUNTERS = [each.name for each in fields(Activity) if each.name not in {*_ACTIVITY, *_SPLITS}]


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
        generations.c.id == postings.c.generation_id, postings.c.kind == PostingKind.USAGE.value
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


async def activity_page(read: Read, query: ActivityQuery) -> Page[Activity]:
    """Return rows of activity, the latest day first."""
    place = [usage_days.c[name] for name in _ACTIVITY]
    if query.split_by is not None:
        place.append(usage_days.c[query.split_by])
    rows = (
        sa.select(*place, *(sa.func.sum(usage_days.c[name]).label(name) for name in _COUNTERS))
        .where(*_wanted_days(query))
        .group_by(*place)
    )
    found = rows.order_by(usage_days.c.day.desc(), *place[1:])
    window = found.limit(query.window.limit).offset(query.window.offset)
    items = tuple(_activity(row) for row in (await read.execute(window)).mappings())
    count = sa.select(sa.func.count()).select_from(rows.subquery())
    return Page(items, (await read.execute(count)).scalar_one())


def _wanted_days(query: ActivityQuery) -> list[sa.ColumnElement[bool]]:
    wanted = [
        usage_days.c.account_id == query.account_id,
        usage_days.c.day >= query.since.isoformat(),
        usage_days.c.day < query.until.isoformat(),
    ]
    if query.key_hash is not None:
        wanted.append(usage_days.c.key_hash == query.key_hash)
    if query.workspace_id is not None:
        wanted.append(usage_days.c.workspace_id == query.workspace_id)
    if query.user_id is not None:
        made = sa.select(api_keys.c.hash).where(api_keys.c.creator_user_id == query.user_id)
        wanted.append(usage_days.c.key_hash.in_(made))
    return wanted


def _activity(row: sa.RowMapping) -> Activity:
    facts: dict[str, Any] = dict(row)
    return Activity(**{name: int(facts.pop(name)) for name in _COUNTERS}, **facts)
