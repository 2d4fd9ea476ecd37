"""The SQL of the limits of workspaces, people and end users, and of what these have used."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from tollhouse.accounting.limits import INTERVALS, interval_name, interval_of
from tollhouse.accounting.owner import Owner, OwnerLimit, OwnerUse
from tollhouse.accounting.repository import made_by
from tollhouse.accounting.types import BudgetScope, Spend
from tollhouse.identity.types import KeyKind
from tollhouse.kernel.pages import Page
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import (
    key_days,
    key_totals,
    limits,
    owner_days,
    reservations,
)
from tollhouse.storage.tables.identity import api_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.accounting.types import Reset
    from tollhouse.kernel.pages import Window

    Condition = sa.ColumnElement[bool]

_ENFORCED = tuple(BudgetScope)


class KeyOwners(NamedTuple):
    """Whose budgets the requests of a key draw on."""

    workspace_id: str
    person: str | None
    """Who made it; None also of an intern's, which another key answers for."""

    @property
    def people(self) -> Sequence[Owner]:
        """Who made it."""
        return () if self.person is None else (Owner(BudgetScope.MEMBER, self.person),)

    @property
    def all(self) -> Sequence[Owner]:
        """The owners, without end users."""
        return (*self.people, Owner(BudgetScope.WORKSPACE, self.workspace_id))


async def owners_of_key(read: Read, key_hash: str) -> KeyOwners | None:
    """Return whose budgets requests with a key draw on; None where there never was such a key."""
    query = sa.select(api_keys.c.workspace_id, api_keys.c.creator_user_id, api_keys.c.kind).where(
        api_keys.c.hash == key_hash
    )
    row = (await read.execute(query)).one_or_none()
    if row is None:
        return None
    is_interns = row.kind == KeyKind.INTERN.value
    return KeyOwners(row.workspace_id, None if is_interns else row.creator_user_id)


async def limits_of(read: Read, owners: Collection[Owner]) -> Sequence[OwnerLimit]:
    """Return the limits of some owners in the order in which they are enforced."""
    wanted = [
        sa.and_(limits.c.scope == each.scope.value, limits.c.owner_id == each.id) for each in owners
    ]
    return await _limits(read, sa.or_(sa.false(), *wanted))


async def limits_end_users(read: Read, workspace_id: str) -> bool:
    """Tell whether an end user of a workspace has a limit."""
    query = sa.select(limits.c.owner_id).where(*_of_end_users(workspace_id)).limit(1)
    return (await read.execute(query)).first() is not None


async def limits_of_end_users(read: Read, workspace_id: str, window: Window) -> Page[OwnerLimit]:
    """Return the limits of a workspace's end users, by their names."""
    wanted = _of_end_users(workspace_id)
    count = sa.select(sa.func.count()).select_from(limits).where(*wanted)
    total = (await read.execute(count)).scalar_one()
    query = sa.select(limits).where(*wanted).order_by(limits.c.owner_id, limits.c.reset_interval)
    rows = await read.execute(query.limit(window.limit).offset(window.offset))
    return Page(tuple(_limit(row) for row in rows), total)


async def save(write: Write, limit: OwnerLimit) -> None:
    """Store a limit in place of the one of its owner and interval."""
    changed = {
        "limit_nano": limit.limit_nano,
        "include_byok": limit.include_byok,
        "updated_at": limit.updated_at,
    }
    added = insert(write, limits).values(
        scope=limit.owner.scope.value,
        owner_id=limit.owner.id,
        reset_interval=interval_name(limit.reset),
        id=limit.id,
        created_at=limit.created_at,
        **changed,
    )
    keys = ["scope", "owner_id", "reset_interval"]
    await write.execute(added.on_conflict_do_update(index_elements=keys, set_=changed))


async def include_byok(write: Write, owner: Owner, *, included: bool) -> None:
    """Have all limits of an owner include own provider keys, or none."""
    changed = sa.update(limits).where(*_of(owner)).values(include_byok=included)
    await write.execute(changed)


async def remove(write: Write, owner: Owner, reset: Reset | None) -> None:
    """Take a limit away."""
    interval = limits.c.reset_interval == interval_name(reset)
    await write.execute(sa.delete(limits).where(*_of(owner), interval))


async def remove_of_workspace(write: Write, workspace_id: str) -> Sequence[OwnerLimit]:
    """Take away the limits of a workspace and of its end users; return those of itself."""
    workspace = Owner(BudgetScope.WORKSPACE, workspace_id)
    removed = await limits_of(write, [workspace])
    await write.execute(sa.delete(limits).where(*_of(workspace)))
    await write.execute(sa.delete(limits).where(*_of_end_users(workspace_id)))
    return removed


async def keys_of(read: Read, person: str) -> Collection[str]:
    """Return the keys that a person has made, those that were deleted too."""
    return frozenset((await read.execute(made_by(person))).scalars())


async def use_of(
    read: Read, account_id: str, owner: Owner, limits_: Collection[OwnerLimit], first: date
) -> OwnerUse:
    """Return what the books say of an owner, as far as its limits ask for it.

    Args:
        read: Where they are read.
        account_id: Whose owner it is.
        owner: Who it is.
        limits_: Its limits.
        first: How far back the days go.
    """
    found = OwnerUse(days=await _days(read, account_id, owner, first))
    if any(each.reset is None for each in limits_):
        found = replace(found, total=await _total(read, account_id, owner))
    if owner.scope is BudgetScope.END_USER:
        return found  # a batch has many
    if owner.scope is BudgetScope.WORKSPACE:
        wanted: Condition = reservations.c.workspace_id == owner.id
    else:
        keys = made_by(owner.id)
        wanted = reservations.c.key_hash.in_(keys) | reservations.c.payer_hash.in_(keys)
    sums = sa.select(
        sa.func.sum(reservations.c.amount_nano).label("amount"),
        sa.func.sum(reservations.c.with_own_nano).label("with_own"),
    )
    row = (await read.execute(sums.where(wanted))).one()
    # PostgreSQL's sums of whole numbers are decimals.
    return replace(
        found, reserved_nano=int(row.amount or 0), reserved_with_own_nano=int(row.with_own or 0)
    )


async def _days(read: Read, account_id: str, owner: Owner, first: date) -> dict[date, Spend]:
    if owner.scope is BudgetScope.MEMBER:
        since = key_days.c.key_hash.in_(made_by(owner.id)), key_days.c.day >= first.isoformat()
        query = sa.select(key_days.c.day, *_sums(key_days)).where(*since)
        rows = await read.execute(query.group_by(key_days.c.day))
    else:
        since = *_used_by(account_id, owner), owner_days.c.day >= first.isoformat()
        rows = await read.execute(sa.select(owner_days).where(*since))
    return {date.fromisoformat(row.day): _spend(row) for row in rows}


async def _total(read: Read, account_id: str, owner: Owner) -> Spend:
    if owner.scope is BudgetScope.MEMBER:
        query = sa.select(*_sums(key_totals)).where(key_totals.c.key_hash.in_(made_by(owner.id)))
    else:
        query = sa.select(*_sums(owner_days)).where(*_used_by(account_id, owner))
    return _spend((await read.execute(query)).one())


def _spend(row: sa.Row[Any]) -> Spend:
    return Spend(int(row.usage_nano or 0), int(row.byok_usage_nano or 0))


def _sums(table: sa.Table) -> Sequence[sa.ColumnElement[int]]:
    names = ("usage_nano", "byok_usage_nano")
    return [sa.func.sum(table.c[name]).label(name) for name in names]


def _used_by(account_id: str, owner: Owner) -> tuple[Condition, ...]:
    return (
        owner_days.c.account_id == account_id,
        owner_days.c.scope == owner.scope.value,
        owner_days.c.owner_id == owner.id,
    )


def _of(owner: Owner) -> tuple[Condition, Condition]:
    return limits.c.scope == owner.scope.value, limits.c.owner_id == owner.id


def _of_end_users(workspace_id: str) -> tuple[Condition, ...]:
    # Their ids begin with the workspace's and a colon, which a semicolon follows.
    return (
        limits.c.scope == BudgetScope.END_USER.value,
        limits.c.owner_id > f"{workspace_id}:",
        limits.c.owner_id < f"{workspace_id};",
    )


async def _limits(read: Read, wanted: Condition) -> Sequence[OwnerLimit]:
    found = [_limit(row) for row in await read.execute(sa.select(limits).where(wanted))]
    return sorted(
        found,
        key=lambda each: (
            _ENFORCED.index(each.owner.scope),
            each.owner.id,
            INTERVALS.index(each.reset),
        ),
    )


def _limit(row: sa.Row[Any]) -> OwnerLimit:
    return OwnerLimit(
        Owner(BudgetScope(row.scope), row.owner_id),
        row.id,
        row.limit_nano,
        interval_of(row.reset_interval),
        row.include_byok,
        row.created_at,
        row.updated_at,
    )
