"""The SQL of own keys of providers."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final, cast

import sqlalchemy as sa

from tollhouse.kernel.pages import Page, Window
from tollhouse.provider_keys.types import KeyRules, ProviderKey
from tollhouse.storage.tables.provider_keys import provider_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from tollhouse.storage.database import Read, Write

_RULES: Final = tuple(each.name for each in fields(KeyRules))
_IN_ORDER: Final = (
    provider_keys.c.provider,
    provider_keys.c.sort_order,
    provider_keys.c.created_at,
    provider_keys.c.id,
)


async def add(write: Write, key: ProviderKey) -> None:
    """Store a new key."""
    await write.execute(sa.insert(provider_keys).values(**_row(key)))


async def save(write: Write, key: ProviderKey) -> None:
    """Store what changed of a key."""
    changed = sa.update(provider_keys).where(provider_keys.c.id == key.id)
    await write.execute(changed.values(**_row(key)))


async def delete(write: Write, key_id: str) -> None:
    """Remove a key."""
    await write.execute(sa.delete(provider_keys).where(provider_keys.c.id == key_id))


async def note_error(
    write: Write, key_id: str, version: int, error: str | None, at: datetime
) -> None:
    """Keep why a provider did not take a key (None: it does), unless it has another text now."""
    same = sa.and_(provider_keys.c.id == key_id, provider_keys.c.version == version)
    noted = sa.update(provider_keys).where(same)
    last = None if error is None else at
    await write.execute(noted.values(last_error=error, last_error_at=last))


async def get(read: Read, account_id: str, key_id: str) -> ProviderKey | None:
    """Return a key of an account, or None."""
    query = sa.select(provider_keys).where(
        provider_keys.c.account_id == account_id, provider_keys.c.id == key_id
    )
    row = (await read.execute(query)).mappings().first()
    return None if row is None else _key(row)


async def page(
    read: Read, workspace_id: str, provider: str | None, window: Window
) -> Page[ProviderKey]:
    """Return part of a workspace's keys, by provider and in the order in which they are asked."""
    query = sa.select(provider_keys).where(provider_keys.c.workspace_id == workspace_id)
    if provider is not None:
        query = query.where(provider_keys.c.provider == provider)
    count = sa.select(sa.func.count()).select_from(query.subquery())
    total = (await read.execute(count)).scalar_one()
    rows = await read.execute(query.order_by(*_IN_ORDER).offset(window.offset).limit(window.limit))
    return Page(tuple(_key(row) for row in rows.mappings()), total)


async def of_workspace(read: Read, workspace_id: str) -> Sequence[ProviderKey]:
    """Return every key of a workspace."""
    query = sa.select(provider_keys).where(provider_keys.c.workspace_id == workspace_id)
    return [_key(row) for row in (await read.execute(query)).mappings()]


async def enabled_of_account(read: Read, account_id: str) -> Sequence[ProviderKey]:
    """Return the enabled keys of an account, in the order in which they are asked."""
    query = sa.select(provider_keys).where(
        provider_keys.c.account_id == account_id, provider_keys.c.disabled.is_(False)
    )
    rows = await read.execute(query.order_by(*_IN_ORDER))
    return [_key(row) for row in rows.mappings()]


async def last_place(read: Read, workspace_id: str, provider: str) -> int:
    """Return the highest place among the keys of a provider; -1 where there are none."""
    query = sa.select(sa.func.max(provider_keys.c.sort_order)).where(
        provider_keys.c.workspace_id == workspace_id, provider_keys.c.provider == provider
    )
    found = (await read.execute(query)).scalar_one()
    return -1 if found is None else int(found)


def _row(key: ProviderKey) -> dict[str, Any]:
    row = asdict(key)
    rules = cast("dict[str, Any]", row.pop("rules"))
    lists = {
        name: list(cast("tuple[str, ...]", value))
        for name, value in rules.items()
        if isinstance(value, tuple)
    }
    return row | rules | lists


def _key(row: sa.RowMapping) -> ProviderKey:
    facts: dict[str, Any] = dict(row)
    rules = {name: _tuple(facts.pop(name)) for name in _RULES}
    return ProviderKey(rules=KeyRules(**rules), **facts)


def _tuple(value: Any) -> Any:  # noqa: ANN401 - whatever a column holds
    return tuple(cast("list[str]", value)) if isinstance(value, list) else value
