"""Decisions about money that need no database."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tollhouse.accounting.types import (
    FreeRequests,
    KeyUsage,
    Posting,
    PostingKind,
    Reset,
    Spend,
)
from tollhouse.accounting.windows import window_start
from tollhouse.identity.types import KeyKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from tollhouse.accounting.rules import Rules
    from tollhouse.accounting.types import Credits, GenerationRecord
    from tollhouse.identity.types import Subject

SOURCES = {PostingKind.PURCHASE: "purchases", PostingKind.GRANT: "grants"}


def credit_posting(  # noqa: PLR0913 - each is a fact of the posting
    posting_id: str,
    account_id: str,
    kind: PostingKind,
    amount_nano: int,
    now: datetime,
    *,
    idempotency_key: str | None = None,
    note: str | None = None,
) -> Posting:
    """Return the posting that brings credits into an account."""
    return Posting(
        id=posting_id,
        account_id=account_id,
        kind=kind,
        source=SOURCES[kind],
        destination=f"customer:{account_id}",
        amount_nano=amount_nano,
        generation_id=None,
        idempotency_key=idempotency_key,
        note=note,
        created_at=now,
    )


def same_credit(one: Posting, other: Posting) -> bool:
    """Tell whether two requests to add credits ask for the same thing."""
    return (one.account_id, one.kind, one.amount_nano) == (
        other.account_id,
        other.kind,
        other.amount_nano,
    )


def first_day_needed(now: datetime) -> date:
    """Return the earliest UTC day that the current day, week and month reach back to."""
    today = now.astimezone(UTC).date()
    return min(window_start(reset, today) for reset in Reset)


def key_usage(
    total: Spend,
    days: Mapping[date, Spend],
    now: datetime,
    last_used_at: datetime | None,
) -> KeyUsage:
    """Return a key's counters from its days: UTC day, week from Monday, calendar month."""
    today = now.astimezone(UTC).date()

    def current(reset: Reset) -> Spend:
        first = window_start(reset, today)
        return sum((spend for day, spend in days.items() if first <= day <= today), Spend())

    return KeyUsage(
        total=total,
        daily=current(Reset.DAILY),
        weekly=current(Reset.WEEKLY),
        monthly=current(Reset.MONTHLY),
        last_used_at=last_used_at,
    )


def free_requests_a_day(credits_: Credits, rules: Rules) -> int:
    """Return how many requests to free models an account has in a UTC day.

    Source: the public gateway's limits: 50 a day, 1,000 from ten purchased credits on, where one
    credit less is enough.
    """
    raised = credits_.kept_purchases_nano >= rules.raised_from_nano
    return rules.free_per_day_raised if raised else rules.free_per_day


def free_requests(credits_: Credits, used: int, rules: Rules) -> FreeRequests:
    """Return what an account asked of free models in a UTC day, and what it may."""
    limit = free_requests_a_day(credits_, rules)
    return FreeRequests(used=used, limit=limit, remaining=max(0, limit - used))


def sees_generation(subject: Subject, record: GenerationRecord) -> bool:
    """Tell whether a key may read a generation of its account.

    A management key reads all of them, an API key those of its workspace, an intern's key those
    that were made with it.
    """
    if subject.kind is KeyKind.MANAGEMENT:
        return True
    if subject.kind is KeyKind.INTERN:
        return record.key_hash == subject.key_hash
    return record.workspace_id == subject.workspace_id
