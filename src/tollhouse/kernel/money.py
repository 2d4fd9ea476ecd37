"""Money as integers.

An amount is a whole number of nano-credits: 1 credit = 1 USD = 10^9 nano-credits. Prices are
exact decimals of credits. A product of prices and counts is summed exactly and rounded once,
half up, here. Floats appear only when a number is written to the wire.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal

NANO_PER_CREDIT = 1_000_000_000
MAX_NANO = 2**62
"""Larger amounts are refused on entry: they would overflow the database's 64-bit sums."""

NANO_DIGITS = 9
_WHOLE_DIGITS = len(str(MAX_NANO)) - NANO_DIGITS
_NOT_POSITIVE = "the amount must be a positive number of credits"
_PLAIN = re.compile(r"(?P<sign>[+-]?)(?P<whole>\d+)(?:\.(?P<fraction>\d+))?", re.ASCII)


def decimals(amount: Decimal) -> int:
    """Return how many digits a finite amount has behind the point."""
    return max(0, -int(amount.as_tuple().exponent))


def scaled(amount: Decimal, digits: int) -> int:
    """Return a finite amount times 10 to the power of `digits`, which must make it whole."""
    sign, figures, exponent = amount.as_tuple()
    number = int("".join(map(str, figures))) * 10 ** (int(exponent) + digits)
    return -number if sign else number


def round_to_nano(credits_: Decimal) -> int:
    """Return a finite amount of credits as nano-credits, rounded half up (away from zero)."""
    digits = max(NANO_DIGITS, decimals(credits_))
    return divide_half_up(scaled(credits_, digits), 10 ** (digits - NANO_DIGITS))


def divide_half_up(number: int, divisor: int) -> int:
    """Return a quotient by at least 1, rounded half up (away from zero)."""
    rounded = (2 * abs(number) + divisor) // (2 * divisor)
    return rounded if number >= 0 else -rounded


def nano_to_float(nano: int) -> float:
    """Return nano-credits as credits for the wire, where money is a JSON number."""
    return nano / NANO_PER_CREDIT


def parse_credits(text: str) -> int:
    """Return nano-credits, at least 1, of an amount that a person typed, for example `12.5`.

    Raises:
        ValueError: The text is no number, not positive, not finite, finer than a nano-credit
            or absurdly large. The message says which.
    """
    nano = _parsed(text, negative=_NOT_POSITIVE)
    if not nano:
        raise ValueError(_NOT_POSITIVE)
    return nano


def parse_signed_credits(text: str) -> int:
    """Return nano-credits of an amount that may be negative, for example `-12.5`; not 0.

    Raises:
        ValueError: As of `parse_credits`.
    """
    nano = _parsed(text)
    if not nano:
        raise ValueError("the amount must not be zero")
    return nano


def parse_limit(text: str) -> int:
    """Return nano-credits of a limit that a person typed: an amount, or zero.

    Raises:
        ValueError: As of `parse_credits`.
    """
    return _parsed(text, negative="a limit must not be negative")


def _parsed(text: str, *, negative: str | None = None) -> int:
    """Return nano-credits; below zero they are refused with `negative`, where it is given."""
    plain = _PLAIN.fullmatch(text.strip())
    if plain is None:
        raise ValueError(f"{text!r} is not a number of credits")
    whole, fraction = plain["whole"].lstrip("0"), (plain["fraction"] or "").rstrip("0")
    is_negative = plain["sign"] == "-" and bool(whole or fraction)
    if is_negative and negative is not None:
        raise ValueError(negative)
    if len(fraction) > NANO_DIGITS:
        raise ValueError("the amount is finer than a billionth of a credit")
    if (
        len(whole) > _WHOLE_DIGITS
        or (nano := int(whole + fraction.ljust(NANO_DIGITS, "0"))) > MAX_NANO
    ):
        raise ValueError("the amount is too large")
    return -nano if is_negative else nano


def format_credits(nano: int) -> str:
    """Return nano-credits as a plain decimal number of credits, without trailing zeros."""
    digits = str(abs(nano)).rjust(NANO_DIGITS + 1, "0")
    text = f"{digits[:-NANO_DIGITS]}.{digits[-NANO_DIGITS:]}".rstrip("0").rstrip(".")
    return text if nano >= 0 else f"-{text}"
