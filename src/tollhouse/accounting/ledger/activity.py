"""The SQL of activity: the counters of days, in pages."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.accounting.ledger.types import Activity
from tollhouse.kernel.pages import Page
from tollhouse.storage.tables.accounting import usage_days
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from tollhouse.accounting.ledger.types import ActivityQuery
    from tollhouse.storage.transaction import Read

_PLACE = ("day", "model", "provider")
_SPLITS = ("key_hash", "workspace_id")
_COUNTERS = [each.name for each in fields(Activity) if each.name not in {*_PLACE, *_SPLITS}]


async def page(read: Read, query: ActivityQuery) -> Page[Activity]:
    """Return rows of activity, the latest day first."""
    place = [usage_days.c[name] for name in _PLACE]
    if query.split_by is not None:
        place.append(usage_days.c[query.split_by])
    rows = (
        sa.select(*place, *(sa.func.sum(usage_days.c[name]).label(name) for name in _COUNTERS))
        .where(*_wanted(query))
        .group_by(*place)
    )
    found = rows.order_by(usage_days.c.day.desc(), *place[1:])
    window = found.limit(query.window.limit).offset(query.window.offset)
    items = tuple(_activity(row) for row in (await read.execute(window)).mappings())
    count = sa.select(sa.func.count()).select_from(rows.subquery())
    return Page(items, (await read.execute(count)).scalar_one())


def _wanted(query: ActivityQuery) -> list[sa.ColumnElement[bool]]:
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
