"""One connection of a client: its bytes become requests, within limits.

    bytes ──> parser ──> Exchange ──> the handler, or a call of the ASGI application
                            └──> waits, if it was sent before the response to an earlier one ended

A head has 64 KB and 30 seconds, a body a least rate, an address a number of connections. Bytes that
are no HTTP are answered with an error in JSON, in their turn, and the connection ends.

Source: RFC 9112, sections 2.2 (robustness), 6 (bodies), 7 (chunks), 9.3 (pipelining).
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, cast

import httptools
import msgspec

from tollhouse.api.asgi_call import AsgiCall
from tollhouse.api.deadline import Deadline
from tollhouse.api.exchange import STATUS_LINES, Exchange, read_target
from tollhouse.api.known_head import MOST_KEPT, KnownHead

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.api.server_context import ServerContext

LARGEST_HEAD: Final = 65_536
HEAD_SECONDS: Final = 30.0
BODY_SECONDS: Final = 30.0
"""How often it is looked whether a body arrives at the least rate."""
KEEP_ALIVE_SECONDS: Final = 75.0
"""Longer than the idle time of the usual client pools, so that we are not the one who closes
a connection in the moment in which it is used again."""

MOST_UNREAD: Final = 512 * 1024 * 1024
"""How much of a refused body is read and thrown away, so that its sender gets to read the answer:
closing at once would reset the connection under it. Twice the largest body that any route takes,
and more, so that whoever is over a limit by a little learns of the limit."""

LINGER_SECONDS: Final = 2.0
"""How long a refused connection is still read, for the same reason."""

UNSENT_SECONDS: Final = 30.0
"""How often it is looked whether the client still takes what is left on a closed connection."""

MOST_FRAMING: Final = 65_536
"""Bytes of chunk extensions and trailers, beyond eight for each byte of the body."""

_FRAMING_RATIO: Final = 8
_NO_HTTP: Final = "Invalid HTTP request received."
_BAD_REQUEST = 400
_TIMEOUT = 408
_TOO_MANY = 429
_HEAD_TOO_LARGE = 431


class HttpConnection(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        *("__weakref__", "loop", "transport", "writable", "client", "server", "scheme", "peer"),
        *("date_line", "_context", "_parser", "_is_counted", "_refusal", "_unread"),
        *("_exchange", "_waiting", "_is_next_due", "_began_one", "_is_paused"),
        *("_known", "_to_keep", "_first", "_left"),
        *("_incoming", "_url", "_fields", "_in_head", "_has_head", "_head_bytes"),
        *("_call", "_pieces", "_body_bytes", "_body_waits"),
        *("_framing", "_deadline", "_is_timed", "_unsent"),
    )

    def __init__(self, context: ServerContext, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.writable = True
        self.client: tuple[str, int] | None = None
        self.server: tuple[str, int | None] | None = None
        self.peer: str | None = None
        self.date_line = context.date_line
        self._context = context
        self._parser: Any = httptools.HttpRequestParser(self)
        self._is_counted = False
        self._refusal: bytes | None = None
        """The last response, empty once it is sent. What comes in then is thrown away."""
        self._unread = 0

        self._exchange: Exchange | None = None
        """The one whose response is under way."""
        self._waiting: deque[Exchange] = deque()
        """Requests that were sent before that one has ended."""
        self._is_next_due = False
        self._began_one = False
        """Whether a request of the bytes at hand has begun; further ones let others run first."""
        self._is_paused = False

        self._known: KnownHead | None = None
        """The head of the last request, if another one may have it."""
        self._to_keep = MOST_KEPT
        self._first = b""
        """The bytes at hand, while no request of them has begun and nothing came before them."""
        self._left = 0
        """Bytes that are to come of a body whose head was known: the parser is not given them."""
        self._incoming: Exchange | None = None
        """The one whose body is coming in."""
        self._url = b""
        self._fields: list[tuple[bytes, bytes]] = []
        self._in_head = True
        self._has_head = False
        self._head_bytes = 0
        self._call: AsgiCall | None = None
        """What takes the body that is coming in."""
        self._pieces: list[bytes] = []
        self._body_bytes = 0
        self._body_waits = False
        self._framing = 0

        self._deadline = Deadline(loop, self._on_deadline)
        self._is_timed = True
        """Whether the deadline is that of the head or body that is coming in."""
        self._unsent = 0

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless its address holds too many."""
        context = self._context
        self.transport = transport
        context.connections.add(self)
        self.scheme = "https" if transport.get_extra_info("sslcontext") else "http"
        self.server = _address(transport.get_extra_info("sockname"))
        self._deadline.set(HEAD_SECONDS)
        peer = transport.get_extra_info("peername")
        if not isinstance(peer, tuple):
            return  # a Unix socket
        self.client = address, _ = cast("tuple[str, int]", peer[:2])
        self.peer = address
        self._is_counted = context.hold(address)
        if not self._is_counted:
            self._refuse(_TOO_MANY, "Too many connections from this address.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the address its place back, and tell who answers that the client is gone."""
        del exc
        self._context.connections.discard(self)
        self._release_address()
        self._deadline.drop()
        self._parser = self._call = self._incoming = self._known = None
        left = (self._exchange, *self._waiting)
        self._exchange = None
        self._waiting.clear()
        for exchange in left:
            if exchange is not None:
                exchange.leave()

    def eof_received(self) -> None:
        """Take the end of what a client sends for the end of the connection."""

    def shutdown(self) -> None:
        """End the connection once the requests that it has brought are answered."""
        newest = self._waiting[-1] if self._waiting else self._exchange
        if newest is None:
            self.close()
        else:
            newest.keep_alive = False

    def close(self) -> None:
        """Close the connection, after what was written."""
        self.transport.close()
        self._unsent = self.transport.get_write_buffer_size()
        if self._unsent:
            self._deadline.set(UNSENT_SECONDS)

    def pause_writing(self) -> None:
        """Take notice that the client is behind."""
        self.writable = False

    def resume_writing(self) -> None:
        """Go on with what waited for the client."""
        self.writable = True
        exchange = self._exchange
        if exchange is None:
            self._begin_next_soon()
        elif exchange.on_writable is not None:
            exchange.on_writable()

    def _release_address(self) -> None:
        if self._is_counted and self.client is not None:
            self._is_counted = False
            self._context.release(self.client[0])

    # Bytes

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that grows too large or takes too long ends the connection."""
        if self._refusal is not None:
            self._throw_away(data)
            return
        self._began_one = False
        if not self._in_head:
            self._framing += len(data)
            data = self._take_left(data)
        elif self._repeat(data):
            return
        else:
            self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._first = b""
            self._feed_after_upgrade(memoryview(data), upgrade.args[0])
        except httptools.HttpParserError:
            self._refuse(_BAD_REQUEST, _NO_HTTP)
        self._first = b""
        if self._refusal is not None:
            return
        if not self._in_head:
            self._await_body()
        elif self._has_head or self._head_bytes:
            self._await_head()

    def _repeat(self, data: bytes) -> bool:
        """Begin a request with the head of the last one; false where it is none.

        The parser would come to the same. It is between two requests then and stays there: nothing
        may have been sent of this one before, nor wait for its turn.
        """
        busy = self._exchange is not None or self._waiting or not self.writable
        if busy or self._has_head or self._head_bytes:
            return False
        known, self._known = self._known, None  # a key is not kept longer than it is sent
        request = None if known is None else known.read(data, self)
        if request is None:
            self._first = data
            return False
        self._known = known
        exchange, body, self._left = request
        if not self._left:
            self._unread, self._is_timed = 0, False
            exchange.body, exchange.received = body, True
            self._begin(exchange)
        else:
            self._end_head()
            self._incoming = exchange
            self._begin(exchange)
            self.on_body(body)
            self._await_body()
        return True

    def _take_left(self, data: bytes) -> bytes:
        """Take what the parser is not given of a body; return what follows that."""
        left = self._left
        if left:
            self._left -= min(left, len(data))
            self.on_body(data[:left])
            if not self._left:
                self.on_message_complete()
        return data[left:]

    def _feed_after_upgrade(self, data: memoryview, at: int) -> None:
        """Go on behind a head that asks for another protocol; see `_upgrade`."""
        try:
            while (head := self._upgrade()) is not None:
                self._parser.feed_data(head)
                data = data[at:]
                try:
                    self._parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:
                    at = upgrade.args[0]
                else:
                    return
        except httptools.HttpParserError:
            self._refuse(_BAD_REQUEST, _NO_HTTP)

    def _upgrade(self) -> bytes | None:
        """Change the protocol, or return the head as it would be if it asked for no other one.

        A server may ignore that it is asked. But the parser takes all that follows such a head for
        the other protocol, a body, too, which would then be read as a request.

        Source: RFC 9110, section 7.8.
        """
        method, fields = self._parser.get_method(), self._fields
        is_free = self._exchange is None and not self._waiting and self.writable
        if method == b"CONNECT":
            self._refuse(_BAD_REQUEST, _NO_HTTP)
        elif (
            is_free
            and dict(fields)[b"upgrade"].lower() == b"websocket"
            and self._context.takes_websocket(fields)
        ):
            self._become_websocket(_head(method, self._url, "1.1", fields))
        else:
            version = self._parser.get_http_version()
            self._parser = httptools.HttpRequestParser(self)
            kept = [each for each in fields if each[0] != b"upgrade"]
            return _head(method, self._url, version, kept)
        return None

    def _become_websocket(self, head: bytes) -> None:
        """Hand the connection over, with its place in the count of its address."""
        context = self._context
        context.connections.discard(self)
        self._deadline.drop()
        date = (b"date", self.date_line(self.loop.time())[len(b"date: ") : -len(b"\r\n")])
        if not context.open_websocket(self.transport, head, date, self._release_address):
            self._refuse(_BAD_REQUEST, "The handshake of the WebSocket cannot be read.")

    # What the parser calls

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._url = b""
        self._fields = []
        self._has_head = True

    def on_url(self, url: bytes) -> None:
        """Take a part of its target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; one of the trailers may not pass for one."""
        if self._in_head:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """End the head.

        Raises:
            ValueError: It is too large, though it came in one piece; stops the parser.
        """
        if self._head_bytes > LARGEST_HEAD and self._head_size() > LARGEST_HEAD:
            self._refuse_head()
            raise ValueError("the head is too large")
        self._end_head()
        if self._parser.should_upgrade():
            return  # `_upgrade` follows
        self._incoming = exchange = self._make_exchange()
        if self._exchange is None and not (self._began_one or self._waiting) and self.writable:
            self._began_one = True
            self._begin(exchange)
            return
        self._waiting.append(exchange)
        self.update_reading()
        if self._exchange is None:
            self._begin_next_soon()

    def _end_head(self) -> None:
        self._in_head = self._has_head = self._is_timed = False
        self._head_bytes = self._unread = self._framing = self._body_bytes = 0

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body; what comes after the response is thrown away, up to a limit."""
        self._body_bytes += len(piece)
        self._framing -= _FRAMING_RATIO * len(piece)
        exchange = self._incoming
        if exchange is None or exchange.ended:
            self._throw_away(piece)
        elif self._call is not None:
            self._call.feed(piece)
            if self._call.is_full:
                self.update_reading()
        elif not exchange.body:
            exchange.body = piece
        else:
            self._pieces.append(piece)

    def on_message_complete(self) -> None:
        """End a request; the next one begins with a head again."""
        self._in_head = True
        self._is_timed = False
        self._head_bytes = 0
        exchange, self._incoming = self._incoming, None
        if exchange is None:  # one that asks for another protocol
            return
        exchange.received = True
        if self._pieces:
            self._join_pieces(exchange)
        if exchange is not self._exchange:
            if exchange.ended:
                self._deadline.set(KEEP_ALIVE_SECONDS)
        elif self._call is not None:
            self._call.end()
        elif self._context.handler is not None:
            self._context.handler.handle(exchange)
        self._call = None

    # Requests

    def _make_exchange(self) -> Exchange:
        parser = self._parser
        method = parser.get_method().decode()
        raw_path, path, query, host = read_target(self._url)
        fields = self._fields
        if host is not None:
            # It replaces what Host says: RFC 9112, section 3.2.2.
            fields = [(name, host if name == b"host" else value) for name, value in fields]
        headers = dict(fields)
        exchange = Exchange(
            self, method, raw_path, path, query, fields, headers, self.peer, self.scheme
        )
        exchange.http_version = parser.get_http_version()
        exchange.keep_alive = parser.should_keep_alive()
        return exchange

    def _begin(self, exchange: Exchange) -> None:
        """Have a request answered whose turn it is."""
        self._exchange = exchange
        first, self._first = self._first, b""
        handler = self._context.handler
        if handler is None or not exchange.is_small or not handler.accepts(exchange):
            self._call_app(exchange)
            return
        if first and self._to_keep:
            self._to_keep -= 1
            self._known = KnownHead.of(first, exchange)
        if exchange.received and not exchange.ended:
            handler.handle(exchange)

    def _call_app(self, exchange: Exchange) -> None:
        if exchange is self._incoming:
            self._join_pieces(exchange)
        call = AsgiCall(self._context.app, exchange, self)
        if exchange is self._incoming:
            self._call = call
        task = self.loop.create_task(call.run())
        self._context.tasks.add(task)
        task.add_done_callback(self._context.tasks.discard)

    def end_exchange(self, exchange: Exchange) -> None:
        """Go on after a response: with the next request, or with the end of the connection."""
        self._exchange = None
        if exchange is self._incoming:
            self._call = None
            self._pieces = []
        if not exchange.keep_alive:
            self.close()
        elif self._waiting or self._refusal is not None:
            self._begin_next_soon()
        elif self._in_head and not self._is_timed:
            self._deadline.set(KEEP_ALIVE_SECONDS)
        if self._is_paused:
            self.update_reading()

    def _begin_next_soon(self) -> None:
        """Begin the next request in the next turn of the event loop, so that others have theirs."""
        if not self._is_next_due:
            self._is_next_due = True
            self.loop.call_soon(self._begin_next)

    def _begin_next(self) -> None:
        self._is_next_due = False
        if self._exchange is not None or not self.writable or self.transport.is_closing():
            return
        if self._waiting:
            self._begin(self._waiting.popleft())
            self.update_reading()
            if self._exchange is None:
                self._begin_next_soon()
        elif self._refusal:
            self._send_refusal()

    def update_reading(self) -> None:
        """Read on, or stop reading, as those who wait for the body require."""
        is_paused = bool(self._waiting) or (self._call is not None and self._call.is_full)
        if is_paused == self._is_paused or self.transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._body_waits = True
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _join_pieces(self, exchange: Exchange) -> None:
        if self._pieces:
            exchange.body += b"".join(self._pieces)
            self._pieces = []

    # Limits

    def _await_head(self) -> None:
        """Give a head that is not whole its time, and its size."""
        if self._head_bytes > LARGEST_HEAD:
            self._refuse_head()
        elif not self._is_timed:
            self._is_timed = True
            self._deadline.set(HEAD_SECONDS)

    def _await_body(self) -> None:
        """Give a body that is not whole its next seconds, and bound what is not body in it."""
        if self._framing > MOST_FRAMING:
            self._refuse(_BAD_REQUEST, "The body of the request is framed in too many bytes.")
        self._framing = max(0, self._framing)
        if not self._is_timed:
            self._is_timed = True
            self._watch_body()

    def _watch_body(self) -> None:
        self._body_waits = self._is_paused or (
            self._call is not None and self._call.awaits_continue
        )
        self._deadline.set(BODY_SECONDS)

    def _look_at_body(self) -> None:
        """Refuse a body that arrives too slowly, unless it is we who do not read it."""
        least = self._context.least_body_rate * BODY_SECONDS
        if self._body_waits or self._body_bytes >= least:
            self._body_bytes = 0
            self._watch_body()
        else:
            self._refuse(_TIMEOUT, "The request body arrived too slowly.")

    def _on_deadline(self) -> None:
        if self.transport.is_closing():
            self._look_at_unsent()
        elif self._refusal is not None:
            if not self._refusal:
                self.close()
        elif not self._in_head:
            self._look_at_body()
        elif self._is_timed:
            self._refuse(_TIMEOUT, "The request head did not arrive in time.")
        elif self._exchange is None and not self._waiting:
            self.close()

    def _look_at_unsent(self) -> None:
        """Leave a client that takes no more of what was written before the end."""
        unsent = self.transport.get_write_buffer_size()
        if unsent < self._unsent:
            self._unsent = unsent
            self._deadline.set(UNSENT_SECONDS)
        else:
            self.transport.abort()

    def _throw_away(self, data: bytes) -> None:
        self._unread += len(data)
        if self._unread > MOST_UNREAD:
            self.close()

    # Refusals

    def _head_size(self) -> int:
        return len(self._url) + sum(len(name) + len(value) + 4 for name, value in self._fields)

    def _refuse_head(self) -> None:
        self._refuse(_HEAD_TOO_LARGE, f"The request head is larger than {LARGEST_HEAD} bytes.")

    def _refuse(self, status: int, message: str) -> None:
        """Send a last response once it is its turn; nothing more is read."""
        if self._refusal is not None or self.transport.is_closing():
            return
        body = msgspec.json.encode({"error": {"code": status, "message": message}})
        head = (
            b"content-type: application/json\r\n"
            b"connection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        self._refusal = STATUS_LINES[status] + head + body
        incoming, self._incoming, self._call = self._incoming, None, None
        if incoming is not None:
            if incoming.began:  # nothing may be written into its response
                self.close()
                return
            self._drop(incoming)
        if self._exchange is None and not self._waiting:
            self._send_refusal()

    def _drop(self, exchange: Exchange) -> None:
        """Forget a request whose body will not end, as if its client were gone."""
        if exchange is self._exchange:
            self._exchange = None
        else:
            self._waiting.remove(exchange)
        exchange.leave()

    def _send_refusal(self) -> None:
        refusal, self._refusal = self._refusal, b""
        if refusal:
            self.transport.write(refusal)
            self.transport.write_eof()
            self._deadline.set(LINGER_SECONDS)
            self.update_reading()


def _head(method: bytes, url: bytes, version: str, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
    lines = b"".join(b"%b: %b\r\n" % field for field in fields)
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method, url, version.encode(), lines)


def _address(found: object) -> tuple[str, int | None] | None:
    """Return an address as ASGI has it: host and port, or the path of a Unix socket."""
    if isinstance(found, tuple):
        host, port = cast("tuple[str, int]", found[:2])
        return host, port
    return (found, None) if isinstance(found, str) else None
