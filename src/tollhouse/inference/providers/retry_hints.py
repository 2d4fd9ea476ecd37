"""When a provider says that another try makes sense, in every form in which servers say it. Pure.

    retry-after-ms: 1500             Azure, OpenAI; their clients read it first
    retry-after: 2                   RFC 9110, section 10.2.3; a date as well, a fraction is sent
    "retryDelay": "34s"              google.rpc.RetryInfo, in the body
    Please try again in 1.2s         OpenAI, Groq, in the words

Of several the first in this order counts.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import ceil
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_NUMBER: Final = re.compile(r"\d{1,7}(?:\.\d{1,9})?")
_IN_BODY: Final = re.compile(
    rb"""(?:"retryDelay"\s*:\s*"|(?:try again|retry) (?:in|after) )"""
    rb"(?:(?P<minutes>\d{1,4})m(?!s))?(?:(?P<number>\d{1,7}(?:\.\d{1,9})?) ?(?P<unit>ms|s))?",
    re.IGNORECASE,
)


def retry_after(headers: Mapping[str, str], body: bytes, now: datetime) -> int | None:
    """Return the hint in whole seconds, at least 1; None if there is none that can be read."""
    seconds = _from_headers(headers, now)
    if seconds is None:
        seconds = _from_body(body)
    return None if seconds is None else max(1, ceil(seconds))


def _from_headers(headers: Mapping[str, str], now: datetime) -> float | None:
    milliseconds = headers.get("retry-after-ms", "").strip()
    if _NUMBER.fullmatch(milliseconds):
        return float(milliseconds) / 1000
    hint = headers.get("retry-after", "").strip()
    if _NUMBER.fullmatch(hint):
        return float(hint)
    try:
        at = parsedate_to_datetime(hint)
    except ValueError:
        return None
    return (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds()


def _from_body(body: bytes) -> float | None:
    found = _IN_BODY.search(body)
    if found is None or (found["minutes"] is None and found["number"] is None):
        return None
    seconds = float(found["number"] or 0) / (1000 if (found["unit"] or b"").lower() == b"ms" else 1)
    return 60 * int(found["minutes"] or 0) + seconds
