"""What every format does with JSON that it did not write itself."""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Raw

NULL: Final = Raw(b"null")
encoder: Final = msgspec.json.Encoder()


def replace_invalid_utf8(data: bytes) -> bytes:
    """Return a provider's JSON with U+FFFD in place of what is no UTF-8, as event streams have it.

    What stays raw is not looked at again, and no client reads a reply with such bytes.

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

    What stays raw keeps its line breaks, and one would end the line of our own event.
    """
    if b"\n" not in data and b"\r" not in data:
        return data
    return data.replace(b"\n", b" ").replace(b"\r", b" ")


def raw(value: object) -> Raw:
    """Return a value as raw JSON."""
    return Raw(encoder.encode(value))
