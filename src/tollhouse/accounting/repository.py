"""The SQL of postings, totals and generations (booking them is `settlement`'s)."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, fields
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from tollhouse.accounting.limits import interval_name, interval_of
from tollhouse.accounting.types import (
    CostState,
    Credits,
    GenerationRecord,
    KeyLimit,
    Posting,
    PostingKind,
    Reservation,
    Spend,
    attempts_json,
)
from tollhouse.identity.types import AccountType, KeyKind
from tollhouse.kernel.clock import to_millis
from tollhouse.storage.database import Read, Write, insert
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    generations,
    holders,
    key_days,
    key_totals,
    limits,
    postings,
    reservations,
)
from tollhouse.storage.tables.identity import accounts, api_keys

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_KEY = "key"


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
            reset=interval_of(row.reset_interval),
            include_byok=row.include_byok,
        )
        for row in await read.execute(query)
    }


async def save_key_limit(write: Write, key_hash: str, limit: KeyLimit, now: datetime) -> None:
    """Store a key's limit in place of the one before."""
    interval = interval_name(limit.reset)
    before = limits.c.scope == _KEY, limits.c.owner_id == key_hash
    # A key has one limit, whatever its interval is.
    await write.execute(sa.delete(limits).where(*before, limits.c.reset_interval != interval))
    facts = {
        "limit_nano": limit.limit_nano,
        "include_byok": limit.include_byok,
        "updated_at": now,
    }
    place = {"scope": _KEY, "owner_id": key_hash, "reset_interval": interval}
    added = insert(write, limits).values(**place, created_at=now, **facts)
    await write.execute(added.on_conflict_do_update(index_elements=list(place), set_=facts))


def made_by(person: str | sa.ColumnElement[str]) -> sa.Select[str]:
    """Return the hashes of the keys whose use counts to a person.

    What an intern's key uses counts to the key that answers for it.
    """
    return sa.select(api_keys.c.hash).where(
        api_keys.c.creator_user_id == person, api_keys.c.kind != KeyKind.INTERN.value
    )


async def requests_since(
    read: Read, account_id: str, first: date
) -> tuple[dict[date, int], dict[date, int]]:
    """Return an account's requests of each UTC day from `first` on.

    First those to free models that are limited, then those that own provider keys served.
    """
    query = sa.select(account_days).where(
        account_days.c.account_id == account_id, account_days.c.day >= first.isoformat()
    )
    rows = [(date.fromisoformat(row.day), row) for row in await read.execute(query)]
    free = {day: row.free_requests for day, row in rows}
    return free, {day: row.byok_requests for day, row in rows}


async def account_terms(read: Read, account_id: str) -> tuple[AccountType, bool]:
    """Return how an account pays, and whether no limit of free models holds for it."""
    columns = accounts.c.type, accounts.c.free_limits_exempt
    row = (await read.execute(sa.select(*columns).where(accounts.c.id == account_id))).one()
    return AccountType(row.type), row.free_limits_exempt


async def reserved_of_account(read: Read, account_id: str) -> int:
    """Return what is reserved of an account's credits."""
    total = sa.func.sum(reservations.c.amount_nano)
    query = sa.select(total).where(reservations.c.account_id == account_id)
    # PostgreSQL's sums of whole numbers are decimals.
    return int((await read.execute(query)).scalar_one() or 0)


async def reserved_of_keys(
    read: Read, key_hashes: Collection[str], limits_: Mapping[str, KeyLimit]
) -> dict[str, int]:
    """Return what is reserved with keys, or answered for by them; of those that have any.

    It is what their limits hold: more where these include own provider keys.
    """
    found: Counter[str] = Counter()
    with_own = [each for each, limit in limits_.items() if limit.include_byok]
    for key in (reservations.c.key_hash, reservations.c.payer_hash):
        held = sa.case(
            (key.in_(with_own), reservations.c.with_own_nano), else_=reservations.c.amount_nano
        )
        total = sa.func.sum(held)
        query = sa.select(key.label("key"), total.label("nano")).where(key.in_(key_hashes))
        for row in await read.execute(query.group_by(key)):
            found[row.key] += int(row.nano)
    return dict(found)


async def booked_seq(read: Read, holder: str) -> int:
    """Return up to which number a holder's charges are in what this transaction sees."""
    query = sa.select(holders.c.booked_seq).where(holders.c.id == holder)
    return (await read.execute(query)).scalar_one_or_none() or 0


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
    amount, with_own = reservations.c.amount_nano, reservations.c.with_own_nano
    await write.execute(
        sa.update(reservations)
        .where(reservations.c.id == reservation_id)
        .values(amount_nano=amount - by_nano, with_own_nano=with_own - with_own_by_nano)
    )


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
