"""Decisions about money that need no database."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

from tollhouse.accounting.limits import AccountingRules, window_start
from tollhouse.accounting.types import (
    ADJUSTMENTS,
    CUSTOMER,
    GRANTS,
    PURCHASES,
    Credits,
    FreeRequests,
    KeyUsage,
    Posting,
    PostingKind,
    Reset,
    Spend,
)
from tollhouse.identity.types import KeyKind, Subject
from tollhouse.kernel.errors import Conflict, Invalid
from tollhouse.kernel.money import MAX_NANO, format_credits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.accounting.types import GenerationRecord

_COUNTERPARTS = {
    PostingKind.PURCHASE: PURCHASES,
    PostingKind.REFUND: PURCHASES,
    PostingKind.GRANT: GRANTS,
    PostingKind.ADJUSTMENT: ADJUSTMENTS,
}


def credit_posting(  # noqa: PLR0913 - each is a fact of the posting
    posting_id: str,
    account_id: str,
    kind: PostingKind,
    amount_nano: int,
    now: datetime,
    *,
    generation_id: str | None = None,
    idempotency_key: str | None = None,
    note: str | None = None,
) -> Posting:
    """Return the posting of a purchase, a grant, a refund or an adjustment.

    The amount given is positive; that of an adjustment, which needs a note, may also be negative,
    but not 0. The posting's own is always positive: what it means for the customer stands in its
    two sides. Raises `Invalid` where these facts make no posting of this kind.
    """
    if kind is PostingKind.ADJUSTMENT:
        if amount_nano == 0:
            raise Invalid("The amount of an adjustment must not be zero.")
        if not (note and note.strip()):
            raise Invalid("An adjustment needs a note that says why.")
    elif amount_nano <= 0:
        raise Invalid("The amount must be a positive number of credits.")
    elif generation_id is not None:
        raise Invalid("Only an adjustment can name a generation.")
    source, destination = _COUNTERPARTS[kind], CUSTOMER + account_id
    if kind is PostingKind.REFUND or amount_nano < 0:
        source, destination = destination, source
    return Posting(
        id=posting_id,
        account_id=account_id,
        kind=kind,
        source=source,
        destination=destination,
        amount_nano=abs(amount_nano),
        generation_id=generation_id,
        idempotency_key=idempotency_key,
        note=note,
        created_at=now,
    )


def balance_change(posting: Posting) -> int:
    """Return what a posting adds to the customer's balance, negative where it takes."""
    if posting.destination == CUSTOMER + posting.account_id:
        return posting.amount_nano
    return -posting.amount_nano


def credits_change(posting: Posting) -> Credits:
    """Return what the posting of a purchase, grant, refund or adjustment adds to the totals."""
    match posting.kind:
        case PostingKind.PURCHASE:
            return Credits(purchased_nano=posting.amount_nano)
        case PostingKind.GRANT:
            return Credits(granted_nano=posting.amount_nano)
        case PostingKind.REFUND:
            return Credits(refunded_nano=posting.amount_nano)
        case _:
            return Credits(adjusted_nano=balance_change(posting))


def check_credits(held: Credits, posting: Posting) -> None:
    """Refuse a posting that an account's money does not allow.

    Raises:
        Conflict: More would be refunded than was purchased and not refunded yet.
        Invalid: A total would be larger than can be counted.
    """
    if posting.kind is PostingKind.REFUND and posting.amount_nano > held.kept_purchases_nano:
        kept = format_credits(held.kept_purchases_nano)
        raise Conflict(f"No more than {kept} credits of purchases are left to be refunded.")
    after = held + credits_change(posting)
    if max(abs(each) for each in (*asdict(after).values(), after.total_nano)) > MAX_NANO:
        raise Invalid("The account would hold more credits than can be counted.")


def is_same_posting(one: Posting, other: Posting) -> bool:
    """Tell whether two postings of an account ask for the same thing, whatever their notes."""

    def facts(posting: Posting) -> tuple[object, ...]:
        return posting.account_id, posting.kind, balance_change(posting), posting.generation_id

    return facts(one) == facts(other)


def first_day_of_windows(now: datetime) -> date:
    """Return the earliest UTC day that the current day, week and month reach back to."""
    today = now.astimezone(UTC).date()
    return min(window_start(reset, today) for reset in Reset)


def key_usage(
    total: Spend, days: Mapping[date, Spend], now: datetime, last_used_at: datetime | None
) -> KeyUsage:
    """Return a key's counters from its days: UTC day, week from Monday, calendar month.

    As in admission, what was booked on a later day than a clock that was set back shows is in them.
    """
    today = now.astimezone(UTC).date()

    def current(reset: Reset) -> Spend:
        first = window_start(reset, today)
        return sum((spend for day, spend in days.items() if day >= first), Spend())

    daily, weekly, monthly = map(current, (Reset.DAILY, Reset.WEEKLY, Reset.MONTHLY))
    return KeyUsage(total, daily, weekly, monthly, last_used_at)


def free_requests_a_day(credits_: Credits, rules: AccountingRules) -> int:
    """Return how many requests to free models an account has in a UTC day.

    Source: the public gateway's limits: 50 a day, 1,000 from ten purchased credits on, where one
    credit less is enough.
    """
    raised = credits_.kept_purchases_nano >= rules.raised_from_nano
    return rules.free_per_day_raised if raised else rules.free_per_day


def free_requests(credits_: Credits, used: int, rules: AccountingRules) -> FreeRequests:
    """Return what an account asked of free models in a UTC day, and what it may."""
    limit = free_requests_a_day(credits_, rules)
    return FreeRequests(used=used, limit=limit, remaining=max(0, limit - used))


def may_read_generation(subject: Subject, record: GenerationRecord) -> bool:
    """Tell whether a key may read a generation of its account.

    A management key reads all of them, an API key those of its workspace, an intern's key those
    that were made with it.
    """
    if subject.kind is KeyKind.MANAGEMENT:
        return True
    if subject.kind is KeyKind.INTERN:
        return record.key_hash == subject.key_hash
    return record.workspace_id == subject.workspace_id
