"""What the contract asks for and aiohttp does not do, and what cannot be repaired from outside.

Each is asserted as it is: when aiohttp learns it, the test fails, and the line goes.

    the contract                            aiohttp
    --------------------------------------  -----------------------------------------------------
    over TLS a close-delimited body needs   takes a body that was cut for complete: asyncio does
    close_notify                            not pass on how TLS ended
    what arrived before a reset is          throws away the pieces that nobody has read yet
    delivered
    bytes without a request cost the        costs the reply, too, if it is garbage in its packet
    connection
    a cancelled request leaves nothing      its name lookup runs on in a thread to its end
"""

import asyncio
import socket
import threading

import pytest

from tests.integration.inference.upstream.exchange import Exchange, plain_only, until
from tests.integration.inference.upstream.faults import CHUNKED, OPEN_ENDED
from tollhouse.inference.upstream.aiohttp_adapter import AiohttpUpstream
from tollhouse.inference.upstream.errors import ConnectionLost, ProtocolViolation
from tollhouse.inference.upstream.port import Upstream, UpstreamRequest
from tollhouse.testing.byte_script import End, Pause
from tollhouse.testing.raw_server import reply, say

pytestmark = pytest.mark.parametrize("adapter", [AiohttpUpstream])


@pytest.mark.parametrize("transport", ["tls"])
async def test_an_open_ended_body_that_was_cut_on_tls_is_taken_as_complete(
    exchange: Exchange,
) -> None:
    exchange.server.behave = say(OPEN_ENDED, b"half", Pause(0.05), End.CUT)
    assert await exchange.read() == b"half"


async def test_pieces_that_nobody_read_are_lost_in_a_reset(exchange: Exchange) -> None:
    exchange.server.behave = say(CHUNKED, b"3\r\none\r\n", Pause(0.05), End.RST)
    response = await exchange.open()
    await exchange.peer.wait_closed()
    await asyncio.sleep(0.05)
    with pytest.raises(ConnectionLost):
        await response.read(100)


async def test_garbage_in_the_packet_of_a_reply_costs_the_reply(exchange: Exchange) -> None:
    exchange.server.behave = say(reply(b"one") + b"\x00 garbage", End.HANG)
    await exchange.fails(ProtocolViolation)


@plain_only
@pytest.mark.asyncio(loop_factories=["asyncio"])  # uvloop looks names up by itself
async def test_a_lookup_outlives_its_request(
    upstream: Upstream, transport: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer, answered = threading.Event(), threading.Event(), threading.Event()

    def look_up(*_: object, **__: object) -> None:
        asked.set()
        answer.wait(10)
        answered.set()
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    request = UpstreamRequest("POST", f"http://{transport}.invalid/", (), b"")
    task = asyncio.create_task(upstream.send(request))
    await until(asked.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not answered.is_set()
    answer.set()
    await until(answered.is_set)
