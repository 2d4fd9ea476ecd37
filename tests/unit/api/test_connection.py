"""A connection's requests: their order, their limits, and what ends it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.loop_time import LoopTime
from tests.support.memory_transport import MemoryTransport
from tollhouse.api import connection as module
from tollhouse.api.connection import (
    BODY_SECONDS,
    HEAD_SECONDS,
    KEEP_ALIVE_SECONDS,
    LARGEST_HEAD,
    LINGER_SECONDS,
    UNSENT_SECONDS,
    HttpConnection,
)
from tollhouse.api.exchange import LARGEST_HANDLED_BODY
from tollhouse.api.server_context import ServerContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.api.exchange import Exchange

GET = b"GET /app HTTP/1.1\r\nhost: a\r\n\r\n"
RATE = 1_000


def post(body: bytes, fields: bytes = b"", path: bytes = b"/x", version: bytes = b"1.1") -> bytes:
    return b"POST %b HTTP/%b\r\nhost: a\r\n%bcontent-length: %d\r\n\r\n%b" % (
        *(path, version, fields, len(body), body),
    )


@dataclass
class Handler:
    """Takes what it is offered, and answers when it is let."""

    at_once: bool = True
    takes: bool = True
    offered: list[str] = field(default_factory=list)
    handled: list[Exchange] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    refuse: Callable[[Exchange], None] | None = None
    """What it does with a request before its body is here."""

    def accepts(self, exchange: Exchange) -> bool:
        self.offered.append(exchange.path)
        if self.refuse is not None:
            self.refuse(exchange)
        return self.takes

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

    def sends(self, *pieces: bytes) -> None:
        for piece in pieces:
            self.connection.data_received(piece)

    @property
    def bodies(self) -> list[bytes]:
        """What has come of the bodies of responses, chunks and all."""
        return [each.partition(b"\r\n\r\n")[2] for each in self._responses()]

    @property
    def statuses(self) -> list[int]:
        return [int(each[:3]) for each in self._responses()]

    def _responses(self) -> list[bytes]:
        return re.split(rb"HTTP/1\.1 (?=\d)", bytes(self.transport.written))[1:]


@pytest.fixture
async def client() -> Client:
    return connect(Handler())


def connect(handler: Handler, limit: int = 9, context: ServerContext | None = None) -> Client:
    called: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        called.append(scope["path"])
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
    context = context or ServerContext(app, given, limit, RATE, never, never, set(), set())
    transport = MemoryTransport()
    connection = HttpConnection(context, asyncio.get_running_loop())
    wire: Any = transport
    connection.connection_made(wire)
    return Client(handler, transport, context, connection, called)


async def turns(number: int = 20) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


# Who answers


async def test_a_handler_answers_without_a_task_and_in_one_write(client: Client) -> None:
    client.sends(post(b"hello"))
    assert client.bodies == [b"hello"]
    assert client.transport.writes == 1
    assert not client.context.tasks


async def test_a_handler_sees_the_request(client: Client) -> None:
    client.sends(post(b"hi", b"X-A: 1\r\nx-a: 2\r\n", b"/a%20b?c=%20"))
    [seen] = client.handler.handled
    assert (seen.method, seen.path, seen.raw_path, seen.query) == (
        *("POST", "/a b", b"/a%20b", b"c=%20"),
    )
    assert seen.fields[1:3] == [(b"x-a", b"1"), (b"x-a", b"2")]
    assert seen.headers[b"x-a"] == b"2"
    assert (seen.http_version, seen.peer, seen.scheme) == ("1.1", "192.0.2.1", "http")


async def test_a_body_that_comes_in_pieces_is_handled_whole(client: Client) -> None:
    data = post(b"x" * 1000)
    client.sends(*(data[at : at + 7] for at in range(0, len(data), 7)))
    assert client.bodies == [b"x" * 1000]


@pytest.mark.parametrize(
    "request_",
    [
        GET,
        b"POST /app HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        post(b"x", b"expect: 100-continue\r\n"),
        post(b"x" * (LARGEST_HANDLED_BODY + 1)),
    ],
    ids=["no-body", "chunked", "expect", "large"],
)
async def test_a_handler_is_not_offered_what_asgi_does_better(
    client: Client, request_: bytes
) -> None:
    client.sends(request_)
    await turns()
    assert client.handler.offered == []
    assert len(client.called) == 1
    assert client.statuses[-1] == 200


async def test_what_a_handler_does_not_accept_goes_to_the_application() -> None:
    client = connect(Handler(takes=False))
    client.sends(post(b"hello")[:-2], b"lo")
    await turns()
    assert client.handler.offered == ["/x"]
    assert client.bodies == [b"1\r\n5\r\n0\r\n\r\n"]


async def test_a_handler_may_answer_before_the_body_which_is_thrown_away() -> None:
    client = connect(Handler(refuse=lambda exchange: exchange.respond(401, [], b"no")))
    client.sends(post(b"hello")[:-5])
    assert client.statuses == [401]
    client.sends(b"hello" + post(b""))
    await turns()
    assert client.statuses == [401, 401]
    assert client.handler.handled == []


# Several requests


async def test_requests_that_are_sent_at_once_are_answered_in_their_order(client: Client) -> None:
    client.sends(post(b"one") + GET + post(b"two") + post(b"three"))
    await turns(60)
    assert client.bodies == [b"one", b"1\r\n0\r\n0\r\n\r\n", b"two", b"three"]


async def test_a_request_waits_for_the_response_before_it() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b"", path=b"/1"), post(b"", path=b"/2"))
    await turns()
    assert [each.path for each in client.handler.handled] == ["/1"]
    client.handler.handled[0].respond(200, [], b"")
    await turns()
    assert [each.path for each in client.handler.handled] == ["/1", "/2"]


async def test_nothing_is_read_while_a_request_waits() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b""))
    assert not client.transport.paused
    client.sends(post(b""))
    assert client.transport.paused
    client.handler.handled[0].respond(200, [], b"")
    await turns()
    assert not client.transport.paused


async def test_a_request_that_waits_gets_the_rest_of_its_body_in_its_turn() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b"") + post(b"hello")[:-3])
    client.handler.handled[0].respond(200, [], b"")
    await turns()
    client.sends(b"llo")
    assert client.handler.handled[1].body == b"hello"


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


async def test_a_writer_is_told_when_the_client_is_behind_and_when_no_more() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b""))
    [exchange] = client.handler.handled
    heard: list[str] = []
    exchange.on_writable = lambda: heard.append("room")
    exchange.begin(200, [])
    assert exchange.write(b"x")
    client.connection.pause_writing()
    assert not exchange.write(b"y")
    client.connection.resume_writing()
    assert heard == ["room"]
    assert exchange.write(b"z")


# How it ends


@pytest.mark.parametrize(
    ("request_", "closes"),
    [
        (post(b""), False),
        (post(b"", b"connection: close\r\n"), True),
        (post(b"", version=b"1.0"), True),
        (post(b"", b"connection: keep-alive\r\n", version=b"1.0"), False),
    ],
)
async def test_a_connection_stays_open_as_the_client_asks(
    client: Client, request_: bytes, *, closes: bool
) -> None:
    client.sends(request_)
    assert client.transport.closed == closes
    assert (b"connection: close\r\n" in client.transport.written) == closes


async def test_an_idle_connection_is_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    for _ in range(3):
        client.sends(post(b""))
        await time.advance(KEEP_ALIVE_SECONDS - 1)
        await turns()
        assert not client.transport.closed
    await time.advance(2)
    await turns()
    assert client.transport.closed
    assert client.statuses == [200] * 3


async def test_a_response_has_as_much_time_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    client = connect(Handler(at_once=False))
    time = LoopTime(monkeypatch)
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
    client: Client, monkeypatch: pytest.MonkeyPatch, *, takes: bool
) -> None:
    time = LoopTime(monkeypatch)
    client.transport.unsent = 100
    client.sends(post(b"", b"connection: close\r\n"))
    for _ in range(3):
        client.transport.unsent -= 10 * takes
        await time.advance(UNSENT_SECONDS + 1)
        await turns()
    assert client.transport.aborted == (not takes)


# Refusals


async def test_an_error_comes_after_the_responses_to_what_was_sent_before() -> None:
    client = connect(Handler(at_once=False))
    client.sends(post(b"") + b"garbage\r\n\r\n")
    await turns()
    assert client.statuses == []
    client.handler.handled[0].respond(200, [], b"")
    await turns()
    assert client.statuses == [200, 400]
    assert client.transport.ended


async def test_a_refused_connection_is_read_for_a_while_and_closed(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
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
    client: Client, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    time = LoopTime(monkeypatch)
    client.sends(*([begun] if begun else []))
    await time.advance(HEAD_SECONDS + 1)
    await turns()
    assert client.statuses == [408]


async def test_a_head_has_its_time_from_its_first_byte(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    client.sends(post(b"") + b"POST / HT")
    for piece in (b"T", b"P/1.1\r\n", b"x"):
        await time.advance(HEAD_SECONDS / 4)
        client.sends(piece)
        await turns()
    assert client.statuses == [200]
    await time.advance(HEAD_SECONDS / 4 + 1)
    await turns()
    assert client.statuses == [200, 408]


@pytest.mark.parametrize("size", [1, 1000, 10_000_000])
async def test_a_large_head_is_a_431_in_whatever_pieces_it_comes(client: Client, size: int) -> None:
    head = b"GET /app HTTP/1.1\r\nx: " + b"a" * LARGEST_HEAD + b"\r\n\r\n"
    client.sends(*(head[at : at + size] for at in range(0, len(head), size)))
    await turns()
    assert client.statuses == [431]
    assert client.called == []


async def test_a_slow_body_is_a_408_for_a_handler_too(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = LoopTime(monkeypatch)
    client.sends(post(b"x" * 100_000)[:-90_000], b"x" * 40_000)
    await time.advance(BODY_SECONDS + 1)
    await turns()
    assert client.statuses == []
    client.sends(b"x")
    await time.advance(BODY_SECONDS + 1)
    await turns()
    assert client.statuses == [408]
    assert client.handler.handled == []


@pytest.mark.parametrize(
    ("begin", "piece"),
    [(b"", b"1;" + b"x" * 1000 + b"\r\na\r\n"), (b"0\r\ntrailer: ", b"x" * 1000)],
    ids=["chunk-extensions", "trailer"],
)
async def test_what_is_no_body_in_a_body_has_a_bound(
    client: Client, begin: bytes, piece: bytes
) -> None:
    client.sends(GET[:-2] + b"transfer-encoding: chunked\r\n\r\n" + begin, *[piece] * 100)
    await turns()
    assert client.statuses == [400]


async def test_small_chunks_are_no_excess(client: Client) -> None:
    client.sends(GET[:-2] + b"transfer-encoding: chunked\r\n\r\n")
    for _ in range(20):
        client.sends(b"1\r\na\r\n" * 1000)
        await turns()
    client.sends(b"0\r\n\r\n")
    await turns()
    assert client.bodies == [b"5\r\n20000\r\n0\r\n\r\n"]


async def test_an_address_has_no_more_connections_than_its_limit() -> None:
    first = connect(Handler(), limit=1)
    second = connect(Handler(), context=first.context)
    assert second.statuses == [429]
    first.connection.connection_lost(None)
    third = connect(Handler(), context=first.context)
    third.sends(post(b"x"))
    assert third.statuses == [200]
    assert first.context.held == {"192.0.2.1": 1}


# Other protocols


@pytest.mark.parametrize("split", [False, True])
async def test_the_body_behind_a_wish_for_another_protocol_is_no_request(
    client: Client, *, split: bool
) -> None:
    evil = b"DELETE /evil HTTP/1.1\r\nhost: a\r\n\r\n"
    data = post(evil, b"connection: upgrade\r\nupgrade: h2c\r\n") + post(b"next")
    at = data.index(evil) if split else len(data)
    client.sends(data[:at], data[at:])
    await turns()
    assert [each.body for each in client.handler.handled] == [evil, b"next"]
    assert client.called == []


async def test_no_one_is_connected_elsewhere(client: Client) -> None:
    client.sends(b"CONNECT a:443 HTTP/1.1\r\nhost: a:443\r\n\r\n")
    assert client.statuses == [400]
