"""What a group of generations changes, before any database sees it."""

from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone

import msgspec
import pytest

from tests.support.builders import charge, generation_record
from tests.support.clock import START
from tollhouse.accounting.settlement.booking import (
    GENERATION,
    POSTING,
    TOTALS,
    Booking,
    added,
    booking,
    generation_row,
)
from tollhouse.accounting.settlement.payloads import storable
from tollhouse.accounting.types import Attempt, Attribution, GenerationRecord, Usage
from tollhouse.kernel.clock import to_millis
from tollhouse.storage.tables.accounting import generations

DAY = START.date().isoformat()
OF_STRANGERS = ("provider_model", "upstream_id", "native_finish_reason")


Named = dict[str, list[dict[str, object]]]


def named(change: Booking) -> Named:
    """Return the rows of each table by the names of their columns."""
    columns = {"postings": POSTING, **{table: each.columns for table, each in TOTALS.items()}}
    return {
        table: [dict(zip(columns[table], row, strict=True)) for row in rows]
        for table, rows in change.changes()
    }


def booked(records: Sequence[GenerationRecord]) -> Named:
    """Return what records change, all of which are new."""
    return named(booking(added(records, {each.id for each in records})))


def test_a_row_has_every_column_of_the_table() -> None:
    assert list(GENERATION) == [column.name for column in generations.columns]


def test_attempts_are_stored_as_json() -> None:
    attempts = (Attempt("acme", None, 20), Attempt("other", 200, 30))
    row = generation_row(generation_record(attempts=attempts))
    text = str(row[GENERATION.index("attempts")])
    assert msgspec.json.decode(text) == [
        {"provider": "acme", "status": None, "latency_ms": 20},
        {"provider": "other", "status": 200, "latency_ms": 30},
    ]


def test_a_record_shows_nothing_that_its_caller_said() -> None:
    said = Attribution(*(f"said {number}" for number in range(8)))
    record = generation_record(id="gen-1", attribution=said, upstream_id="said")
    assert repr(record) == "GenerationRecord(id='gen-1')"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        ("plain", "plain"),
        ("näin 🙂", "näin 🙂"),
        ("a\0b", "a\N{REPLACEMENT CHARACTER}b"),
        ("\ud800", "?"),
    ],
)
def test_texts_of_strangers_lose_what_a_database_refuses(
    given: str | None, stored: str | None
) -> None:
    record, cleaned = (
        generation_record(
            attribution=Attribution(*(text for _ in fields(Attribution))),
            **dict.fromkeys(OF_STRANGERS, text),
        )
        for text in (given, stored)
    )
    assert storable(record) == cleaned


def test_replies_of_a_key_and_a_day_add_up() -> None:
    group = [
        generation_record(id=id_, cost_nano=cost, free_limited=True, created_at=at)
        for id_, cost, at in (("g", 7, START + timedelta(seconds=1)), ("h", 5, START))
    ]
    assert booked(group) == {
        "postings": [
            {
                "id": f"usage-{id_}",
                "account_id": "account",
                "kind": "usage",
                "source": "customer:account",
                "destination": "revenue",
                "amount_nano": cost,
                "generation_id": id_,
                "created_at": to_millis(at),
            }
            for id_, cost, at in (("g", 7, START + timedelta(seconds=1)), ("h", 5, START))
        ],
        "account_totals": [{"account_id": "account", "used_nano": 12}],
        "account_days": [{"account_id": "account", "day": DAY, "free_requests": 2}],
        "key_totals": [
            {
                "key_hash": "a" * 64,
                "usage_nano": 12,
                "byok_usage_nano": 0,
                "last_used_at": to_millis(START + timedelta(seconds=1)),
            }
        ],
        "key_days": [
            {
                "key_hash": "a" * 64,
                "day": DAY,
                "usage_nano": 12,
                "byok_usage_nano": 0,
                "requests": 2,
            }
        ],
        "usage_days": [
            {
                "account_id": "account",
                "day": DAY,
                "key_hash": "a" * 64,
                "model": "acme/large",
                "provider": "acme",
                "workspace_id": "workspace",
                "requests": 2,
                "prompt_tokens": 20,
                "completion_tokens": 10,
                "reasoning_tokens": 0,
                "cached_tokens": 0,
                "usage_nano": 12,
                "byok_usage_nano": 0,
            }
        ],
    }


def test_a_posting_moves_the_cost_from_the_customer_to_revenue() -> None:
    [posting] = booked([generation_record(id="g", cost_nano=7, account_id="a")])["postings"]
    assert (posting["source"], posting["destination"]) == ("customer:a", "revenue")
    assert (posting["amount_nano"], posting["generation_id"]) == (7, "g")


def test_a_free_reply_moves_nothing_and_is_counted() -> None:
    change = booked([generation_record(id="g", cost_nano=0)])
    assert change.keys() == {"key_totals", "key_days", "usage_days"}
    assert change["key_days"][0]["requests"] == 1


def test_what_was_booked_before_changes_nothing() -> None:
    assert named(booking(added([generation_record(id="g")], set()))) == {}


def test_what_stands_twice_in_a_group_counts_once_as_it_stood_first() -> None:
    twice = [generation_record(id="g", cost_nano=3), generation_record(id="g", cost_nano=5)]
    change = booked(twice)
    assert [row["amount_nano"] for row in change["postings"]] == [3]
    assert change["key_days"][0]["requests"] == 1


def test_totals_are_summed_for_each_account_key_and_day() -> None:
    monday, tuesday = datetime(2026, 3, 9, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC)
    group = [
        generation_record(id="1", cost_nano=1, account_id="a", key_hash="k", created_at=tuesday),
        generation_record(id="2", cost_nano=2, account_id="a", key_hash="k", created_at=monday),
        generation_record(id="3", cost_nano=4, account_id="a", key_hash="j", created_at=monday),
        generation_record(id="4", cost_nano=8, account_id="b", key_hash="l", created_at=monday),
    ]
    change = booked(group)
    assert change["account_totals"] == [
        {"account_id": "a", "used_nano": 7},
        {"account_id": "b", "used_nano": 8},
    ]
    assert [(row["key_hash"], row["usage_nano"]) for row in change["key_totals"]] == [
        ("j", 4),
        ("k", 3),
        ("l", 8),
    ]
    assert [(row["key_hash"], row["day"]) for row in change["key_days"]] == [
        ("j", "2026-03-09"),
        ("k", "2026-03-09"),
        ("k", "2026-03-10"),
        ("l", "2026-03-09"),
    ]


def test_the_last_use_is_the_latest_of_the_group() -> None:
    late = datetime(2026, 3, 10, tzinfo=UTC)
    group = [
        generation_record(id="1", created_at=late),
        generation_record(id="2", created_at=late - timedelta(hours=1)),
    ]
    [total] = booked(group)["key_totals"]
    assert total["last_used_at"] == int(late.timestamp() * 1000)


def test_the_day_is_the_utc_day() -> None:
    at = datetime(2026, 3, 10, 1, 0, tzinfo=timezone(timedelta(hours=2)))
    [day] = booked([generation_record(id="g", created_at=at)])["key_days"]
    assert day["day"] == "2026-03-09"


def test_a_callers_own_provider_key_counts_apart() -> None:
    own = generation_record(id="g", is_byok=True, charge=charge(0, provider_cost_nano=9))
    [total] = booked([own])["key_totals"]
    assert (total["usage_nano"], total["byok_usage_nano"]) == (0, 9)


def test_a_day_is_counted_for_each_key_model_provider_and_workspace() -> None:
    usage = Usage(
        input_tokens=1,
        cache_read_tokens=2,
        cache_write_tokens=4,
        cache_write_1h_tokens=8,
        output_tokens=16,
        reasoning_tokens=3,
    )
    group = [
        generation_record(id="1", charge=charge(5, usage=usage)),
        generation_record(id="2", charge=charge(6, usage=usage)),
        generation_record(id="3", charge=charge(7, usage=usage), provider=None),
    ]
    nobodys, day = booked(group)["usage_days"]
    assert (nobodys["provider"], nobodys["usage_nano"]) == ("", 7)
    assert day == {
        "account_id": "account",
        "day": "2026-03-12",
        "key_hash": "a" * 64,
        "model": "acme/large",
        "provider": "acme",
        "workspace_id": "workspace",
        "requests": 2,
        "prompt_tokens": 30,
        "completion_tokens": 32,
        "reasoning_tokens": 6,
        "cached_tokens": 4,
        "usage_nano": 11,
        "byok_usage_nano": 0,
    }
