from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.money import (
    MAX_NANO,
    NANO_PER_CREDIT,
    decimals,
    divide_half_up,
    format_credits,
    nano_to_float,
    parse_credits,
    parse_limit,
    parse_signed_credits,
    round_to_nano,
    scaled,
)

amounts = st.decimals(
    min_value=-(10**9), max_value=10**9, places=18, allow_nan=False, allow_infinity=False
)


class TestRounding:
    @pytest.mark.parametrize(
        ("amount", "nano"),
        [
            ("0", 0),
            ("1", NANO_PER_CREDIT),
            ("0.0000000004", 0),
            ("0.0000000005", 1),
            ("0.00000000149999999999999999999999", 1),
            ("0.0000000015", 2),
            ("0.0000000025", 3),
            ("-0.0000000005", -1),
        ],
    )
    def test_goes_half_up(self, amount: str, nano: int) -> None:
        assert round_to_nano(Decimal(amount)) == nano

    @given(amounts)
    def test_is_off_by_half_a_nano_credit_at_most(self, amount: Decimal) -> None:
        off = abs(round_to_nano(amount) - Fraction(amount) * NANO_PER_CREDIT)
        assert off <= Fraction(1, 2)


@given(st.integers(), st.integers(1, 10**30))
def test_a_quotient_is_rounded_half_up_away_from_zero(number: int, divisor: int) -> None:
    rounded, exact = divide_half_up(number, divisor), Fraction(number, divisor)
    assert abs(rounded - exact) <= Fraction(1, 2)
    if abs(rounded - exact) == Fraction(1, 2):
        assert abs(rounded) > abs(exact)
    assert divide_half_up(-number, divisor) == -rounded


@given(amounts, st.integers(0, 20))
def test_a_scaled_amount_keeps_every_digit(amount: Decimal, more: int) -> None:
    digits = decimals(amount) + more
    assert scaled(amount, digits) == Fraction(amount) * 10**digits


@pytest.mark.parametrize(
    ("text", "digits"), [("0", 0), ("10", 0), ("1E+3", 0), ("0.50", 2), ("1E-18", 18)]
)
def test_decimals_are_the_digits_behind_the_point(text: str, digits: int) -> None:
    assert decimals(Decimal(text)) == digits


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "nano"),
        [
            ("1", NANO_PER_CREDIT),
            ("12.5", 12_500_000_000),
            (" 0.000000001 ", 1),
            ("+3", 3 * NANO_PER_CREDIT),
            ("007.10", 7_100_000_000),
            ("1.0000000000000000000000000", NANO_PER_CREDIT),
        ],
    )
    def test_reads_plain_numbers(self, text: str, nano: int) -> None:
        assert parse_credits(text) == nano

    @pytest.mark.parametrize(
        "text", ["", "ten", "1e3", "1_000", "1,5", "1.", ".5", "NaN", "Infinity", "0x10", "\u0661"]
    )
    def test_refuses_what_is_no_plain_number(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a number of credits"):
            parse_credits(text)

    @pytest.mark.parametrize("text", ["0", "-1", "0.000", "-0.000000001"])
    def test_refuses_what_is_not_positive(self, text: str) -> None:
        with pytest.raises(ValueError, match="must be a positive number"):
            parse_credits(text)

    @pytest.mark.parametrize(
        ("text", "nano"),
        [("-12.5", -12_500_000_000), ("-0.000000001", -1), ("3", 3_000_000_000), ("+1", 10**9)],
    )
    def test_reads_a_sign_where_there_may_be_one(self, text: str, nano: int) -> None:
        assert parse_signed_credits(text) == nano

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("-0", "must not be zero"),
            ("0.00", "must not be zero"),
            ("--1", "is not a number"),
            ("-", "is not a number"),
            ("-inf", "is not a number"),
            ("-0.0000000001", "finer than a billionth"),
            ("-" + "9" * 30, "too large"),
        ],
    )
    def test_refuses_what_is_no_amount_with_a_sign(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            parse_signed_credits(text)

    @pytest.mark.parametrize("text", ["0.0000000001", "1." + "0" * 200 + "1"])
    def test_refuses_what_is_finer_than_a_nano_credit(self, text: str) -> None:
        with pytest.raises(ValueError, match="finer than a billionth"):
            parse_credits(text)

    @pytest.mark.parametrize("text", [str(MAX_NANO // NANO_PER_CREDIT + 1), "9" * 5_000])
    def test_refuses_what_is_too_large(self, text: str) -> None:
        with pytest.raises(ValueError, match="too large"):
            parse_credits(text)

    @given(st.text())
    def test_reads_or_refuses_any_text(self, text: str) -> None:
        try:
            nano = parse_credits(text)
        except ValueError:
            return
        assert 1 <= nano <= MAX_NANO

    @given(st.integers(1, MAX_NANO))
    def test_reads_what_formatting_wrote(self, nano: int) -> None:
        assert parse_credits(format_credits(nano)) == nano


class TestParsingLimits:
    @pytest.mark.parametrize("text", ["-1", "-0.000000001", "-" + "9" * 5_000])
    def test_negative_ones_are_refused(self, text: str) -> None:
        with pytest.raises(ValueError, match="a limit must not be negative"):
            parse_limit(text)


class TestFormatting:
    @given(st.integers(-MAX_NANO, MAX_NANO))
    def test_loses_nothing(self, nano: int) -> None:
        assert round_to_nano(Decimal(format_credits(nano))) == nano


@given(st.integers(-(10**15), 10**15))
def test_a_wire_number_of_up_to_a_million_credits_is_exact_when_rounded_again(nano: int) -> None:
    assert round(nano_to_float(nano) * NANO_PER_CREDIT) == nano
