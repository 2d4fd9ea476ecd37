"""Which connections are used again, how many there are, and who is next."""

import asyncio

import pytest

from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import Exchange, plain_only
from tests.support.loop_time import LoopTime
from tests.support.providers.byte_script import End, Pause
from tests.support.providers.raw_server import Peer, RawServer, echo, reply, say
from tests.support.upstream_faults import COUNTED
from tests.support.waiting import take_turns, until
from tollhouse.outbound.http.port import ConnectionLost

UNASKED = {
    "reply": reply(b"evil"),
    "two-replies": reply(b"evil") * 2,
    "timeout-notice": reply(b"", "408 Request Timeout", b"Connection: close\r\n"),
    "half-a-head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "one-byte": b"x",
    "empty-line": b"\r\n",
    "garbage": b"\x00\xff garbage",
}


@plain_only
async def test_a_host_has_at_most_so_many_connections(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=3), server)
    most = 0

    async def count(peer: Peer) -> None:
        nonlocal most
        most = max(most, len(server.open_peers))
        await peer.play(Pause(0.001))
        await echo(peer)

    server.behave = count
    bodies = [b"%d" % number for number in range(30)]
    assert await asyncio.gather(*map(exchange.read, bodies)) == bodies
    assert most == 3
    assert len(server.peers) == 3


@plain_only
async def test_who_waits_longest_is_next(make_upstream: MakeUpstream, server: RawServer) -> None:
    exchange = Exchange(make_upstream(connections_per_host=1), server)
    served: list[bytes] = []

    async def note(peer: Peer) -> None:
        served.append(body := await peer.body())
        await peer.play(Pause(0.002), reply(body))

    server.behave = note
    bodies = [b"%d" % number for number in range(10)]
    await asyncio.gather(*map(exchange.read, bodies))
    assert served == bodies


@plain_only
async def test_who_comes_later_does_not_overtake_who_waits(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=1), server)
    server.behave = say(COUNTED, End.HANG)
    holder = await exchange.open()
    served: list[bytes] = []

    async def note(peer: Peer) -> None:
        served.append(body := await peer.body())
        await peer.play(reply(body))

    server.behave = note
    waiting = asyncio.create_task(exchange.read(b"waiting"))
    await take_turns()
    await holder.close()  # frees the place, and in the same turn:
    await exchange.read(b"later")
    await waiting
    assert served == [b"waiting", b"later"]


@plain_only
async def test_a_host_whose_places_are_taken_does_not_hold_up_another(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    upstream = make_upstream(connections_per_host=1)
    busy = Exchange(upstream, server)
    server.behave = say(COUNTED, End.HANG)
    holder = await busy.open()
    waiting = asyncio.create_task(busy.read())
    async with RawServer() as other:
        await Exchange(upstream, other).is_healthy()
        assert not waiting.done()
        server.behave = echo
        await holder.close()
        await waiting


@pytest.mark.parametrize(
    "last",
    [
        reply(b"bye", fields=b"Connection: close\r\n"),
        b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nbye",
    ],
)
async def test_a_connection_that_is_to_be_closed_is_not_used_again(
    exchange: Exchange, last: bytes
) -> None:
    exchange.server.behave = say(last, End.HANG)
    assert await exchange.read() == b"bye"
    await exchange.peer.wait_closed()
    await exchange.is_healthy()


async def test_a_connection_that_the_upstream_closed_is_not_used_again(exchange: Exchange) -> None:
    exchange.server.behave = say(reply(b"one"), Pause(0.01), End.EOF)
    assert await exchange.read() == b"one"
    await exchange.peer.wait_closed()
    await take_turns()
    await exchange.is_healthy()


@plain_only
async def test_an_idle_connection_is_closed(make_upstream: MakeUpstream, server: RawServer) -> None:
    exchange = Exchange(make_upstream(idle_connection_seconds=0.1), server)
    await exchange.is_healthy()
    await until(lambda: not server.open_peers)


@plain_only
async def test_a_connection_that_idled_too_long_is_not_used_again(
    make_upstream: MakeUpstream, server: RawServer, loop_time: LoopTime
) -> None:
    exchange = Exchange(make_upstream(idle_connection_seconds=60), server)
    await exchange.read()
    await loop_time.advance(61)
    await exchange.read()
    assert len(server.peers) == 2


@pytest.mark.parametrize("unasked", UNASKED.values(), ids=UNASKED)
async def test_a_connection_that_receives_bytes_without_a_request_is_not_used_again(
    exchange: Exchange, unasked: bytes
) -> None:
    """aio-libs/aiohttp#13656: without the repair, the next request gets that reply."""
    said = asyncio.Event()

    async def push(peer: Peer) -> None:
        await peer.play(reply(await peer.body()), Pause(0.01), unasked)
        said.set()

    exchange.server.behave = push
    await exchange.read()
    await said.wait()
    await take_turns()
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 2


@plain_only
async def test_a_cut_connection_frees_its_place(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=1), server)
    for ending in (End.EOF, End.RST):
        server.behave = say(COUNTED, b"half", Pause(0.01), ending)
        response = await exchange.open()
        waiting = asyncio.create_task(exchange.read(b"next"))
        await asyncio.sleep(0)
        server.behave = echo
        with pytest.raises(ConnectionLost):
            await response.read(10)
        assert await waiting == b"next"
