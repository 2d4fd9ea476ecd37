"""When a provider says that another try makes sense, in every form in which servers say it. Pure.

    retry-after-ms: 1500                       Azure, OpenAI; their clients read it first
    retry-after: 2                             RFC 9110, section 10.2.3; a date as well, a
                                               fraction and `20s` are sent
    "retryDelay": "34s"                        google.rpc.RetryInfo, in the body; other names too
    Please try again in 1m1.2s                 OpenAI, Groq, in the words
    x-ratelimit-reset-requests: 1m30s          OpenAI, Groq; with a 429 alone, of the limits of
    anthropic-ratelimit-tokens-reset: 2026-... which nothing remains

Of several the first in this order counts. A time may be a span, a number of seconds, a date of
RFC 9110 or of RFC 3339, or seconds or milliseconds since 1970. No hint is longer than a day.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_LONGEST: Final = 86_400
_RATE_LIMITED: Final = 429
_NUMBER: Final = r"\d{1,20}(?:\.\d{1,9})?"
_SPAN: Final = (
    rf"(?:(?P<d>{_NUMBER}) ?d(?:ays?)?)? ?(?:(?P<h>{_NUMBER}) ?h(?:ours?)?)? ?"
    rf"(?:(?P<m>{_NUMBER}) ?m(?:in(?:ute)?s?)?(?![a-z]))? ?"
    rf"(?:(?P<s>{_NUMBER}) ?(?:s(?:ec(?:ond)?s?)?)?(?![a-z0-9:-]|\.\d))? ?"
    rf"(?:(?P<ms>{_NUMBER}) ?ms)?"
)
_SECONDS: Final = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_WHOLE: Final = re.compile(_SPAN, re.IGNORECASE)
_IN_BODY: Final = re.compile(
    r"(?:\"(?:retry_?delay|retry_?after|(?:retry_?after|resets?_in)_seconds)\"\s*:\s*\"?"
    rf"|(?:try again|retry|resets?) (?:in|after) (?:about )?){_SPAN}",
    re.IGNORECASE,
)
_MILLISECONDS_IN_BODY: Final = re.compile(
    rf"\"retry_?after_?ms\"\s*:\s*\"?(?P<ms>{_NUMBER})", re.IGNORECASE
)
_RESET: Final = re.compile(r"(?:x-)?ratelimit-reset(?:-[a-z-]+)?|anthropic-ratelimit-[a-z-]+-reset")
_EPOCH: Final = 1e9
"""More seconds than that, or milliseconds, are counted from 1970."""


def retry_after(
    headers: Mapping[str, str], body: bytes, now: datetime, status: int = _RATE_LIMITED
) -> int | None:
    """Return the hint in whole seconds, at least 1; None if there is none that can be read."""
    milliseconds = _seconds(headers.get("retry-after-ms", ""), now)
    seconds = None if milliseconds is None else milliseconds / 1000
    if seconds is None:
        seconds = _seconds(headers.get("retry-after", ""), now)
    if seconds is None:
        seconds = hint_in(body)
    if seconds is None and status == _RATE_LIMITED:
        seconds = _until_reset(headers, now)
    return None if seconds is None else min(max(1, ceil(seconds)), _LONGEST)


def hint_in(body: bytes) -> float | None:
    """Return the seconds that a body or its words name; None if there are none."""
    text = body.decode("utf-8", "replace")
    found = _MILLISECONDS_IN_BODY.search(text)
    if found is not None:
        return float(found["ms"]) / 1000
    return next((s for found in _IN_BODY.finditer(text) if (s := _sum(found)) is not None), None)


def _sum(found: re.Match[str]) -> float | None:
    parts = [float(found[unit]) * size for unit, size in _SECONDS.items() if found[unit]]
    return sum(parts) if parts else None


def _seconds(given: str, now: datetime) -> float | None:
    """Return how long it is until a time; None if it is none."""
    given = given.strip()
    span = _WHOLE.fullmatch(given)
    seconds = None if span is None else _sum(span)
    if seconds is not None:
        for size in (1, 1000):
            if given.isdecimal() and size * _EPOCH <= seconds < 10 * size * _EPOCH:
                return seconds / size - now.timestamp()
        return seconds
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            at = read(given)
        except (ValueError, OverflowError):
            continue
        return (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()
    return None


def _until_reset(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return when the limits that were reached are lifted; of all, if none says what remains."""
    resets: dict[str, float] = {}
    for name, value in headers.items():
        if _RESET.fullmatch(name) and (seconds := _seconds(value, now)) is not None:
            resets[name] = seconds
    reached = [
        resets[name] for name in resets if headers.get(name.replace("reset", "remaining")) == "0"
    ]
    return max(reached or resets.values(), default=None)
