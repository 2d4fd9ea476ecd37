"""What `start` promises beyond what it shares with `send`.

The tests of `send` run on `start` too, see `callbacks`.
"""

import asyncio
import gc
import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from operator import methodcaller

import pytest

from tests.component.outbound.http.callbacks import RecordingReceiver, WholeReceiver
from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import SHORT, Exchange, collect, plain_only, post
from tests.support.loop_time import LoopTime
from tests.support.providers.byte_script import End, Pause
from tests.support.providers.raw_server import RawServer, echo, reply, say
from tests.support.upstream_faults import CHUNKED, COUNTED
from tests.support.waiting import take_turns, until
from tollhouse.outbound.dialing import AddressInfo
from tollhouse.outbound.http.port import (
    ConnectFailed,
    IdleTimeout,
    TotalTimeout,
    Upstream,
    UpstreamError,
    UpstreamExchange,
    UpstreamRequest,
)

pytestmark = pytest.mark.parametrize("interface", ["send"])  # the tests call `start` themselves


class ActingReceiver(RecordingReceiver):
    """Does something to its exchange when the call with that letter comes."""

    def __init__(self, when: str, act: Callable[[UpstreamExchange], None]) -> None:
        super().__init__()
        self._when = when
        self._act = act
        self.exchange: UpstreamExchange

    def _called(self, letter: str) -> None:
        super()._called(letter)
        if letter == self._when:
            self._act(self.exchange)


@pytest.fixture
def receiver() -> RecordingReceiver:
    return RecordingReceiver()


@plain_only
@pytest.mark.parametrize("connected", [True, False])
async def test_a_paused_exchange_leaves_the_body_with_the_upstream(
    exchange: Exchange, server: RawServer, *, connected: bool
) -> None:
    size = 40_000_000
    server.behave = say(reply(bytes(size)))
    receiver = ActingReceiver("h" if connected else "-", methodcaller("pause"))
    receiver.exchange = started = exchange.upstream.start(exchange.post(), receiver)
    if not connected:
        started.pause()
    await until(lambda: receiver.status)  # the head still comes
    await take_turns(2_000)
    assert exchange.peer.transport.get_write_buffer_size() > size // 2
    assert len(receiver.body) < size // 2
    started.resume()
    await until(lambda: receiver.over)
    assert len(receiver.body) == size
    exchange.server.behave = echo
    await exchange.is_healthy()


# -------------------------------------------------------------------------- how it is called


async def test_an_error_that_was_cancelled_in_time_is_told_to_nobody(
    upstream: Upstream, receiver: RecordingReceiver
) -> None:
    upstream.start(post("ftp://127.0.0.1/"), receiver).cancel()
    await take_turns()
    assert not receiver.calls


@plain_only
async def test_the_next_request_may_start_when_the_last_one_ends(exchange: Exchange) -> None:
    """The connection rests before the receiver hears of the end."""
    await exchange.is_healthy(1)
    last = RecordingReceiver()

    def go_on(_: UpstreamExchange) -> None:
        exchange.upstream.start(exchange.post(b"next"), last)

    first = ActingReceiver("e", go_on)
    first.exchange = exchange.upstream.start(exchange.post(), first)
    await until(lambda: last.over)
    assert last.body == b"next"
    assert len(exchange.server.peers) == 1


@pytest.mark.parametrize("body", [b"", b"all of it"])
async def test_a_response_that_is_read_at_once_is_given_at_once(
    exchange: Exchange, body: bytes
) -> None:
    exchange.server.behave = say(reply(body))
    receiver = WholeReceiver()
    exchange.upstream.start(exchange.post(), receiver, receiver.on_whole)
    await until(lambda: receiver.over)
    assert (receiver.wholes, receiver.status, receiver.body) == (1, 200, body)
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


async def test_a_response_of_which_a_part_is_missing_is_not_given_at_once(
    exchange: Exchange,
) -> None:
    exchange.server.behave = say(CHUNKED, b"3\r\none\r\n", Pause(SHORT), b"0\r\n\r\n")
    receiver = WholeReceiver()
    exchange.upstream.start(exchange.post(), receiver, receiver.on_whole)
    await until(lambda: receiver.over)
    assert (receiver.wholes, receiver.body) == (0, b"one")


async def test_an_exchange_has_ended_when_its_response_is_given_at_once(
    exchange: Exchange,
) -> None:
    await exchange.is_healthy(1)
    last = RecordingReceiver()

    class Next(WholeReceiver):
        def on_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            super().on_whole(status, headers, body)
            first.cancel()
            exchange.upstream.start(exchange.post(b"next"), last)

    receiver = Next()
    first = exchange.upstream.start(exchange.post(), receiver, receiver.on_whole)
    await until(lambda: last.over)
    assert last.body == b"next"
    assert len(exchange.server.peers) == 1


async def test_a_resolver_that_breaks_is_an_error_and_not_silence(
    make_upstream: MakeUpstream, server: RawServer, receiver: RecordingReceiver
) -> None:
    async def resolve(host: str, port: int) -> list[AddressInfo]:
        raise LookupError(host, port)

    reported: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: reported.append(context["exception"])
    )
    make_upstream(resolve=resolve).start(post(server.url), receiver)
    await until(lambda: receiver.over)
    assert isinstance(receiver.error, ConnectFailed)
    await until(lambda: gc.collect() and reported)
    assert isinstance(reported[0], LookupError)


# ------------------------------------------------------------------------------ cancelling


@pytest.mark.parametrize("when", ["h", "b"])
async def test_a_receiver_may_cancel_in_any_call(exchange: Exchange, when: str) -> None:
    exchange.server.behave = say(reply(b"all of it"))
    receiver = ActingReceiver(when, methodcaller("cancel"))
    receiver.exchange = exchange.upstream.start(exchange.post(), receiver)
    await until(lambda: receiver.calls.endswith(when))
    await exchange.peer.wait_closed()
    assert receiver.calls == "hbe"[: "hbe".index(when) + 1]
    await exchange.is_healthy()


async def test_cancelling_in_any_turn_of_the_loop_leaves_no_place_taken(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=2), server)
    for turns in range(40):
        server.behave = say(CHUNKED, b"3\r\none\r\n", Pause(0), b"0\r\n\r\n")
        receivers = [RecordingReceiver() for _ in range(4)]
        started = [exchange.upstream.start(exchange.post(), each) for each in receivers]
        for _ in range(turns):
            await asyncio.sleep(0)
        for each in started:
            each.cancel()
        calls = [each.calls for each in receivers]
        await exchange.is_healthy(4, connections=2)
        assert [each.calls for each in receivers] == calls
        assert all(each.over or "e" not in each.calls for each in receivers)


async def test_an_exchange_that_has_ended_has_no_power_over_the_next_one(
    exchange: Exchange, receiver: RecordingReceiver
) -> None:
    ended = exchange.upstream.start(exchange.post(b"one"), receiver)
    await until(lambda: receiver.over)
    following = RecordingReceiver()
    exchange.server.behave = say(Pause(SHORT), reply(b"two"))
    exchange.upstream.start(exchange.post(), following)
    ended.pause()
    ended.cancel()
    ended.resume()
    await until(lambda: following.over)
    assert following.body == b"two"
    assert len(exchange.server.peers) == 1


# ---------------------------------------------------------------------------------- pausing


@pytest.mark.parametrize("when", ["h", "b"])
async def test_the_idle_limit_rests_while_paused_and_starts_anew_afterwards(
    exchange: Exchange, when: str, loop_time: LoopTime
) -> None:
    exchange.server.behave = say(COUNTED, b"half", End.HANG)
    receiver = ActingReceiver(when, methodcaller("pause"))
    receiver.exchange = exchange.upstream.start(exchange.post(idle=SHORT), receiver)
    await until(lambda: when in receiver.calls)
    await loop_time.advance(3 * SHORT)
    await take_turns()
    assert not receiver.over
    receiver.exchange.resume()
    await until(lambda: receiver.over)
    assert isinstance(receiver.error, IdleTimeout)
    await exchange.is_healthy()


@plain_only
async def test_the_total_limit_holds_while_paused(exchange: Exchange) -> None:
    exchange.server.behave = say(COUNTED, b"half", End.HANG)
    receiver = ActingReceiver("h", methodcaller("pause"))
    receiver.exchange = exchange.upstream.start(exchange.post(total=0.5), receiver)
    await until(lambda: receiver.over)
    assert isinstance(receiver.error, TotalTimeout)


async def test_a_connection_that_was_paused_at_the_end_is_used_again(exchange: Exchange) -> None:
    exchange.server.behave = say(reply(b"one"))
    receiver = ActingReceiver("b", methodcaller("pause"))
    receiver.exchange = exchange.upstream.start(exchange.post(), receiver)
    await until(lambda: receiver.over)
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


async def test_pausing_and_resuming_at_every_call_changes_nothing(exchange: Exchange) -> None:
    chunks = [step for n in range(9) for step in (b"1\r\n%d\r\n" % n, Pause(0.001))]
    exchange.server.behave = say(CHUNKED, *chunks, b"0\r\n\r\n")

    def turn(started: UpstreamExchange) -> None:
        started.pause()
        asyncio.get_running_loop().call_soon(started.resume)

    receiver = ActingReceiver("b", turn)
    receiver.exchange = exchange.upstream.start(exchange.post(), receiver)
    await until(lambda: receiver.over)
    assert (receiver.body, receiver.error) == (b"012345678", None)
    await exchange.is_healthy()
    assert len(exchange.server.peers) == 1


# ------------------------------------------------------------------- the same on both interfaces

HEADS = (
    b"HTTP/1.1 200 OK\r\nX-One:  1 \r\nx-ONE: 2\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 404 Not Found\r\n",
    b"HTTP/1.0 200 OK\r\n",
    b"HTTP/1.1 204 No Content\r\nX: caf\xe9\r\n",
    b"HTTP/1.1 200 OK\r\nConnection: close\r\n",
)
BODIES = (
    b"Content-Length: 5\r\n\r\nhello",
    b"Content-Length: 5\r\n\r\nhel",
    b"Content-Length: 0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\nxyz",
    b"Transfer-Encoding: gzip\r\n\r\nhello",
    b"\r\nuntil the end",
)
BEHIND = (b"", b"", b"HTTP/1.1 200 OK\r\n", b"\x00")


@plain_only
@pytest.mark.parametrize("seed", range(20))
async def test_any_response_is_the_same_on_both_wherever_it_is_split(
    make_upstream: MakeUpstream, server: RawServer, seed: int
) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        data = rng.choice(HEADS) + rng.choice(BODIES) + rng.choice(BEHIND)
        cuts = sorted(rng.sample(range(1, len(data)), rng.randrange(6)))
        pieces = [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]
        server.behave = say(*[s for p in pieces for s in (p, Pause(0.001))], End.EOF)
        request = post(server.url)
        received = await heard(make_upstream(), request)
        assert received == await said(make_upstream(), request), data
        assert received == await heard(make_upstream(), request, at_once=True), data


async def heard(
    upstream: Upstream, request: UpstreamRequest, *, at_once: bool = False
) -> list[object]:
    receiver = WholeReceiver()
    upstream.start(request, receiver, receiver.on_whole if at_once else None)
    await until(lambda: receiver.over)
    return [receiver.status, dict(receiver.headers), receiver.body, repr(receiver.error)]


async def said(upstream: Upstream, request: UpstreamRequest) -> list[object]:
    got: list[bytes] = []
    try:
        response = await upstream.send(request)
    except UpstreamError as error:
        return [0, {}, b"", repr(error)]
    failed: UpstreamError | None = None
    try:
        await collect(response, got)
    except UpstreamError as error:
        failed = error
    return [response.status, dict(response.headers), b"".join(got), repr(failed)]
