from collections.abc import Callable
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

Parse = Callable[[str], int]
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
        ("parse", "text", "nano"),
        [
            (parse_credits, "1", NANO_PER_CREDIT),
            (parse_credits, "12.5", 12_500_000_000),
            (parse_credits, " 0.000000001 ", 1),
            (parse_credits, "+3", 3 * NANO_PER_CREDIT),
            (parse_credits, "007.10", 7_100_000_000),
            (parse_credits, "1.0000000000000000000000000", NANO_PER_CREDIT),
            (parse_signed_credits, "-12.5", -12_500_000_000),
            (parse_signed_credits, "-0.000000001", -1),
            (parse_signed_credits, "3", 3_000_000_000),
            (parse_signed_credits, "+1", 10**9),
        ],
    )
    def test_reads_plain_numbers(self, parse: Parse, text: str, nano: int) -> None:
        assert parse(text) == nano

    @pytest.mark.parametrize(
        ("parse", "said", "texts"),
        [
            (
                parse_credits,
                "is not a number of credits",
                ["", "ten", "1e3", "1_000", "1,5", "1.", ".5", "NaN", "Infinity", "0x10", "\u0661"],
            ),
            (parse_credits, "must be a positive number", ["0", "-1", "0.000", "-0.000000001"]),
            (parse_credits, "finer than a billionth", ["0.0000000001", "1." + "0" * 200 + "1"]),
            (parse_credits, "too large", [str(MAX_NANO // NANO_PER_CREDIT + 1), "9" * 5_000]),
            (parse_signed_credits, "must not be zero", ["-0", "0.00"]),
            (parse_signed_credits, "is not a number", ["--1", "-", "-inf"]),
            (parse_signed_credits, "finer than a billionth", ["-0.0000000001"]),
            (parse_signed_credits, "too large", ["-" + "9" * 30]),
            (parse_limit, "must not be negative", ["-1", "-0.000000001", "-" + "9" * 5_000]),
        ],
    )
    def test_refuses_everything_else(self, parse: Parse, said: str, texts: list[str]) -> None:
        for text in texts:
            with pytest.raises(ValueError, match=said):
                parse(text)

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


class TestFormatting:
    @given(st.integers(-MAX_NANO, MAX_NANO))
    def test_loses_nothing(self, nano: int) -> None:
        assert round_to_nano(Decimal(format_credits(nano))) == nano


@given(st.integers(-(10**15), 10**15))
def test_a_wire_number_of_up_to_a_million_credits_is_exact_when_rounded_again(nano: int) -> None:
    assert round(nano_to_float(nano) * NANO_PER_CREDIT) == nano
