"""The SQL of credits, limits, reservations and generations.

Booking charges is `settlement`'s; sums of what was used are in `uses`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.accounting.leases import KEY
from tollhouse.accounting.limits import INTERVALS, interval_name, interval_of
from tollhouse.accounting.owner import Owner, OwnerLimit
from tollhouse.accounting.types import (
    BudgetScope,
    CostState,
    Credits,
    GenerationRecord,
    KeyLimit,
    Posting,
    PostingKind,
    Reservation,
    attempts_json,
)
from tollhouse.accounting.uses import COUNTS_TO_PERSON
from tollhouse.kernel.clock import to_millis
from tollhouse.kernel.pages import Page
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import (
    account_totals,
    generations,
    limits,
    postings,
    reservations,
)
from tollhouse.storage.tables.identity import accounts, api_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence
    from datetime import datetime

    from tollhouse.kernel.pages import Window

_ENFORCED = tuple(BudgetScope)


async def lock_credits(write: Write, account_id: str) -> None:
    """Keep others from bringing in or reserving credits until the end; charges go on meanwhile."""
    # Not the stronger lock: a charge's foreign key would wait for it.
    mine = sa.select(accounts.c.id).where(accounts.c.id == account_id)
    await write.execute(mine.with_for_update(key_share=True))


async def add_credit(write: Write, posting: Posting, change: Credits) -> None:
    """Store a posting, and add a change to the account's totals."""
    await write.execute(sa.insert(postings).values(**asdict(posting)))
    amounts = asdict(change)
    totals = insert(write, account_totals).values(account_id=posting.account_id, **amounts)
    await write.execute(
        totals.on_conflict_do_update(
            index_elements=["account_id"],
            set_={name: account_totals.c[name] + amount for name, amount in amounts.items()},
        )
    )


async def posting_with_key(
    read: Read, account_id: str, idempotency_key: str | None
) -> Posting | None:
    """Return the posting of an account that has an idempotency key, or None."""
    if idempotency_key is None:
        return None
    query = sa.select(postings).where(
        postings.c.account_id == account_id, postings.c.idempotency_key == idempotency_key
    )
    row = (await read.execute(query)).mappings().one_or_none()
    if row is None:
        return None
    facts: dict[str, Any] = dict(row)
    facts["kind"] = PostingKind(facts["kind"])
    return Posting(**facts)


async def key_limits_of(read: Read, key_hashes: Collection[str]) -> dict[str, KeyLimit]:
    """Return the limits of those keys that have any."""
    query = sa.select(limits).where(limits.c.scope == KEY, limits.c.owner_id.in_(key_hashes))
    return {
        row.owner_id: KeyLimit(
            limit_nano=row.limit_nano,
            reset=interval_of(row.reset_interval),
            include_byok=row.include_byok,
        )
        for row in await read.execute(query)
    }


async def save_key_limit(write: Write, key_hash: str, limit: KeyLimit, now: datetime) -> None:
    """Store a key's limit in place of the one before."""
    interval = interval_name(limit.reset)
    before = limits.c.scope == KEY, limits.c.owner_id == key_hash
    # A key has one limit, whatever its interval is.
    await write.execute(sa.delete(limits).where(*before, limits.c.reset_interval != interval))
    facts = {
        "limit_nano": limit.limit_nano,
        "include_byok": limit.include_byok,
        "updated_at": now,
    }
    place = {"scope": KEY, "owner_id": key_hash, "reset_interval": interval}
    added = insert(write, limits).values(**place, created_at=now, **facts)
    await write.execute(added.on_conflict_do_update(index_elements=list(place), set_=facts))


async def add_reservation(write: Write, reservation: Reservation) -> None:
    """Store credits that are set aside."""
    await write.execute(sa.insert(reservations).values(**asdict(reservation)))


async def get_reservation(
    read: Read, reservation_id: str, *, lock: bool = False
) -> Reservation | None:
    """Return credits that are set aside, or None; `lock` keeps others from changing them."""
    query = sa.select(reservations).where(reservations.c.id == reservation_id)
    row = (await read.execute(query.with_for_update() if lock else query)).mappings().one_or_none()
    return None if row is None else Reservation(**row)


async def lower_reservation(
    write: Write, reservation_id: str, by_nano: int, with_own_by_nano: int
) -> None:
    """Lower a reservation, by what is there at most."""
    lower = {
        "amount_nano": reservations.c.amount_nano - by_nano,
        "with_own_nano": reservations.c.with_own_nano - with_own_by_nano,
    }
    its = reservations.c.id == reservation_id
    await write.execute(sa.update(reservations).where(its).values(lower))


async def end_reservation(write: Write, reservation_id: str) -> Reservation | None:
    """Forget a reservation; return it, or None where it has ended before."""
    ended = sa.delete(reservations).where(reservations.c.id == reservation_id)
    row = (await write.execute(ended.returning(reservations))).mappings().one_or_none()
    return None if row is None else Reservation(**row)


async def get_generation(
    read: Read, account_id: str, generation_id: str
) -> GenerationRecord | None:
    """Return a generation of an account, or None."""
    query = sa.select(generations).where(
        generations.c.account_id == account_id, generations.c.id == generation_id
    )
    row = (await read.execute(query)).mappings().one_or_none()
    return None if row is None else _generation(row)


async def unsettled(
    read: Read, state: CostState, account_id: str | None, limit: int
) -> Sequence[GenerationRecord]:
    """Return the latest generations of a state that no adjustment names, newest first."""
    looked_after = sa.exists().where(
        postings.c.generation_id == generations.c.id,
        postings.c.kind == PostingKind.ADJUSTMENT.value,
    )
    query = sa.select(generations).where(generations.c.cost_state == state.value, ~looked_after)
    if account_id is not None:
        query = query.where(generations.c.account_id == account_id)
    newest = query.order_by(generations.c.created_at.desc(), generations.c.id.desc())
    rows = await read.execute(newest.limit(limit))
    return [_generation(row) for row in rows.mappings()]


def _generation(row: sa.RowMapping) -> GenerationRecord:
    facts: dict[str, Any] = dict(row)
    facts["created_ms"] = to_millis(facts.pop("created_at"))
    facts["attempts_json"] = attempts_json(facts.pop("attempts"))
    return GenerationRecord(**facts)


# Limits of workspaces, people and end users


async def owners_of_keys(read: Read, key_hashes: Iterable[str]) -> Mapping[str, Sequence[Owner]]:
    """Return whose budgets requests with keys draw on, of those keys that ever were.

    That is who made one, unless it is an intern's, which another key answers for, and its
    workspace; without end users.
    """
    columns = api_keys.c.hash, api_keys.c.workspace_id, api_keys.c.creator_user_id
    query = sa.select(*columns, COUNTS_TO_PERSON.label("counts"))
    found: dict[str, Sequence[Owner]] = {}
    for row in await read.execute(query.where(api_keys.c.hash.in_(sorted(set(key_hashes))))):
        workspace = Owner(BudgetScope.WORKSPACE, row.workspace_id)
        person = row.creator_user_id if row.counts else None
        people = () if person is None else (Owner(BudgetScope.MEMBER, person),)
        found[row.hash] = (*people, workspace)
    return found


async def people_of(read: Read, key_hashes: Iterable[str]) -> Mapping[str, str]:
    """Return who made some keys: those whose use counts to a person."""
    found = await owners_of_keys(read, key_hashes)
    return {key: owners[0].id for key, owners in found.items() if len(owners) > 1}


async def keys_of(read: Read, person: str) -> Collection[str]:
    """Return the keys whose use counts to a person, those that were deleted too."""
    query = sa.select(api_keys.c.hash).where(api_keys.c.creator_user_id == person)
    return frozenset((await read.execute(query.where(COUNTS_TO_PERSON))).scalars())


async def limits_of(read: Read, owners: Iterable[Owner]) -> Sequence[OwnerLimit]:
    """Return the limits of some owners in the order in which they are enforced."""
    query = sa.select(limits).where(sa.or_(sa.false(), *(sa.and_(*_of(each)) for each in owners)))
    found = [_limit(row) for row in await read.execute(query)]

    def place(limit: OwnerLimit) -> tuple[int, str, int]:
        scope, id_ = limit.owner
        return _ENFORCED.index(scope), id_, INTERVALS.index(limit.reset)

    return sorted(found, key=place)


async def limits_end_users(read: Read, workspaces: Iterable[str]) -> bool:
    """Tell whether an end user of a workspace has a limit."""
    theirs = sa.or_(sa.false(), *(sa.and_(*_of_end_users(each)) for each in workspaces))
    query = sa.select(limits.c.owner_id).where(theirs).limit(1)
    return (await read.execute(query)).first() is not None


async def limits_of_end_users(read: Read, workspace_id: str, window: Window) -> Page[OwnerLimit]:
    """Return the limits of a workspace's end users, by their names."""
    wanted = _of_end_users(workspace_id)
    count = sa.select(sa.func.count()).select_from(limits).where(*wanted)
    query = sa.select(limits).where(*wanted).order_by(limits.c.owner_id, limits.c.reset_interval)
    rows = await read.execute(query.limit(window.limit).offset(window.offset))
    return Page(tuple(map(_limit, rows)), (await read.execute(count)).scalar_one())


async def save_limit(write: Write, limit: OwnerLimit) -> None:
    """Store a limit in place of the one of its owner and interval.

    Whether it counts own provider keys holds for all limits of its owner.
    """
    place = {
        "scope": limit.owner.scope.value,
        "owner_id": limit.owner.id,
        "reset_interval": interval_name(limit.reset),
    }
    changed = {"limit_nano": limit.limit_nano, "updated_at": limit.updated_at}
    kept = {"id": limit.id, "include_byok": limit.include_byok, "created_at": limit.created_at}
    added = insert(write, limits).values(place | kept | changed)
    await write.execute(added.on_conflict_do_update(index_elements=list(place), set_=changed))
    included = sa.update(limits).where(*_of(limit.owner)).values(include_byok=limit.include_byok)
    await write.execute(included)


async def remove_limit(write: Write, limit: OwnerLimit) -> None:
    """Take a limit away."""
    interval = limits.c.reset_interval == interval_name(limit.reset)
    await write.execute(sa.delete(limits).where(*_of(limit.owner), interval))


async def remove_limits_of_workspace(write: Write, workspace_id: str) -> None:
    """Take away the limits of a workspace and of its end users."""
    of_workspace = sa.and_(*_of(Owner(BudgetScope.WORKSPACE, workspace_id)))
    of_end_users = sa.and_(*_of_end_users(workspace_id))
    await write.execute(sa.delete(limits).where(of_workspace | of_end_users))


def _of(owner: Owner) -> Sequence[sa.ColumnElement[bool]]:
    return limits.c.scope == owner.scope.value, limits.c.owner_id == owner.id


def _of_end_users(workspace_id: str) -> Sequence[sa.ColumnElement[bool]]:
    # Their ids begin with the workspace's and a colon, which a semicolon follows.
    return (
        limits.c.scope == BudgetScope.END_USER.value,
        limits.c.owner_id > f"{workspace_id}:",
        limits.c.owner_id < f"{workspace_id};",
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
