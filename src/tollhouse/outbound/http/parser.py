r"""Responses from bytes, and the heads of requests as bytes. Pure; bytes may be cut anywhere.

    parser.expect("POST")
    parser.feed(b"HTTP/1.1 200 OK\r\n...")    again and again; after each:
    parser.began                               whether `status` and `headers` are there
    parser.take_body()                         what has come of the body since
    parser.complete                            whether the response has ended
    parser.reusable                            ... and the connection may carry another request

The grammar is llhttp's, in its strict mode. What is added here: bounds, and the framing that a
gateway does not guess at.

Source: RFC 9112, sections 4 (status line), 6 (message body), 7 (chunks) and 9.3 (persistence); for
the heads of requests, sections 3 (request line), 5 (fields) and 6; RFC 9110, sections 5.5 (field
values) and 5.6.2 (tokens).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserUpgrade,
    HttpResponseParser,
)

from tollhouse.outbound.http.port import ConnectFailed, ProtocolViolation, UpstreamError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_HEAD_BYTES: Final = 65_536
MAX_FIELDS: Final = 256
_VERSIONS: Final = frozenset({"1.1", "1.0"})
_FINAL: Final = HTTPStatus.OK
"""The lowest status of a response that is no interim one."""
_UPGRADE: Final = HTTPStatus.SWITCHING_PROTOCOLS
_BODYLESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class ResponseHeaders(Mapping[str, str]):
    """The fields of a head by their names in lower case; values are decoded when asked for."""

    __slots__ = ("_spellings", "_values")

    def __init__(self, spellings: Mapping[str, bytes], values: Mapping[bytes, bytes]) -> None:
        """Take how the names were spelled, and the values by those spellings."""
        self._spellings = spellings
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[self._spellings[name]].strip().decode("latin-1")

    def __contains__(self, name: object) -> bool:
        return name in self._spellings

    def __iter__(self) -> Iterator[str]:
        return iter(self._spellings)

    def __len__(self) -> int:
        return len(self._spellings)


class _Names(NamedTuple):
    """What the names of a head's fields tell."""

    spellings: Mapping[str, bytes]
    """How each is spelled, by its lower case."""
    are_plain: bool
    """Whether they tell the length of the body, and of no transfer coding."""


@lru_cache(maxsize=256)
def _read_names(names: tuple[bytes, ...]) -> _Names:
    """Look at the names of fields; a server sends the same ones nearly every time."""
    spellings = {name.decode("latin-1").lower(): name for name in names}
    plain = "content-length" in spellings and "transfer-encoding" not in spellings
    return _Names(spellings, plain)


class ResponseParser:
    """Parses one response after another.

    `status` and `headers` are there once `began` is true; `take_body` returns what came since.
    """

    __slots__ = (
        "_fields",
        "_http",
        "_is_head",
        "_keep_alive",
        "_open_ended",
        "_overhead",
        "_silence",
        "_whole",
        "began",
        "complete",
        "headers",
        "on_body",
        "on_header",
        "on_message_begin",
        "pieces",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self._fields: dict[bytes, bytes] = {}
        self.pieces: list[bytes] = []
        """What came of the body and was not taken yet."""
        self._silence: list[None] = []
        """Not empty from the end of a response on, until another one begins."""
        # Called by httptools for each field, piece and response, without a frame of Python.
        self.on_header = self._fields.__setitem__
        self.on_body = self.pieces.append
        self.on_message_begin = self._silence.clear
        self._http = HttpResponseParser(self)
        self._is_head = False
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.expect("")

    def expect(self, method: str) -> None:
        """Expect the response to a request with that method."""
        if self._is_head:  # the parser knows nothing of HEAD, and still waits for a body
            self._http = HttpResponseParser(self)
        self._is_head = method == "HEAD"
        self.began = False
        self.complete = False
        self.reusable = False
        """Whether the response ended with nothing behind it on a connection that stays open."""
        self._open_ended = False
        self._overhead = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the connection; a `ProtocolViolation` if they are not HTTP.

        What came before the violation counts.
        """
        self._overhead += len(data)
        try:
            self._http.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            if not self.complete:
                raise _violation(error) from None
            self._silence.clear()
        if self.complete:
            if len(self.pieces) > self._whole:
                del self.pieces[self._whole :]
                self._silence.clear()
            alone = bool(self._silence) and not self._open_ended
            self.reusable = self._keep_alive and alone
        elif self.pieces:
            self._overhead = 0
        # A field is passed on once the next one begins.
        elif self._overhead > MAX_HEAD_BYTES or len(self._fields) >= MAX_FIELDS:
            raise ProtocolViolation("the response's head or trailers do not end", sent=True)

    def take_body(self) -> bytes:
        """Return what came of the body since the last time."""
        body = b"".join(self.pieces)
        self.pieces.clear()
        return body

    def end_of_file(self) -> bool:
        """Tell whether the end of the connection is the end of the response."""
        if self.began and self._open_ended:
            self.complete = True
        return self.complete

    def drop(self) -> None:
        """Let go of the parser, which holds on to this object."""
        del self._http

    # What httptools calls

    def on_headers_complete(self) -> None:
        """Begin the response, unless it is an interim one."""
        status = self._http.get_status_code()
        if self.complete or (status < _FINAL and status != _UPGRADE):
            return
        fields = self._fields.copy()
        self._end_fields()
        spellings, are_plain = _read_names(tuple(fields))
        if self._http.get_http_version() not in _VERSIONS:
            raise ProtocolViolation("the response is neither HTTP/1.1 nor HTTP/1.0", sent=True)
        if not are_plain or status == _UPGRADE:
            self._check_framing(status, spellings, fields)
        self.status = status
        self.headers = ResponseHeaders(spellings, fields)
        self.began = True
        if self._is_head:
            self.on_message_complete()

    def on_message_complete(self) -> None:
        """End the response; after an interim one, the next is expected."""
        if self._fields:
            self._end_fields()  # trailers, or the fields of an interim response
        if self.began and not self.complete:
            self.complete = True
            self._whole = len(self.pieces)
            self._keep_alive = self._http.should_keep_alive()  # forgotten once this returns
            self._silence.append(None)

    def _end_fields(self) -> None:
        fields = self._fields
        size = self._overhead
        if size > MAX_HEAD_BYTES:  # or it came together with a body
            size = sum(map(len, fields)) + sum(map(len, fields.values()))
        if len(fields) > MAX_FIELDS or size > MAX_HEAD_BYTES:
            raise ProtocolViolation("the response's head or trailers are too large", sent=True)
        fields.clear()

    def _check_framing(
        self, status: int, spellings: Mapping[str, bytes], fields: Mapping[bytes, bytes]
    ) -> None:
        if status == _UPGRADE:
            raise ProtocolViolation("an upgrade that nobody asked for", sent=True)
        coded = "transfer-encoding" in spellings
        if coded:
            coding = fields[spellings["transfer-encoding"]].strip().lower()
            if coding != b"chunked" or self._http.get_http_version() != "1.1":
                raise ProtocolViolation("a transfer coding that nobody asked for", sent=True)
        counted = coded or "content-length" in spellings
        self._open_ended = not counted and not self._is_head and status not in _BODYLESS


def _violation(error: Exception) -> UpstreamError:
    cause = error.__context__
    if isinstance(error, HttpParserCallbackError) and isinstance(cause, UpstreamError):
        return cause
    if isinstance(error, HttpParserUpgrade):
        return ProtocolViolation("an upgrade that nobody asked for", sent=True)
    return ProtocolViolation(f"the response is not HTTP: {error}", sent=True)


# The heads of requests

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
    # A URL may hold a credential: it stays out of the message.
    message = "the request's URL is no http or https URL of plain text without a user name"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ConnectFailed(message, sent=False) from None
    if _URL.fullmatch(url) is None or not host or "@" in parts.netloc:
        raise ConnectFailed(message, sent=False)
    path = parts.path or "/"
    return ParsedUrl(
        Origin(parts.scheme, host, port or _PORTS[parts.scheme]),
        parts.netloc,
        f"{path}?{parts.query}" if parts.query else path,
    )


def request_start(method: str, target: ParsedUrl, fields: Iterable[tuple[str, str]]) -> bytes:
    """Return the request line and the fields, without the length of the body and the empty line.

    Fields that are the transport's own are left out.

    Raises:
        ProtocolViolation: The method is no word, the name of a field no token, or its value more
            than plain text.
    """
    if not method.isalpha() or not method.isascii():
        raise ProtocolViolation("the request's method is no word", sent=False)
    lines = [f"{method} {target.path} HTTP/1.1\r\nHost: {target.authority}\r\n"]
    for name, value in fields:
        if _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            # The value may be a credential: it stays out of the message.
            message = f"the request header {name!r} is not plain text on one line"
            raise ProtocolViolation(message, sent=False)
        if name.lower() not in _OURS:
            lines.append(f"{name}: {value}\r\n")
    return "".join(lines).encode("ascii")


def request_head(start: bytes, method: str, body_size: int) -> bytes:
    """Return the whole head of a request that starts so, up to and with the empty line."""
    if body_size or method in _BODY_EXPECTED:
        return b"%bContent-Length: %d\r\n\r\n" % (start, body_size)
    return start + b"\r\n"
