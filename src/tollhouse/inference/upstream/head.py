"""From a request to the bytes that go out before its body. Pure.

Source: RFC 9112, sections 3 (request line), 5 (fields) and 6 (message body); RFC 9110, sections
5.5 (field values) and 5.6.2 (tokens).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from tollhouse.inference.upstream.errors import ConnectFailed, ProtocolViolation

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_HEAD_BYTES: Final = 65_536
MAX_FIELDS: Final = 256

_OURS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection", "expect"})
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE: Final = re.compile(r"[\t\x20-\x7e]*")
_URL: Final = re.compile(r"https?://[!-~]+", re.IGNORECASE)
_PORTS: Final = {"http": 80, "https": 443}
_BODY_EXPECTED: Final = frozenset({"POST", "PUT", "PATCH"})


class Origin(NamedTuple):
    """Whom a connection reaches; connections are shared only within one origin."""

    scheme: str
    host: str
    port: int


class ParsedUrl(NamedTuple):
    """A URL, taken apart."""

    origin: Origin
    authority: str
    """What `Host` says."""
    path: str
    """Path and query as they were given: nothing is quoted, unquoted or collapsed."""


@lru_cache(maxsize=1024)
def read_url(url: str) -> ParsedUrl:
    """Take a URL apart.

    Raises:
        ConnectFailed: It is no http or https URL of printable ASCII, or holds a user name.
    """
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise _no_url() from None
    if _URL.fullmatch(url) is None or not host or "@" in parts.netloc:
        raise _no_url()
    path = parts.path or "/"
    return ParsedUrl(
        Origin(parts.scheme, host, port or _PORTS[parts.scheme]),
        parts.netloc,
        f"{path}?{parts.query}" if parts.query else path,
    )


def _no_url() -> ConnectFailed:
    # A URL may hold a credential: it stays out of the message.
    message = "the request's URL is no http or https URL of plain text without a user name"
    return ConnectFailed(message, sent=False)


def checked_fields(fields: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the caller's header fields without those that are the transport's own.

    Raises:
        ProtocolViolation: A name is no token, or a value holds more than plain text.
    """
    checked: list[tuple[str, str]] = []
    for field in fields:
        name, value = field
        if _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            # The value may be a credential: it stays out of the message.
            message = f"the request header {name!r} is not plain text on one line"
            raise ProtocolViolation(message, sent=False)
        if name.lower() not in _OURS:
            checked.append(field)
    return checked


@lru_cache(maxsize=256)
def _field_lines(fields: tuple[tuple[str, str], ...]) -> str:
    """Return the checked fields as they are written; a provider sends the same ones every time."""
    return "".join([f"{name}: {value}\r\n" for name, value in checked_fields(fields)])


def request_head(
    method: str, target: ParsedUrl, fields: tuple[tuple[str, str], ...], body_size: int
) -> bytes:
    """Return the request line and the fields, up to and with the empty line.

    Args:
        method: The request's method.
        target: Where it goes.
        fields: The caller's header fields.
        body_size: Bytes of the body.

    Raises:
        ProtocolViolation: The method is no word, or see `checked_fields`.
    """
    if not method.isalpha() or not method.isascii():
        message = "the request's method is no word"
        raise ProtocolViolation(message, sent=False)
    lines = _field_lines(fields)
    length = f"Content-Length: {body_size}\r\n" if body_size or method in _BODY_EXPECTED else ""
    head = f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n{lines}{length}\r\n"
    return head.encode("ascii")
