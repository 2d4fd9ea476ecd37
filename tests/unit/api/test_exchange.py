"""How a response is framed, by what the client speaks and what the headers say."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tollhouse.api.exchange import Exchange

DATE = b"date: now\r\n"
PLAIN = (b"content-type", b"text/plain")


class Recorder:
    """A transport that keeps each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)


@dataclass
class ChannelOf:
    """A connection that ends nothing by itself."""

    transport: Any = field(default_factory=Recorder)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    writable: bool = True
    ended: list[Exchange] = field(default_factory=list)
    closed: bool = False

    def date_line(self) -> bytes:
        return DATE

    def end_exchange(self, exchange: Exchange) -> None:
        self.ended.append(exchange)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
async def channel() -> ChannelOf:
    return ChannelOf()


def made(
    channel: ChannelOf, method: str = "POST", version: str = "1.1", *, keep_alive: bool = True
) -> Exchange:
    exchange = Exchange(cast("Any", channel))
    exchange.method, exchange.http_version, exchange.keep_alive = method, version, keep_alive
    return exchange


async def test_a_whole_response_is_one_write(channel: ChannelOf) -> None:
    exchange = made(channel)
    exchange.respond(200, [PLAIN], b"hello")
    assert channel.transport.writes == [
        b"HTTP/1.1 200 OK\r\n"
        + DATE
        + b"content-type: text/plain\r\ncontent-length: 5\r\n\r\nhello"
    ]
    assert exchange.began
    assert channel.ended == [exchange]


async def test_a_stream_is_chunked_and_its_head_leaves_with_the_first_piece(
    channel: ChannelOf,
) -> None:
    exchange = made(channel)
    exchange.begin(200, [PLAIN])
    assert channel.transport.writes == []
    assert exchange.write(b"one")
    exchange.finish(b"two")
    first, last = channel.transport.writes
    assert first.endswith(b"transfer-encoding: chunked\r\n\r\n3\r\none\r\n")
    assert last == b"3\r\ntwo\r\n0\r\n\r\n"
    assert channel.ended == [exchange]


async def test_a_head_that_nothing_follows_leaves_in_the_next_turn(channel: ChannelOf) -> None:
    exchange = made(channel)
    exchange.begin(200, [])
    await asyncio.sleep(0)
    assert len(channel.transport.writes) == 1
    exchange.write(b"late")
    assert channel.transport.writes[1:] == [b"4\r\nlate\r\n"]


async def test_a_stream_of_a_declared_length_has_no_chunks(channel: ChannelOf) -> None:
    exchange = made(channel)
    exchange.begin(200, [(b"content-length", b"6")])
    exchange.write(b"one")
    exchange.finish(b"two")
    assert b"".join(channel.transport.writes).endswith(b"content-length: 6\r\n\r\nonetwo")


@pytest.mark.parametrize("pieces", [(b"ab", b""), (b"ab", b"cdef")])
async def test_a_body_of_another_length_than_declared_is_an_error(
    channel: ChannelOf, pieces: tuple[bytes, bytes]
) -> None:
    exchange = made(channel)
    exchange.begin(200, [(b"content-length", b"3")])
    exchange.write(pieces[0])
    with pytest.raises(ValueError, match="content-length"):
        exchange.finish(pieces[1])
    assert channel.ended == []


@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 204), ("POST", 304)])
async def test_a_response_without_content_has_a_head_alone(
    channel: ChannelOf, method: str, status: int
) -> None:
    for answer in (respond, stream):
        channel.transport.writes.clear()
        answer(made(channel, method), status)
        sent = b"".join(channel.transport.writes)
        assert sent.endswith(b"\r\n\r\n")
        assert sent.count(b"\r\n\r\n") == 1
        assert b"chunked" not in sent


def respond(exchange: Exchange, status: int) -> None:
    exchange.respond(status, [], b"body")


def stream(exchange: Exchange, status: int) -> None:
    exchange.begin(status, [])
    exchange.write(b"bo")
    exchange.finish(b"dy")


async def test_a_client_of_http_1_0_gets_no_chunks_and_the_end_of_the_connection(
    channel: ChannelOf,
) -> None:
    exchange = made(channel, version="1.0")
    stream(exchange, 200)
    sent = b"".join(channel.transport.writes)
    assert sent.endswith(b"connection: close\r\n\r\nbody")
    assert not exchange.keep_alive


async def test_a_client_of_http_1_0_that_asks_for_it_keeps_the_connection(
    channel: ChannelOf,
) -> None:
    exchange = made(channel, version="1.0")
    exchange.respond(200, [], b"")
    assert b"connection: keep-alive\r\n" in channel.transport.writes[0]


async def test_who_keeps_no_connection_is_told_so(channel: ChannelOf) -> None:
    made(channel, keep_alive=False).respond(200, [], b"")
    assert b"connection: close\r\n" in channel.transport.writes[0]


@pytest.mark.parametrize("value", [b"a\r\nb: c", b"a\nb", b"a\rb", b"a\0b"])
async def test_a_header_that_would_be_read_as_another_is_not_sent(
    channel: ChannelOf, value: bytes
) -> None:
    exchange = made(channel)
    with pytest.raises(ValueError, match="header"):
        exchange.respond(200, [(b"x", value)], b"")
    with pytest.raises(ValueError, match="header"):
        exchange.begin(200, [(b"x", value)])
    assert not exchange.began
    assert channel.transport.writes == []


async def test_who_is_behind_is_told_by_write(channel: ChannelOf) -> None:
    exchange = made(channel)
    exchange.begin(200, [])
    channel.writable = False
    assert not exchange.write(b"x")


async def test_after_a_hang_up_all_goes_nowhere(channel: ChannelOf) -> None:
    exchange, heard = made(channel), list[str]()
    exchange.begin(200, [])
    exchange.on_gone = lambda: heard.append("gone")
    exchange.leave()
    exchange.leave()
    assert not exchange.write(b"x")
    exchange.finish(b"y")
    exchange.respond(200, [], b"z")
    await asyncio.sleep(0)
    assert heard == ["gone"]
    assert channel.transport.writes == []
    assert channel.ended == []


async def test_an_aborted_response_closes_the_connection_behind_its_head(
    channel: ChannelOf,
) -> None:
    exchange = made(channel)
    exchange.begin(200, [])
    exchange.abort()
    assert len(channel.transport.writes) == 1
    assert channel.closed
    assert channel.ended == []
