"""What a group of generations changes in the database: rows and the totals they add up to."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import msgspec

from tollhouse.accounting.days import spend_of, utc_day
from tollhouse.accounting.types import Attribution, Spend
from tollhouse.storage.tables.base import to_millis

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from tollhouse.accounting.types import GenerationRecord

Row = dict[str, object]


@dataclass(frozen=True, slots=True)
class Booking:
    """Rows to add and totals to raise for generations that were not booked before."""

    postings: list[Row]
    account_totals: list[Row]
    account_days: list[Row]
    key_totals: list[Row]
    key_days: list[Row]
    usage_days: list[Row]


def generation_row(record: GenerationRecord) -> Row:
    """Return the row of `generations`, times in milliseconds, `attempts` as JSON text."""
    charge, usage = record.charge, record.charge.usage
    return {
        "id": record.id,
        "account_id": record.account_id,
        "workspace_id": record.workspace_id,
        "key_hash": record.key_hash,
        "payer_hash": record.payer_hash,
        "api_type": record.api_type,
        "model": record.model,
        "provider": record.provider,
        "provider_model": _storable(record.provider_model),
        "upstream_id": _storable(record.upstream_id),
        "is_byok": record.is_byok,
        "streamed": record.streamed,
        "cancelled": record.cancelled,
        "finish_reason": record.finish_reason,
        "native_finish_reason": _storable(record.native_finish_reason),
        "cost_state": charge.state.value,
        "cost_nano": charge.cost_nano,
        "provider_cost_nano": charge.provider_cost_nano,
        "input_tokens": usage.input_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cache_write_1h_tokens": usage.cache_write_1h_tokens,
        "output_tokens": usage.output_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "images": record.images,
        "free_limited": record.free_limited,
        "latency_ms": record.latency_ms,
        "generation_ms": record.generation_ms,
        "attempts": msgspec.json.encode(record.attempts).decode(),
        "http_referer": _storable(record.attribution.http_referer),
        "app_title": _storable(record.attribution.app_title),
        "user_agent": _storable(record.attribution.user_agent),
        "external_user": _storable(record.attribution.external_user),
        "session_id": _storable(record.attribution.session_id),
        "categories": _storable(record.attribution.categories),
        "trace": _storable(record.attribution.trace),
        "metadata": _storable(record.attribution.metadata),
        "created_at": to_millis(record.created_at),
    }


def storable(record: GenerationRecord) -> GenerationRecord:
    """Return a record whose foreign texts are ones that a database and JSON can hold."""
    attribution = {
        field.name: _storable(getattr(record.attribution, field.name))
        for field in fields(Attribution)
    }
    return replace(
        record,
        provider_model=_storable(record.provider_model),
        upstream_id=_storable(record.upstream_id),
        native_finish_reason=_storable(record.native_finish_reason),
        attribution=Attribution(**attribution),
    )


def _storable(text: str | None) -> str | None:
    """Return a foreign text without what a database refuses: U+0000 and halves of surrogates."""
    if text is None or (text.isascii() and "\0" not in text):
        return text
    whole = text.encode("utf-8", "replace").decode()
    return whole.replace("\0", "\N{REPLACEMENT CHARACTER}")


def booking(records: Sequence[GenerationRecord], new_ids: Collection[str]) -> Booking:
    """Return what the new ones among a group of generations change.

    Args:
        records: The group.
        new_ids: Ids of those whose row of `generations` was added just now.

    Returns:
        Postings and totals; rows of totals are sorted, so that two writers lock them in one order.
    """
    # The first of those with one id is the one that was added.
    first = {record.id: record for record in reversed(records)}
    fresh = [record for record in reversed(first.values()) if record.id in new_ids]
    accounts: defaultdict[str, int] = defaultdict(int)
    free: defaultdict[tuple[str, str], int] = defaultdict(int)
    days: defaultdict[tuple[str, str], Spend] = defaultdict(Spend)
    requests: defaultdict[tuple[str, str], int] = defaultdict(int)
    last_used: dict[str, int] = {}
    for record in fresh:
        at = to_millis(record.created_at)
        day = utc_day(record).isoformat()
        accounts[record.account_id] += record.charge.cost_nano
        free[record.account_id, day] += record.free_limited
        spend = spend_of(record)
        for key in record.key_hashes:
            days[key, day] += spend
            requests[key, day] += 1
            last_used[key] = max(at, last_used.get(key, 0))
    return Booking(
        postings=[_posting(record) for record in fresh if record.charge.cost_nano],
        account_totals=[
            {"account_id": account, "used_nano": used}
            for account, used in sorted(accounts.items())
            if used
        ],
        account_days=[
            {"account_id": account, "day": day, "free_requests": count}
            for (account, day), count in sorted(free.items())
            if count
        ],
        key_totals=_key_totals(days, last_used),
        key_days=[
            {"key_hash": key, "day": day, **_amounts(spend), "requests": requests[key, day]}
            for (key, day), spend in sorted(days.items())
        ],
        usage_days=_usage_days(fresh),
    )


def _amounts(spend: Spend) -> Row:
    return {"usage_nano": spend.usage_nano, "byok_usage_nano": spend.byok_usage_nano}


def _key_totals(days: dict[tuple[str, str], Spend], last_used: dict[str, int]) -> list[Row]:
    totals: defaultdict[str, Spend] = defaultdict(Spend)
    for (key, _), spend in days.items():
        totals[key] += spend
    return [
        {"key_hash": key, **_amounts(spend), "last_used_at": last_used[key]}
        for key, spend in sorted(totals.items())
    ]


def _usage_days(records: Sequence[GenerationRecord]) -> list[Row]:
    days: defaultdict[tuple[str, ...], list[int]] = defaultdict(lambda: [0] * len(_COUNTERS))
    for record in records:
        usage, spend = record.charge.usage, spend_of(record)
        # In the order of the primary key.
        place = (
            record.account_id,
            utc_day(record).isoformat(),
            record.key_hash,
            record.model,
            record.provider or "",
            record.workspace_id,
        )
        counts = (
            1,
            usage.prompt_tokens,
            usage.output_tokens,
            usage.reasoning_tokens,
            usage.cache_read_tokens,
            spend.usage_nano,
            spend.byok_usage_nano,
        )
        totals = days[place]
        for at, count in enumerate(counts):
            totals[at] += count
    return [
        dict(zip((*_PLACE, *_COUNTERS), (*place, *counts), strict=True))
        for place, counts in sorted(days.items())
    ]


_PLACE = ("account_id", "day", "key_hash", "model", "provider", "workspace_id")
_COUNTERS = (
    "requests",
    "prompt_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "cached_tokens",
    "usage_nano",
    "byok_usage_nano",
)


def _posting(record: GenerationRecord) -> Row:
    return {
        "id": f"usage-{record.id}",
        "account_id": record.account_id,
        "kind": "usage",
        "source": f"customer:{record.account_id}",
        "destination": "revenue",
        "amount_nano": record.charge.cost_nano,
        "generation_id": record.id,
        "created_at": to_millis(record.created_at),
    }
