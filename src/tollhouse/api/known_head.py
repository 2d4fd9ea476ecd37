"""The head that a client sends again and again on its connection.

A program that asks a model sends the same head with each request, apart from the length of the
body. What a parser has made of the one holds for the next, so that it is not parsed again: every
byte is the same but the digits of that one field, which are nothing but digits in both.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tollhouse.api.exchange import Exchange

if TYPE_CHECKING:
    from tollhouse.api.exchange import HttpChannel

LARGEST_KEPT: Final = 8_192
"""Bytes of the largest head that a connection keeps."""
MOST_KEPT: Final = 8
"""Heads that a connection keeps, one after the other, until it keeps no further one: those that a
proxy gathers from many clients do not come again."""
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length"
_MOST_DIGITS: Final = 6
_length_line: Final = re.compile(
    rb"\r\n%b:[ ]?([0-9]{1,%d})\r\n" % (_LENGTH, _MOST_DIGITS), re.IGNORECASE
)


class KnownHead:
    """A head with which a `RequestHandler` has accepted a request; see `of`."""

    __slots__ = ("_after", "_before", "_from_head", "_headers", "_line")

    def __init__(self, before: bytes, after: bytes, exchange: Exchange) -> None:
        """Keep what stands before the digits of the body's length and behind them."""
        self._before = before
        self._after = after
        self._line = exchange.method, exchange.raw_path, exchange.path, exchange.query
        self._headers = exchange.headers
        self._from_head = exchange.from_head

    @classmethod
    def of(cls, data: bytes, exchange: Exchange) -> KnownHead | None:
        """Return the head at the beginning of bytes, as a parser read it, if it is worth keeping.

        It is of HTTP/1.1 and keeps the connection, and each of its lines is a field that stands
        there once: so the line of the length is the field of the length, and all of it.
        """
        end = data.find(_END, 0, LARGEST_KEPT) + len(_END)
        head = data[:end]
        length = _length_line.search(head)
        lines = len(exchange.headers) + 2  # that of the request, and the empty one
        is_usual = (
            exchange.http_version == "1.1"
            and exchange.keep_alive
            and b"transfer-encoding" not in exchange.headers
            and len(exchange.fields) + 2 == lines
            and head.count(b"\n") == head.count(b"\r\n") == lines
        )
        if length is None or not is_usual or exchange.headers[_LENGTH] != length[1]:
            return None
        return cls(head[: length.start(1)], head[length.end(1) :], exchange)

    def read(self, data: bytes, channel: HttpChannel) -> tuple[Exchange, bytes, int] | None:
        """Return the request that begins with bytes, if it has this head and nothing follows it.

        With it comes what is there of its body, and how many bytes of that are to come.
        """
        before, after = self._before, self._after
        start = len(before)
        digits = data[start : start + _MOST_DIGITS].partition(b"\r")[0]
        end = start + len(digits)
        if not (data.startswith(before) and data.startswith(after, end) and digits.isdigit()):
            return None
        body = data[end + len(after) :]
        left = int(digits) - len(body)
        if left < 0:
            return None
        headers = {**self._headers, _LENGTH: digits}
        fields, peer, scheme = list(headers.items()), channel.peer, channel.scheme
        exchange = Exchange(channel, *self._line, fields, headers, peer, scheme)
        exchange.from_head = self._from_head
        return exchange, body, left
