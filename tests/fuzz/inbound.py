"""Requests to the gateway's own port are read alike in whatever pieces they come.

What is answered is what a parser of llhttp reads that nothing else stands between, up to the first
byte that it refuses; that is answered with a 400. The host of an absolute target stands in the
place of Host (RFC 9112, section 3.2.2). Only behind a head that asks for another protocol
does the bare parser read nothing more, while the gateway goes on.
"""

import asyncio
import re
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import httptools

from tests.support.memory_transport import MemoryTransport
from tests.support.seams.api import Exchange, HttpConnection, ServerContext

Fields = list[tuple[bytes, bytes]]
PIECE = 5
FIRST = b"POST /v1 HTTP/1.1\r\nhost: a\r\nContent-Length: 2\r\nx-a: b\r\n\r\nhi"
"""A request before the input, so that the input may begin with a head that was read before."""
TIMELY = re.compile(rb"date: [^\r]*\r\n|HTTP/1\.1 100 Continue\r\n\r\n")
"""What depends on when bytes come: a body that is broken already is not asked for."""
REFUSED = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n"


class Seen(NamedTuple):
    """A whole request, as those who answer it see it."""

    method: str
    path: bytes
    query: bytes
    fields: Fields
    body: bytes


class Reading(NamedTuple):
    """What became of some bytes."""

    requests: list[Seen]
    written: bytes
    closed: bool


class TurnLoop(asyncio.SelectorEventLoop):
    """A loop that a test turns until nothing is left to do."""

    def __init__(self) -> None:
        super().__init__()
        self._begun = 0

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        self._begun += 1
        return super().call_soon(callback, *args, context=context)

    def settle(self) -> None:
        """Run what is due, and what that makes due."""
        before = -1
        while self._begun != before:
            super().call_soon(self.stop)
            before = self._begun
            self.run_forever()


@cache
def turn_loop() -> TurnLoop:
    """Return one loop for all inputs: to make it takes longer than to read one."""
    return TurnLoop()


@dataclass
class Answering:
    """Answers at once what a handler may, and the rest as an application; keeps what it saw."""

    seen: list[Seen] = field(default_factory=list)

    def accepts(self, exchange: Exchange) -> bool:
        return exchange.method == "POST"

    def handle(self, exchange: Exchange) -> None:
        path, query, body = exchange.raw_path, exchange.query, exchange.body
        self.seen.append(Seen(exchange.method, path, query, exchange.fields, body))
        exchange.respond(200, [], b"handled")

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        body = b""
        while (message := await receive())["type"] == "http.request":
            body += message["body"]
            if not message["more_body"]:
                path, query = scope["raw_path"], scope["query_string"]
                self.seen.append(Seen(scope["method"], path, query, scope["headers"], body))
                headers = [(b"content-length", b"6")]  # without it, HTTP/1.0 ends here
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": b"called"})
                return


def never(*_: object) -> bool:
    return False


def read(pieces: Iterable[bytes]) -> Reading:
    """Feed a connection, each piece once it has read all before."""
    loop, answering, transport = turn_loop(), Answering(), MemoryTransport()
    given: Any = answering
    context = ServerContext(answering.app, given, 9, 0, never, never, set(), set())
    connection = HttpConnection(context, loop)
    wire: Any = transport
    connection.connection_made(wire)
    for piece in pieces:
        if transport.closed or transport.ended:
            break
        connection.data_received(piece)
        loop.settle()
        assert transport.closed or not transport.paused
    closed = transport.closed or transport.ended
    connection.connection_lost(None)
    loop.settle()
    assert not context.tasks
    assert not context.held
    return Reading(answering.seen, TIMELY.sub(b"", bytes(transport.written)), closed)


class BareReader:
    """Reads requests with the parser alone."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []
        self.asks_for_more = False
        """Whether a request asks for another protocol."""
        self.keeps_open = True
        """Whether more may follow the last request."""
        self._parser: Any = httptools.HttpRequestParser(self)

    def read(self, data: bytes) -> bool:
        """Return whether all of it is HTTP."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.asks_for_more = True
        except httptools.HttpParserError:
            return False
        return True

    def on_message_begin(self) -> None:
        self._url = self._body = b""
        self._fields: Fields = []
        self._in_head = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            self._fields.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._target = None
        if not self._parser.should_upgrade():
            self._target = httptools.parse_url(self._url)

    def on_body(self, piece: bytes) -> None:
        self._body += piece

    def on_message_complete(self) -> None:
        if (target := self._target) is not None:
            method = self._parser.get_method().decode()
            path, query, host = target.path or b"/", target.query or b"", target.host
            if host is not None:
                host = b"[%b]" % host if b":" in host else host
                host += b"" if target.port is None else b":%d" % target.port
            fields = [
                (each, host if host and each == b"host" else value) for each, value in self._fields
            ]
            self.requests.append(Seen(method, path, query, fields, self._body))
            self.keeps_open = self._parser.should_keep_alive()


def check(data: bytes) -> None:
    """Fail where bytes are read otherwise than the parser reads them, or in two ways."""
    whole = check_whole(data)
    assert read(cut(data, PIECE)) == whole
    assert read(cut(data, 1)) == whole
    at = sum(data) % (len(data) + 1)
    assert read((data[:at], data[at:])) == whole
    assert read(filter(None, re.split(rb"(?=POST )", data))) == whole
    assert read((FIRST, data)) == read((FIRST, *cut(data, PIECE)))


def check_whole(data: bytes) -> Reading:
    """Return how bytes are read in one piece, compared with the bare parser."""
    whole, bare = read((data,)), BareReader()
    is_http = bare.read(data)
    if bare.asks_for_more:
        assert whole.requests[: len(bare.requests)] == bare.requests
    else:
        assert whole.requests == bare.requests
        assert (REFUSED in whole.written) == (bare.keeps_open and not is_http)
    assert whole.written.count(b"HTTP/1.1 200 OK\r\n") == len(whole.requests)
    return whole


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
