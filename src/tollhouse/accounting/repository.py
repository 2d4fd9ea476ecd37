"""The SQL of postings, totals and generations (booking them is `settlement`'s)."""

from __future__ import annotations

from dataclasses import asdict, fields
from datetime import date
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.accounting.types import (
    Attempt,
    Attribution,
    Charge,
    CostState,
    Credits,
    GenerationRecord,
    KeyLimit,
    Posting,
    PostingKind,
    Reset,
    Spend,
    Usage,
)
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    generations,
    key_days,
    key_totals,
    limits,
    postings,
)
from tollhouse.storage.upsert import insert

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from tollhouse.storage.transaction import Read, Write

_KEY = "key"
_RAISED_BY = {PostingKind.PURCHASE: "purchased_nano", PostingKind.GRANT: "granted_nano"}


async def add_credit(write: Write, posting: Posting) -> bool:
    """Store a posting that brings credits in, and raise the account's totals.

    Returns:
        False where its idempotency key was used before; nothing is stored then.
    """
    added = (
        insert(write, postings)
        .values(**asdict(posting))
        .on_conflict_do_nothing(index_elements=["account_id", "idempotency_key"])
        .returning(postings.c.id)
    )
    if (await write.execute(added)).first() is None:
        return False
    raised = _RAISED_BY[posting.kind]
    amounts = {"purchased_nano": 0, "granted_nano": 0, "used_nano": 0}
    totals = insert(write, account_totals).values(
        account_id=posting.account_id, **{**amounts, raised: posting.amount_nano}
    )
    await write.execute(
        totals.on_conflict_do_update(
            index_elements=["account_id"],
            set_={raised: account_totals.c[raised] + posting.amount_nano},
        )
    )
    return True


async def posting_with_key_of(read: Read, other: Posting) -> Posting:
    """Return the earlier posting that has the idempotency key of this one."""
    query = sa.select(postings).where(
        postings.c.account_id == other.account_id,
        postings.c.idempotency_key == other.idempotency_key,
    )
    facts: dict[str, Any] = dict((await read.execute(query)).mappings().one())
    facts["kind"] = PostingKind(facts["kind"])
    return Posting(**facts)


async def credits_of(read: Read, account_id: str) -> Credits:
    """Return an account's totals; zeros where nothing ever moved."""
    query = sa.select(*(account_totals.c[each.name] for each in fields(Credits))).where(
        account_totals.c.account_id == account_id
    )
    row = (await read.execute(query)).mappings().one_or_none()
    return Credits() if row is None else Credits(**row)


async def key_totals_of(
    read: Read, key_hashes: Collection[str]
) -> dict[str, tuple[Spend, datetime]]:
    """Return the use over all time, and the last use, of those keys that were ever used."""
    query = sa.select(key_totals).where(key_totals.c.key_hash.in_(key_hashes))
    return {
        row.key_hash: (Spend(row.usage_nano, row.byok_usage_nano), row.last_used_at)
        for row in await read.execute(query)
    }


async def key_days_of(
    read: Read, key_hashes: Collection[str], first: date
) -> dict[str, dict[date, Spend]]:
    """Return the use of keys for each UTC day from `first` on."""
    query = sa.select(key_days).where(
        key_days.c.key_hash.in_(key_hashes), key_days.c.day >= first.isoformat()
    )
    days: dict[str, dict[date, Spend]] = {}
    for row in await read.execute(query):
        spend = Spend(row.usage_nano, row.byok_usage_nano)
        days.setdefault(row.key_hash, {})[date.fromisoformat(row.day)] = spend
    return days


async def key_limits_of(read: Read, key_hashes: Collection[str]) -> dict[str, KeyLimit]:
    """Return the limits of those keys that have any."""
    query = sa.select(limits).where(limits.c.scope == _KEY, limits.c.owner_id.in_(key_hashes))
    return {
        row.owner_id: KeyLimit(
            limit_nano=row.limit_nano,
            reset=None if row.reset_interval is None else Reset(row.reset_interval),
            include_byok=row.include_byok,
        )
        for row in await read.execute(query)
    }


async def save_key_limit(write: Write, key_hash: str, limit: KeyLimit, now: datetime) -> None:
    """Store a key's limit in place of the one before."""
    facts = {
        "limit_nano": limit.limit_nano,
        "reset_interval": None if limit.reset is None else limit.reset.value,
        "include_byok": limit.include_byok,
        "updated_at": now,
    }
    added = insert(write, limits).values(scope=_KEY, owner_id=key_hash, **facts)
    await write.execute(
        added.on_conflict_do_update(index_elements=["scope", "owner_id"], set_=facts)
    )


async def free_requests_of(read: Read, account_id: str, day: date) -> int:
    """Return how many generations of a UTC day count towards the limits of free models."""
    query = sa.select(account_days.c.free_requests).where(
        account_days.c.account_id == account_id, account_days.c.day == day.isoformat()
    )
    return (await read.execute(query)).scalar_one_or_none() or 0


async def free_requests_since(read: Read, account_id: str, first: date) -> dict[date, int]:
    """Return an account's limited requests to free models for each UTC day from `first` on."""
    query = sa.select(account_days.c.day, account_days.c.free_requests).where(
        account_days.c.account_id == account_id, account_days.c.day >= first.isoformat()
    )
    rows = await read.execute(query)
    return {date.fromisoformat(row.day): row.free_requests for row in rows}


async def get_generation(
    read: Read, account_id: str, generation_id: str
) -> GenerationRecord | None:
    """Return a generation of an account, or None."""
    query = sa.select(generations).where(
        generations.c.account_id == account_id, generations.c.id == generation_id
    )
    row = (await read.execute(query)).one_or_none()
    return None if row is None else _generation(row)


async def unknown_costs(
    read: Read, account_id: str | None, limit: int
) -> Sequence[GenerationRecord]:
    """Return the latest generations whose cost nobody knows, newest first."""
    query = sa.select(generations).where(generations.c.cost_state == "unknown")
    if account_id is not None:
        query = query.where(generations.c.account_id == account_id)
    newest = query.order_by(generations.c.created_at.desc(), generations.c.id.desc())
    rows = await read.execute(newest.limit(limit))
    return [_generation(row) for row in rows]


def _generation(row: sa.Row[Any]) -> GenerationRecord:
    return GenerationRecord(
        id=row.id,
        account_id=row.account_id,
        workspace_id=row.workspace_id,
        key_hash=row.key_hash,
        api_type=row.api_type,
        model=row.model,
        provider=row.provider,
        provider_model=row.provider_model,
        upstream_id=row.upstream_id,
        is_byok=row.is_byok,
        streamed=row.streamed,
        cancelled=row.cancelled,
        finish_reason=row.finish_reason,
        native_finish_reason=row.native_finish_reason,
        charge=_charge(row),
        latency_ms=row.latency_ms,
        generation_ms=row.generation_ms,
        attempts=tuple(Attempt(**attempt) for attempt in row.attempts),
        attribution=Attribution(
            http_referer=row.http_referer,
            app_title=row.app_title,
            user_agent=row.user_agent,
            external_user=row.external_user,
            session_id=row.session_id,
            categories=row.categories,
            trace=row.trace,
            metadata=row.metadata,
        ),
        created_at=row.created_at,
        images=row.images,
        free_limited=row.free_limited,
    )


def _charge(row: sa.Row[Any]) -> Charge:
    return Charge(
        state=CostState(row.cost_state),
        usage=Usage(
            input_tokens=row.input_tokens,
            cache_read_tokens=row.cache_read_tokens,
            cache_write_tokens=row.cache_write_tokens,
            cache_write_1h_tokens=row.cache_write_1h_tokens,
            output_tokens=row.output_tokens,
            reasoning_tokens=row.reasoning_tokens,
        ),
        cost_nano=row.cost_nano,
        provider_cost_nano=row.provider_cost_nano,
        cost=None,
    )
