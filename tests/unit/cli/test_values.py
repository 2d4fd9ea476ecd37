from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.values import (
    credits_text,
    expiry,
    header_text,
    is_hash_prefix,
    is_key_hash,
    parse_amount,
    parse_limit_option,
    path_segment,
    price_per_million,
    slug_of,
)
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.money import nano_to_float

NOW = datetime(2026, 11, 20, 12, 0, 0, 500_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30d", "2026-12-20T12:00:00Z"),
        ("12h", "2026-11-21T00:00:00Z"),
        ("2w", "2026-12-04T12:00:00Z"),
        ("2027-01-01", "2027-01-01T00:00:00Z"),
        ("2027-01-01T00:00:00Z", "2027-01-01T00:00:00Z"),
        ("2027-01-01T02:00:00+02:00", "2027-01-01T00:00:00Z"),
        (" 2027-01-01T00:00:00.900Z ", "2027-01-01T00:00:00Z"),
    ],
)
def test_an_expiry_is_a_point_in_utc(text: str, expected: str) -> None:
    assert expiry(text, NOW) == expected


@pytest.mark.parametrize(
    "text",
    ["", "soon", "0d", "-3d", "30", "30m", "1.5d", "999999w", "2027-13-01", "2027-01-01T00:00:00"],
)
def test_what_is_no_point_in_time_is_refused(text: str) -> None:
    with pytest.raises(StartError, match="no point in time"):
        expiry(text, NOW)


@pytest.mark.parametrize("text", ["2026-11-20", "2026-11-20T12:00:00Z", "1999-01-01"])
def test_an_expiry_lies_ahead(text: str) -> None:
    with pytest.raises(StartError, match="has passed"):
        expiry(text, NOW)


@given(st.datetimes(datetime(2027, 1, 1), datetime(2099, 1, 1)), st.integers(-14, 14))  # noqa: DTZ001
def test_an_expiry_with_an_offset_is_the_same_instant(naive: datetime, hours: int) -> None:
    instant = naive.replace(microsecond=0, tzinfo=timezone(timedelta(hours=hours)))
    assert datetime.fromisoformat(expiry(instant.isoformat(), NOW)) == instant


@pytest.mark.parametrize("text", ["12.5", "0.000000001", "7"])
def test_an_amount_stays_as_it_was_written(text: str) -> None:
    assert parse_amount(text) == text


@pytest.mark.parametrize("text", ["", "ten", "0", "-1", "nan", "inf", "9" * 30, "0.0000000001"])
def test_what_is_no_amount_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(StartError) as refused:
        parse_amount(text)
    assert str(refused.value).endswith("write it like 12.5")


@given(st.integers(0, 10**15))
def test_credits_of_the_wire_are_shown_exactly(nano: int) -> None:
    text = credits_text(nano_to_float(nano))
    whole, _, fraction = text.partition(".")
    assert int(whole) * 10**9 + int(fraction.ljust(9, "0")) == nano


def test_a_difference_of_floats_shows_no_dust() -> None:
    assert credits_text(10.0 - 9.9) == "0.1"
    assert credits_text(0.1 - 0.1) == "0"
    assert credits_text(-0.0) == "0"


@pytest.mark.parametrize(
    ("per_token", "expected"),
    [("0.000001", "1"), ("0.0000001", "0.1"), ("0", "0"), ("0.00002", "20"), ("1E-7", "0.1")],
)
def test_prices_are_shown_for_a_million_tokens(per_token: str, expected: str) -> None:
    assert price_per_million(per_token) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Data team", "data-team"), ("  Ö & B! ", "b"), ("x" * 60, "x" * 50), ("a  -- b", "a-b")],
)
def test_a_slug_reads_like_its_name(name: str, expected: str) -> None:
    assert slug_of(name) == expected


def test_a_name_without_letters_gives_no_slug() -> None:
    with pytest.raises(StartError, match="--slug"):
        slug_of("日本")


def test_a_reference_stays_one_segment() -> None:
    assert path_segment("a/../b c") == "a%2F..%2Fb%20c"
    for text in ("", " ", ".", ".."):
        with pytest.raises(StartError):
            path_segment(text)


def test_only_the_whole_hash_is_one() -> None:
    assert is_key_hash("a" * 64)
    assert not any(map(is_key_hash, ["a" * 63, "A" * 64, "g" * 64, ""]))


def test_four_digits_of_a_hash_are_enough_to_look_for_it() -> None:
    assert is_hash_prefix("ab12")
    assert not any(map(is_hash_prefix, ["ab1", "xyz1", ""]))


def test_a_header_holds_plain_text_only() -> None:
    assert header_text("invoice-17", "--idempotency-key") == "invoice-17"
    for text in ("", "a b", "é", "a\nb", "a\x7f"):
        with pytest.raises(StartError, match="--idempotency-key: must be plain ASCII"):
            header_text(text, "--idempotency-key")


@pytest.mark.parametrize(
    ("text", "expected"), [("25", "25"), (" +12.50 ", "12.50"), ("0", "0"), ("-0", "0")]
)
def test_a_limit_is_an_amount_or_nothing(text: str, expected: str) -> None:
    assert parse_limit_option(text) == expected


@pytest.mark.parametrize("text", ["-1", "ten", "", "1e3", "NaN", "0.0000000001", "9" * 30])
def test_what_is_no_limit_is_refused_by_its_option(text: str) -> None:
    with pytest.raises(StartError, match=r"^--limit: .*: write it like 25$"):
        parse_limit_option(text)
