"""Limits of time, back-pressure and hang-ups of a connection; acceptance tests send the rest."""

import asyncio
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.loop_time import LoopTime
from tests.support.memory_transport import MemoryTransport
from tests.support.seams.api import (
    BODY_SECONDS,
    HEAD_SECONDS,
    KEEP_ALIVE_SECONDS,
    LINGER_SECONDS,
    MOST_UNTAKEN,
    UNSENT_SECONDS,
    Exchange,
    HttpConnection,
    ServerContext,
)
from tests.support.seams.api import connection as module

GET = b"GET /app HTTP/1.1\r\nhost: a\r\n\r\n"
RATE = 1_000


def post(body: bytes, fields: bytes = b"", path: bytes = b"/x") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: a\r\n%bcontent-length: %d\r\n\r\n%b" % (
        *(path, fields, len(body), body),
    )


@dataclass
class Handler:
    """Takes what it is offered, and answers when it is let."""

    at_once: bool = True
    handled: list[Exchange] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)

    def accepts(self, exchange: Exchange) -> bool:
        return bool(exchange.path)

    def handle(self, exchange: Exchange) -> None:
        self.handled.append(exchange)
        exchange.on_gone = lambda: self.gone.append(exchange.path)
        if self.at_once:
            exchange.respond(200, [], exchange.body)


@dataclass
class Client:
    """A client of one connection, and what answers it."""

    handler: Handler
    transport: MemoryTransport
    context: ServerContext
    connection: HttpConnection
    called: list[str]
    let: asyncio.Event
    """Set when the application may read the body."""

    def sends(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)

    @property
    def statuses(self) -> list[int]:
        return [int(each) for each in re.findall(rb"HTTP/1\.1 (\d{3})", self.transport.written)]


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> LoopTime:
    return LoopTime(monkeypatch)


@pytest.fixture
async def client() -> Client:
    return connect(Handler())


def connect(handler: Handler) -> Client:
    called: list[str] = []
    let = asyncio.Event()
    let.set()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        called.append(scope["path"])
        await let.wait()
        size = 0
        while (message := await receive())["type"] == "http.request":
            size += len(message["body"])
            if not message["more_body"]:
                await send({"type": "http.response.start", "status": 200, "headers": []})
                await send({"type": "http.response.body", "body": b"%d" % size})
                return

    def never(*_: object) -> bool:
        return False

    given: Any = handler
    context = ServerContext(app, given, 9, RATE, never, never, set(), set())
    transport = MemoryTransport()
    connection = HttpConnection(context, asyncio.get_running_loop())
    wire: Any = transport
    connection.connection_made(wire)
    return Client(handler, transport, context, connection, called, let)


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# Several requests


async def test_nothing_is_read_while_a_request_waits() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b""))
    assert not client.transport.paused
    client.sends(post(b""))
    assert client.transport.paused
    client.handler.handled[0].respond(200, [], b"")
    await turns()
    assert not client.transport.paused


async def test_others_have_their_turn_between_requests_of_one_piece(client: Client) -> None:
    client.sends(post(b"") * 3)
    assert len(client.handler.handled) == 1
    await turns()
    assert len(client.handler.handled) == 3


async def test_no_request_begins_while_the_client_does_not_read() -> None:
    client = connect(Handler())
    client.connection.pause_writing()
    client.sends(post(b""))
    await turns()
    assert client.handler.handled == []
    assert client.transport.paused
    client.connection.resume_writing()
    await turns()
    assert client.statuses == [200]
    assert not client.transport.paused


# Hang-ups and back-pressure


async def test_who_answers_hears_of_a_hang_up_at_once() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b"", path=b"/1") + post(b"", path=b"/2"))
    client.connection.connection_lost(None)
    assert client.handler.gone == ["/1"]
    client.handler.handled[0].respond(200, [], b"late")
    await turns()
    assert client.transport.written == b""
    assert len(client.handler.handled) == 1


# How it ends


async def test_an_idle_connection_is_closed(client: Client, time: LoopTime) -> None:
    for _ in range(3):
        client.sends(post(b""))
        await time.advance(KEEP_ALIVE_SECONDS - 1)
        await turns()
        assert not client.transport.closed
    await time.advance(2)
    await turns()
    assert client.transport.closed
    assert client.statuses == [200] * 3


async def test_a_response_has_as_much_time_as_it_needs(time: LoopTime) -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b""))
    for _ in range(5):
        await time.advance(KEEP_ALIVE_SECONDS)
        await turns()
    client.handler.handled[0].respond(200, [], b"")
    assert client.statuses == [200]
    assert not client.transport.closed


async def test_a_stopping_server_closes_a_connection_after_its_last_response() -> None:
    idle = connect(Handler())
    idle.connection.shutdown()
    assert idle.transport.closed
    client = connect(Handler(at_once=False))
    client.sends(post(b"") + post(b""))
    client.connection.shutdown()
    for _ in range(2):
        assert not client.transport.closed
        client.handler.handled[-1].respond(200, [], b"")
        await turns()
    assert client.transport.closed
    assert client.transport.written.count(b"connection: close\r\n") == 1


@pytest.mark.parametrize("takes", [False, True])
async def test_who_takes_nothing_of_what_is_left_is_dropped(
    client: Client, time: LoopTime, *, takes: bool
) -> None:
    client.transport.unsent = 100
    client.sends(post(b"", b"connection: close\r\n"))
    for _ in range(3):
        client.transport.unsent -= 10 * takes
        await time.advance(UNSENT_SECONDS + 1)
        await turns()
    assert client.transport.aborted == (not takes)


# Refusals


async def test_a_refused_connection_is_read_for_a_while_and_closed(
    client: Client, time: LoopTime
) -> None:
    client.sends(b"garbage\r\n\r\n", post(b""))
    assert client.statuses == [400]
    assert not client.transport.closed
    await time.advance(LINGER_SECONDS + 1)
    await turns()
    assert client.transport.closed
    assert client.handler.handled == []


async def test_what_follows_a_refusal_is_thrown_away_up_to_a_limit(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_UNREAD", 100)
    client.sends(b"garbage\r\n\r\n", b"x" * 100)
    assert not client.transport.closed
    client.sends(b"x")
    assert client.transport.closed


async def test_a_request_whose_body_breaks_off_in_garbage_is_gone() -> None:
    client = connect(Handler())
    client.sends(GET[:-2] + b"transfer-encoding: chunked\r\n\r\n")
    await turns()
    client.sends(b"no chunk\r\n")
    await turns()
    assert client.called == ["/app"]
    assert client.statuses == [400]
    assert not client.context.tasks


@pytest.mark.parametrize("begun", [b"", b"POST / HTTP/1.1\r\nhost"])
async def test_a_head_that_does_not_come_in_time_is_a_408(
    client: Client, time: LoopTime, begun: bytes
) -> None:
    client.sends(*([begun] if begun else []))
    await time.advance(HEAD_SECONDS + 1)
    await turns()
    assert client.statuses == [408]


async def test_a_head_has_its_time_from_its_first_byte(client: Client, time: LoopTime) -> None:
    client.sends(post(b"") + b"POST / HT")
    for piece in (b"T", b"P/1.1\r\n", b"x"):
        await time.advance(HEAD_SECONDS / 4)
        client.sends(piece)
        await turns()
    assert client.statuses == [200]
    await time.advance(HEAD_SECONDS / 4 + 1)
    await turns()
    assert client.statuses == [200, 408]


async def test_a_slow_body_is_a_408_for_a_handler_too(client: Client, time: LoopTime) -> None:
    client.sends(post(b"x" * 100_000)[:-90_000], b"x" * 40_000)
    await time.advance(BODY_SECONDS + 1)
    await turns()
    assert client.statuses == []
    client.sends(b"x")
    await time.advance(BODY_SECONDS + 1)
    await turns()
    assert client.statuses == [408]
    assert client.handler.handled == []


async def test_a_body_at_the_least_rate_may_take_as_long_as_it_needs(
    client: Client, time: LoopTime
) -> None:
    a_window = b"x" * int(RATE * BODY_SECONDS)
    client.sends(post(3 * a_window)[: -3 * len(a_window)])
    for _ in range(3):
        client.sends(a_window)
        await time.advance(BODY_SECONDS + 1)
        await turns()
    assert client.statuses == [200]


async def test_a_body_that_the_application_does_not_read_is_not_too_slow(
    client: Client, time: LoopTime
) -> None:
    client.let.clear()
    body = b"x" * (MOST_UNTAKEN + 2)
    client.sends(post(body, b"expect: 100-continue\r\n")[:-1])
    for _ in range(3):
        await time.advance(BODY_SECONDS + 1)
        await turns()
    assert client.transport.paused
    client.let.set()
    await turns()
    assert not client.transport.paused
    client.sends(b"x")
    await turns()
    assert client.statuses[-1] == 200


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"])
async def test_a_header_that_would_be_read_as_another_is_not_sent(value: bytes) -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b""))
    [exchange] = client.handler.handled
    with pytest.raises(ValueError, match="header"):
        exchange.respond(200, [(b"x", value)], b"")
    with pytest.raises(ValueError, match="header"):
        exchange.begin(200, [(b"x", value)])
    assert client.transport.written == b""


@pytest.mark.parametrize("pieces", [(b"ab", b""), (b"ab", b"cdef")])
async def test_a_body_of_another_length_than_declared_is_an_error(
    pieces: tuple[bytes, bytes],
) -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b""))
    [exchange] = client.handler.handled
    exchange.begin(200, [(b"content-length", b"3")])
    exchange.write(pieces[0])
    with pytest.raises(ValueError, match="content-length"):
        exchange.finish(pieces[1])
