"""What people type, as the API wants it, and back: times, slugs, amounts, hashes. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING
from urllib.parse import quote

from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.money import parse_credits, parse_limit, parse_signed_credits
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from collections.abc import Callable

HASH_LENGTH = 64
SHORTEST_PREFIX = 4
MILLION = 1_000_000

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_FROM_NOW = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_HEX = re.compile(r"[0-9a-f]+")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 50


def expiry(text: str, now: datetime) -> str:
    """Return a point in time as the API wants it: UTC, whole seconds.

    Args:
        text: `30d`, `12h`, `2w` from now; a day, which means its first second in UTC; or
            ISO 8601 with an offset or `Z`.
        now: The present.

    Raises:
        StartError: It is none of these, or not a time to come.
    """
    instant = _instant(text.strip(), now)
    if instant is None:
        message = (
            f"--expires: {text!r} is no point in time: write 30d, 12h or 2w, a day like "
            "2027-01-01, or 2027-01-01T00:00:00Z"
        )
        raise StartError(message)
    if instant <= now:
        message = f"--expires: {text!r} has passed already"
        raise StartError(message)
    return iso_utc_seconds(instant)


def _instant(text: str, now: datetime) -> datetime | None:
    try:
        if span := _FROM_NOW.fullmatch(text):
            return now + int(span[1]) * _UNITS[span[2]]
        parsed = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    if parsed.tzinfo is None:
        is_day = "T" not in text and " " not in text
        return parsed.replace(tzinfo=UTC) if is_day else None
    return parsed


def amount(text: str) -> str:
    """Return an amount of credits, once it is known to be one.

    Raises:
        StartError: It is none.
    """
    return _checked(text, parse_credits, "{}: write it like 12.5").removeprefix("+")


def signed_amount(text: str) -> str:
    """Return an amount of credits that may be negative, once it is known to be one.

    Raises:
        StartError: It is none.
    """
    advice = "{}: write it like -12.5 or 12.5"
    return _checked(text, parse_signed_credits, advice).removeprefix("+")


def limit_text(text: str) -> str:
    """Return a limit of credits, once it is known to be one: an amount, or 0.

    Raises:
        StartError: It is none.
    """
    return _checked(text, parse_limit, "--limit: {}: write it like 25").lstrip("+-")


def _checked(text: str, parse: Callable[[str], int], message: str) -> str:
    """Return a text without blanks around it, once it can be read.

    Args:
        text: What was typed.
        parse: Reads it; raises ValueError where it cannot.
        message: What to say then, with a place for what `parse` said.
    """
    try:
        parse(text)
    except ValueError as error:
        raise StartError(message.format(error)) from None
    return text.strip()


def credits_text(value: float) -> str:
    """Return credits that came as a JSON number, exact to the ledger's nine decimals."""
    text = f"{value:.9f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def price_per_million(per_token: str) -> str:
    """Return a price for a million tokens from the price of one."""
    return f"{(Decimal(per_token) * MILLION).normalize():f}"


def slug_of(name: str) -> str:
    """Return a slug that reads like a name.

    Raises:
        StartError: The name has no letter or digit to make one of.
    """
    slug = _NOT_IN_SLUG.sub("-", name.lower()).strip("-")[:_LONGEST_SLUG].rstrip("-")
    if not slug:
        message = f"{name!r} has nothing to make a slug of: give one with --slug"
        raise StartError(message)
    return slug


def segment(reference: str) -> str:
    """Return an id or slug as one segment of a path.

    Raises:
        StartError: It cannot be one.
    """
    if reference.strip() in {"", ".", ".."}:
        message = f"{reference!r} is no id"
        raise StartError(message)
    return quote(reference, safe="")


def header_text(text: str, source: str) -> str:
    """Return a text that a request's header can carry.

    Args:
        text: The text; it may be a secret, so no message holds it.
        source: Who gave it, for the message.

    Raises:
        StartError: It cannot be one.
    """
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        message = f"{source}: must be plain ASCII without spaces"
        raise StartError(message)
    return text


def is_whole_hash(text: str) -> bool:
    """Tell whether a text is the hash of a key, and not only its beginning."""
    return len(text) == HASH_LENGTH and _HEX.fullmatch(text) is not None


def is_hash_prefix(text: str) -> bool:
    """Tell whether a text is enough of a hash to look for it."""
    return len(text) >= SHORTEST_PREFIX and _HEX.fullmatch(text) is not None
