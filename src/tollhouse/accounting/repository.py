"""The SQL of postings, totals and generations (booking them is `settlement`'s)."""

from __future__ import annotations

from collections import Counter
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
    Reservation,
    Reset,
    Spend,
    Usage,
)
from tollhouse.identity.types import AccountType
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    generations,
    key_days,
    key_totals,
    limits,
    postings,
    reservations,
)
from tollhouse.storage.tables.identity import accounts
from tollhouse.storage.upsert import insert

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime

    from tollhouse.storage.transaction import Read, Write

_KEY = "key"


async def alone_with(write: Write, account_id: str) -> None:
    """Keep others from bringing in or reserving an account's credits until this transaction ends.

    Charges go on being settled meanwhile.
    """
    # Not the stronger lock: a charge's foreign key would wait for it.
    mine = sa.select(accounts.c.id).where(accounts.c.id == account_id)
    await write.execute(mine.with_for_update(key_share=True))


async def add_credit(write: Write, posting: Posting, change: Credits) -> None:
    """Store a posting, and add a change to the account's totals."""
    await write.execute(sa.insert(postings).values(**asdict(posting)))
    amounts = change.columns()
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


async def free_requests_since(read: Read, account_id: str, first: date) -> dict[date, int]:
    """Return an account's limited requests to free models for each UTC day from `first` on."""
    query = sa.select(account_days.c.day, account_days.c.free_requests).where(
        account_days.c.account_id == account_id, account_days.c.day >= first.isoformat()
    )
    rows = await read.execute(query)
    return {date.fromisoformat(row.day): row.free_requests for row in rows}


async def account_type(read: Read, account_id: str) -> AccountType:
    """Return how an account pays."""
    query = sa.select(accounts.c.type).where(accounts.c.id == account_id)
    return AccountType((await read.execute(query)).scalar_one())


async def reserved_of_account(read: Read, account_id: str) -> int:
    """Return what is reserved of an account's credits."""
    total = sa.func.sum(reservations.c.amount_nano)
    query = sa.select(total).where(reservations.c.account_id == account_id)
    # PostgreSQL's sums of whole numbers are decimals.
    return int((await read.execute(query)).scalar_one() or 0)


async def reserved_of_keys(read: Read, key_hashes: Collection[str]) -> dict[str, int]:
    """Return what is reserved with keys, or answered for by them; of those that have any."""
    found: Counter[str] = Counter()
    for key in (reservations.c.key_hash, reservations.c.payer_hash):
        total = sa.func.sum(reservations.c.amount_nano)
        query = sa.select(key.label("key"), total.label("nano")).where(key.in_(key_hashes))
        for row in await read.execute(query.group_by(key)):
            found[row.key] += int(row.nano)
    return dict(found)


async def add_reservation(write: Write, reservation: Reservation) -> None:
    """Store credits that are set aside."""
    await write.execute(sa.insert(reservations).values(**asdict(reservation)))


async def lower_reservation(
    write: Write, reservation_id: str, by_nano: int
) -> tuple[str, int] | None:
    """Take from a reservation, down to nothing.

    Returns:
        Its account and what is left; None where it has ended.
    """
    amount = reservations.c.amount_nano
    lowered = (
        sa.update(reservations)
        .where(reservations.c.id == reservation_id)
        .values(amount_nano=sa.case((amount > by_nano, amount - by_nano), else_=0))
        .returning(reservations.c.account_id, reservations.c.amount_nano)
    )
    row = (await write.execute(lowered)).one_or_none()
    return None if row is None else (row.account_id, row.amount_nano)


async def end_reservation(write: Write, reservation_id: str) -> str | None:
    """Forget a reservation; return its account, or None where it has ended before."""
    ended = (
        sa.delete(reservations)
        .where(reservations.c.id == reservation_id)
        .returning(reservations.c.account_id)
    )
    return (await write.execute(ended)).scalar_one_or_none()


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
    """Return the latest generations whose cost nobody knows, newest first.

    One that an adjustment names was looked after.
    """
    looked_after = sa.exists().where(
        postings.c.generation_id == generations.c.id,
        postings.c.kind == PostingKind.ADJUSTMENT.value,
    )
    query = sa.select(generations).where(generations.c.cost_state == "unknown", ~looked_after)
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
        payer_hash=row.payer_hash,
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
