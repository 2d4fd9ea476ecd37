"""Handles JSON that is forwarded without being decoded."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

NULL: Final = Raw(b"null")
encoder: Final = msgspec.json.Encoder()


def replace_invalid_utf8(data: bytes) -> bytes:
    """Return a provider's JSON with U+FFFD in place of invalid UTF-8, as event streams do.

    Raw values are not checked later, and clients reject a response with such bytes.

    Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
    """
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace").encode()
    return data


def join_lines(data: bytes) -> bytes:
    """Return an event's JSON on one line; providers and clients may spread theirs over several.

    Raw values keep their line breaks, which would end the `data:` line of an event.
    """
    if b"\n" not in data and b"\r" not in data:
        return data
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def raw(value: object) -> Raw:
    """Return a value as raw JSON."""
    return Raw(encoder.encode(value))
