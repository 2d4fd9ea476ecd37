"""One request on a connection of the server, and the response to it.

The connection makes an `Exchange` for each request. A `RequestHandler` answers it with plain calls,
which never wait:

    respond(200, headers, body)             a whole response
    begin(200, headers); write(...) ...; finish()      a stream

How a body is framed is decided here: by `content-length` where a header says it, in chunks
otherwise, and until the connection closes for a client of HTTP/1.0.

Source: RFC 9112 section 6 (framing), section 9.3 (persistence); RFC 9110 section 6.4.1 (responses
without content).
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote

import httptools
from msgspec import Struct

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

LARGEST_HANDLED_BODY: Final = 262_144
"""Bytes of the largest request that a `RequestHandler` is offered."""


def _status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return f"HTTP/1.1 {status} {phrase}\r\n".encode()


STATUS_LINES: Final = {status: _status_line(status) for status in range(200, 600)}
_WITHOUT_CONTENT: Final = (204, 304)
_CLOSE: Final = b"connection: close\r\n"
_KEEP_ALIVE: Final = b"connection: keep-alive\r\n"
_CHUNKED: Final = b"transfer-encoding: chunked\r\n"
_line_of: Final = b"%b: %b\r\n".__mod__
"""Returns the line of a field."""


def read_target(target: bytes) -> tuple[bytes, str, bytes, bytes | None]:
    """Return the path of a request's target as it came, the same decoded, the query and the host.

    Only an absolute target, as proxies are sent, has a host, perhaps with a port.

    Raises:
        HttpParserError: It is none of a request, apart from CONNECT.

    Source: RFC 9112, section 3.2.
    """
    host: bytes | None = None
    if target[:1] == b"/" and b"#" not in target:
        raw_path, _, query = target.partition(b"?")
    else:
        parsed: Any = httptools.parse_url(target)
        raw_path, query = parsed.path or b"/", parsed.query or b""
        if parsed.host is not None:
            name = b"[%b]" % parsed.host if b":" in parsed.host else parsed.host
            host = name if parsed.port is None else b"%b:%d" % (name, parsed.port)
    path = raw_path.decode("ascii")
    return raw_path, unquote(path) if "%" in path else path, query, host


class HttpChannel(Protocol):
    """What an exchange needs of the connection that it came on."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    peer: str | None
    scheme: str
    writable: bool
    """Whether the client keeps up with what is written."""
    date_line: Callable[[float], bytes]
    """Returns the line of the header `date`, at a time of the event loop."""

    def end_exchange(self, exchange: Exchange) -> None:
        """Go on after a response: with the next request, or with the end of the connection."""
        ...

    def close(self) -> None:
        """Close the connection, after what was written."""
        ...


class Exchange(Struct, eq=False):
    """One request, and the response to it.

    After its end, or once the client has hung up, all that is written goes nowhere.
    """

    _channel: HttpChannel | None
    method: str
    raw_path: bytes
    """As it came, without the query."""
    path: str
    """Decoded, as `path` is in ASGI."""
    query: bytes
    fields: list[tuple[bytes, bytes]]
    """The headers in the order in which they came, names in lower case."""
    headers: dict[bytes, bytes]
    """The last of each name."""
    peer: str | None
    """The client's address; None on a Unix socket."""
    scheme: str
    http_version: str = "1.1"
    keep_alive: bool = True
    """Whether the connection may stay open after the response."""
    from_head: object = None
    """What a `RequestHandler` found out from the head alone; kept for the next one like it."""
    accepted: object = None
    """What a `RequestHandler` keeps from `accepts` for `handle`."""
    body: bytes = b""
    """Whole once `RequestHandler.handle` is called."""
    received: bool = False
    """Whether the body has come to its end."""
    on_gone: Callable[[], None] | None = None
    """Called once if the client hangs up before the end of the response."""
    on_writable: Callable[[], None] | None = None
    """Called once there is room again, after `write` has returned false."""
    began: bool = False
    """Whether the response has begun: no other one can be sent."""
    _head: bytes = b""
    _is_chunked: bool = False
    _left: int | None = None
    _is_silent: bool = False

    def __repr__(self) -> str:
        return f"<Exchange {self.method}>"

    @property
    def ended(self) -> bool:
        """Whether nothing more can be written: the response has ended, or the client is gone."""
        return self._channel is None

    @property
    def is_small(self) -> bool:
        """Whether a `RequestHandler` is offered it."""
        length = self.headers.get(b"content-length")
        return (
            length is not None
            and b"expect" not in self.headers
            and int(length) <= LARGEST_HANDLED_BODY
        )

    def respond(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Send a whole response; `content-length` is added.

        Raises:
            ValueError: A header cannot be sent.
        """
        channel = self._channel
        if channel is None:
            return
        has_content = status not in _WITHOUT_CONTENT
        last = b"content-length: %d\r\n\r\n" % len(body) if has_content else b"\r\n"
        head = self._render(channel, status, headers, last)
        self.began = True
        if has_content and self.method != "HEAD":
            head += body
        self._end(channel, head)

    def begin(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send the head of a response whose body follows in pieces.

        It leaves with the first piece, or in the next turn of the event loop.

        Raises:
            ValueError: A header cannot be sent.
        """
        channel = self._channel
        if channel is None:
            return
        length = next((value for name, value in headers if name == b"content-length"), None)
        last = b"\r\n"
        if length is not None:
            self._left = int(length)
        elif status not in _WITHOUT_CONTENT and self.method != "HEAD":
            if self.http_version == "1.1":
                self._is_chunked, last = True, _CHUNKED + last
            else:
                self.keep_alive = False
        self._is_silent = status in _WITHOUT_CONTENT or self.method == "HEAD"
        self._head = self._render(channel, status, headers, last)
        self.began = True
        channel.loop.call_soon(self._send_head)

    def write(self, data: bytes) -> bool:
        """Send a piece of the body; false while the client is behind, or gone.

        What is written while it is behind is kept in memory.

        Raises:
            ValueError: The body is longer than its `content-length` says.
        """
        channel = self._channel
        if channel is None:
            return False
        framed = self._framed(data)
        if framed:
            channel.transport.write(framed)
        return channel.writable

    def finish(self, data: bytes = b"") -> None:
        """Send the last piece of the body, and end the response.

        Raises:
            ValueError: The body is not as long as its `content-length` says.
        """
        channel = self._channel
        if channel is None:
            return
        framed = self._framed(data)
        if self._is_chunked:
            framed += b"0\r\n\r\n"
        if self._left and not self._is_silent:
            raise ValueError("the body is shorter than its content-length")
        self._end(channel, framed)

    def abort(self) -> None:
        """Close the connection: nothing legal can follow what was sent."""
        self._send_head()
        channel, self._channel = self._channel, None
        if channel is not None:
            self.on_gone = self.on_writable = None
            channel.close()

    def leave(self) -> None:
        """Take notice that the client is gone; the connection calls this."""
        gone, self.on_gone, self.on_writable, self._channel = self.on_gone, None, None, None
        if gone is not None:
            gone()

    def _end(self, channel: HttpChannel, last: bytes) -> None:
        self._channel = self.on_gone = self.on_writable = None
        if last:
            channel.transport.write(last)
        channel.end_exchange(self)

    def _send_head(self) -> None:
        head, self._head = self._head, b""
        if head and self._channel is not None:
            self._channel.transport.write(head)

    def _framed(self, data: bytes) -> bytes:
        """Return a piece as it is sent, behind the head if that has not left yet."""
        head, self._head = self._head, b""
        if not data or self._is_silent:
            return head
        if self._is_chunked:
            return b"%b%x\r\n%b\r\n" % (head, len(data), data)
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                raise ValueError("the body is longer than its content-length")
        return head + data if head else data

    def _render(
        self, channel: HttpChannel, status: int, headers: Sequence[tuple[bytes, bytes]], last: bytes
    ) -> bytes:
        """Return a head that ends with `last`.

        Raises:
            ValueError: A header has a line break in it, so that what follows would be read as
                another one.
        """
        text = b"".join(map(_line_of, headers))
        if not text.count(b"\n") == text.count(b"\r") == len(headers) or b"\0" in text:
            raise ValueError("a header cannot be sent")
        if not self.keep_alive:
            text += _CLOSE
        elif self.http_version == "1.0":
            text += _KEEP_ALIVE
        date = channel.date_line(channel.loop.time())
        return b"%b%b%b%b" % (STATUS_LINES[status], date, text, last)


class RequestHandler(Protocol):
    """Answers requests without an application of ASGI: with no task and no future."""

    def accepts(self, exchange: Exchange) -> bool:
        """Tell whether it answers a request whose head has come.

        It is offered requests with a `content-length` of at most `LARGEST_HANDLED_BODY`, without
        `expect` and without an upgrade; all others go to the ASGI application, and so do those
        that it does not accept. It may answer already: then the body is thrown away.
        """
        ...

    def handle(self, exchange: Exchange) -> None:
        """Answer a request whose body has come; never raises."""
        ...
