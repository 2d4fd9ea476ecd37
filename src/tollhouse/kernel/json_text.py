r"""JSON that is valid and that strict decoders refuse all the same.

A server or a client that cuts text between UTF-16 units sends half an emoji: `\ud83d` without its
`\ude42`. RFC 8259, section 8.2, allows it and leaves open what it means; our decoder refuses it,
and so would many that we pass it on to.

Python's encoder writes `NaN`, `Infinity` and `-Infinity` (of log-probabilities), which are no JSON
at all (RFC 8259, section 6).

Other servers write line breaks and tabs in texts as they are, and NUL behind what they say; it is
no JSON either (section 7).
"""

from __future__ import annotations

import json
import re
from typing import Final

_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_MAYBE_LONE: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)
"""Finds too much, but never in well-formed pairs: it does not see that a backslash is escaped."""
_ESCAPE: Final = re.compile(
    rb"\\(?:u(?P<high>[dD][89abAB][0-9a-fA-F]{2})(?P<low>\\u[dD][c-fC-F][0-9a-fA-F]{2})?"
    rb"|u(?P<lone>[dD][c-fC-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_TEXT_OR_NONE: Final = re.compile(rb'(?P<text>"(?:[^"\\]++|\\.)*+")|NaN|-?Infinity', re.DOTALL)
_CONTROLS: Final = bytes(range(0x20))
_TEXT_OR_CONTROL: Final = re.compile(
    rb'(?P<text>"(?:[^"\\]++|\\.)*+")|[\x00-\x08\x0b\x0c\x0e-\x1f]', re.DOTALL
)
_CONTROL: Final = re.compile(rb"[\x00-\x1f]")
_INSTEAD: Final = rb"\ufffd"


def replace_lone_surrogates(data: bytes) -> bytes:
    """Return JSON with U+FFFD in place of each escaped half of a character; mostly the same bytes.

    Linear in the size; a text without escapes is only searched for their beginning.
    """
    if not _SURROGATE.search(data) or not _MAYBE_LONE.search(data):
        return data
    return _ESCAPE.sub(_mended, data)


def replace_numbers_that_are_none(data: bytes) -> bytes:
    """Return JSON with null in place of `NaN` and infinity; mostly the same bytes."""
    if b"NaN" not in data and b"Infinity" not in data:
        return data
    return _TEXT_OR_NONE.sub(lambda found: found["text"] or b"null", data)


def escape_controls(data: bytes) -> bytes:
    """Return JSON with control characters in texts escaped, and none elsewhere but white space."""
    if len(data.translate(None, _CONTROLS)) == len(data):
        return data
    return _TEXT_OR_CONTROL.sub(
        lambda found: _CONTROL.sub(_escaped, found["text"]) if found["text"] else b"", data
    )


def first_value(data: bytes) -> bytes:
    """Return the first of several JSON values, or JSON without what follows it; else the same."""
    text = data.decode("utf-8", "replace").lstrip()
    try:
        _, end = _lenient.raw_decode(text)
    except (ValueError, RecursionError):
        return data
    return text[:end].encode("utf-8", "replace") if text[end:].strip() else data


_lenient: Final = json.JSONDecoder(strict=False)


def _escaped(control: re.Match[bytes]) -> bytes:
    return b"\\u%04x" % ord(control[0])


def _mended(escape: re.Match[bytes]) -> bytes:
    is_lone = escape["lone"] or (escape["high"] and not escape["low"])
    return _INSTEAD if is_lone else escape[0]
