"""What people type, as the API wants it, and back: times, slugs, amounts, hashes, JSON. Pure.

StartError where a text is no such thing. Also text that a terminal only shows.
"""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, cast
from urllib.parse import quote

from tollhouse.kernel.clock import iso_utc_seconds
from tollhouse.kernel.errors import StartError
from tollhouse.kernel.money import parse_credits, parse_limit, parse_signed_credits

HASH_LENGTH = 64
SHORTEST_PREFIX = 4
MILLION = 1_000_000

_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1)}
_FROM_NOW = re.compile(r"([1-9][0-9]{0,5})([hdw])")
_HEX = re.compile(r"[0-9a-f]+")
_NOT_IN_SLUG = re.compile(r"[^a-z0-9]+")
_LONGEST_SLUG = 50


def expiry(text: str, now: datetime) -> str:
    """Return a time to come as the API wants it: UTC, whole seconds; StartError for another.

    A text is `30d`, `12h` or `2w` from now; a day, which means its first second in UTC; or ISO 8601
    with an offset or `Z`.
    """
    instant = _instant(text.strip(), now)
    if instant is None:
        raise StartError(
            f"--expires: {text!r} is no point in time: write 30d, 12h or 2w, a day like "
            "2027-01-01, or 2027-01-01T00:00:00Z"
        )
    if instant <= now:
        raise StartError(f"--expires: {text!r} has passed already")
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


def parse_amount(text: str) -> str:
    """Return an amount of credits, once it is known to be one."""
    return _checked(text, parse_credits, "{}: write it like 12.5").removeprefix("+")


def parse_signed_amount(text: str) -> str:
    """Return an amount of credits that may be negative, once it is known to be one."""
    advice = "{}: write it like -12.5 or 12.5"
    return _checked(text, parse_signed_credits, advice).removeprefix("+")


def parse_limit_option(text: str) -> str:
    """Return a limit of credits, once it is known to be one: an amount, or 0."""
    return _checked(text, parse_limit, "--limit: {}: write it like 25").lstrip("+-")


def _checked(text: str, parse: Callable[[str], int], message: str) -> str:
    """Return a text without blanks around it; where `parse` refuses it, say so in a message."""
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
    """Return a slug that reads like a name, which needs a letter or digit."""
    slug = _NOT_IN_SLUG.sub("-", name.lower()).strip("-")[:_LONGEST_SLUG].rstrip("-")
    if not slug:
        raise StartError(f"{name!r} has nothing to make a slug of: give one with --slug")
    return slug


def is_unicode(text: str) -> bool:
    """Tell whether a text can be sent at all: bytes of the command line may be no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def path_segment(reference: str) -> str:
    """Return an id or slug as one segment of a path."""
    if reference.strip() in {"", ".", ".."}:
        raise StartError(f"{reference!r} is no id")
    return quote(reference, safe="")


def header_text(text: str, source: str) -> str:
    """Return a text, which no message holds, that a request's header can carry."""
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        raise StartError(f"{source}: must be plain ASCII without spaces")
    return text


def is_key_hash(text: str) -> bool:
    """Tell whether a text is the hash of a key, and not only its beginning."""
    return len(text) == HASH_LENGTH and _HEX.fullmatch(text) is not None


def is_hash_prefix(text: str) -> bool:
    """Tell whether a text is enough of a hash to look for it."""
    return len(text) >= SHORTEST_PREFIX and _HEX.fullmatch(text) is not None


def object_fields(value: object) -> dict[str, object]:
    """Return the fields of a JSON object; none where it is no object."""
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def parse_object(text: str | bytes) -> dict[str, object]:
    """Return the fields of a JSON object; none where a text is no JSON, or no object."""
    try:
        return object_fields(json.loads(text))
    except (ValueError, RecursionError):
        return {}


_CONTROLS: Final = [*range(0x20), *range(0x7F, 0xA0)]
_KEPT: Final = {ord("\n"), ord("\t")}
_DIRECTIONS: Final = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""They turn the order of what is shown around, and so hide what a line does."""


def _shown(code: int) -> str:
    if code == ord("\r"):
        return ""  # a line's end, or a way to write over it
    if code < 0x20 or code == 0x7F:  # noqa: PLR2004 - ASCII
        return f"^{chr(code ^ 0x40)}"
    return f"\\u{code:04x}"


_TABLE: Final = {code: _shown(code) for code in [*_CONTROLS, *_DIRECTIONS] if code not in _KEPT}


def escape_controls(text: str) -> str:
    r"""Return a text with its control characters made visible: ESC as `^[`, others as `\u009b`.

    What a model writes is shown, and never obeyed: no colours, no titles, no moved cursor, no
    writing to the clipboard. Newlines and tabs stay. It may be cut anywhere.
    """
    return text.translate(_TABLE)


def one_line(text: str) -> str:
    """Return a text whose unprintable characters are spaces."""
    return "".join(char if char.isprintable() else " " for char in text)


def escape_unprintable(text: str) -> str:
    r"""Return a name so that two names never look alike: what cannot be printed, as `\x1b`."""
    return "".join(
        char if char.isprintable() and char != "\\" else ascii(char)[1:-1] for char in text
    )
