"""Whatever point a cancellation comes at: the upstream sees the close, and all is well again."""

import asyncio
import contextlib
from collections.abc import Coroutine

import pytest

from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import Exchange, at_once, open_sockets, plain_only, post
from tests.component.outbound.http.points import Begun
from tests.support.providers.byte_script import End, Pause
from tests.support.providers.raw_server import Peer, RawServer, echo, interrupt, say
from tests.support.upstream_faults import CHUNKED, COUNTED
from tests.support.waiting import take_turns, until
from tollhouse.outbound.http.port import Upstream

TURNS = 40
"""More turns of the loop than an exchange takes."""


async def cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def start(exchanging: Coroutine[object, object, object]) -> asyncio.Task[object]:
    return asyncio.get_running_loop().create_task(exchanging)


async def test_at_any_point_closes_the_connection(begun: Begun) -> None:
    await until(begun.is_there)
    async with at_once():
        await cancel(begun.task)
        await begun.closed()
    await begun.gives_way()
    await begun.exchange.is_healthy()


async def test_in_an_upload_that_nobody_reads(exchange: Exchange) -> None:
    async def stop_reading(peer: Peer) -> None:
        peer.transport.pause_reading()
        await peer.play(Pause(0.1))
        peer.transport.resume_reading()
        await peer.play(End.HANG)

    exchange.server.behave = stop_reading
    task = start(exchange.read(b"x" * 20_000_000))
    await until(lambda: exchange.server.requests)
    async with at_once():
        await cancel(task)
        await exchange.peer.wait_closed()
    assert exchange.peer.received < 20_000_000
    await exchange.is_healthy()


@plain_only
async def test_in_an_upload_leaves_no_socket_though_the_peer_never_reads(
    upstream: Upstream, server: RawServer
) -> None:
    async def never_read(peer: Peer) -> None:
        peer.transport.pause_reading()
        await peer.play(End.HANG)

    server.behave = never_read
    before = open_sockets()
    task = start(upstream.send(post(server.url, b"x" * 20_000_000)))
    await until(lambda: server.requests)
    assert open_sockets() == before + 2
    await cancel(task)
    await until(lambda: open_sockets() == before + 1)  # the server still holds its own end


@plain_only
async def test_while_waiting_for_a_place_leaves_the_place_to_others(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=1), server)
    server.behave = say(COUNTED, End.HANG)
    holder = await exchange.open()
    waiting = [start(exchange.read(b"%d" % number)) for number in range(3)]
    await asyncio.sleep(0)
    await cancel(waiting[0])
    exchange.server.behave = echo
    await holder.close()
    assert await waiting[1] == b"1"
    assert await waiting[2] == b"2"


@plain_only
async def test_in_the_turn_in_which_a_place_comes_hands_the_place_on(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=1), server)
    server.behave = say(COUNTED, End.HANG)
    holder = await exchange.open()
    first, second = (start(exchange.read(body)) for body in (b"first", b"second"))
    await take_turns()
    exchange.server.behave = echo
    await holder.close()  # gives the place to the first in line, which does not know yet
    await cancel(first)
    assert await second == b"second"


async def test_in_any_turn_of_the_loop_leaves_no_place_taken(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=2), server)
    for turns in range(TURNS):
        server.behave = say(CHUNKED, b"3\r\none\r\n", Pause(0), b"0\r\n\r\n")
        tasks = [start(exchange.stream()) for _ in range(4)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        for task in tasks:
            with contextlib.suppress(asyncio.CancelledError):
                assert await task == b"one"
        await exchange.is_healthy(4, connections=2)


async def test_closing_a_response_that_has_ended_keeps_its_connection(exchange: Exchange) -> None:
    exchange.server.behave = say(COUNTED, b"0123456789")
    response = await exchange.open()
    assert await response.read(10) == b"0123456789"
    await response.close()
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


async def test_closing_a_response_that_has_not_ended_closes_its_connection_once(
    exchange: Exchange,
) -> None:
    exchange.server.behave = interrupt(COUNTED, End.HANG)
    response = await exchange.open()
    async with at_once():
        await response.close()
        await exchange.peer.wait_closed()
    await response.close()
    await exchange.is_healthy()
