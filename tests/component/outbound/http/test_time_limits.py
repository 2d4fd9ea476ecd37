"""Every phase has its own limit and its own error; the total is hard."""

import pytest

from tests.component.outbound.http.exchange import SHORT, Exchange, plain_only
from tests.component.outbound.http.points import Begun
from tests.support.loop_time import LoopTime
from tests.support.providers.byte_script import End, Pause, Step
from tests.support.providers.raw_server import Peer, reply, say
from tests.support.upstream_faults import CHUNKED, COUNTED
from tests.support.waiting import take_turns
from tollhouse.outbound.http.port import (
    ConnectTimeout,
    HeadTimeout,
    IdleTimeout,
    PoolTimeout,
    TotalTimeout,
    UpstreamError,
)

DRIPS = 200


@pytest.mark.parametrize(
    ("begun", "limits", "error"),
    [
        ("place", {"pool": SHORT}, PoolTimeout),
        ("connect", {"connect": SHORT}, ConnectTimeout),
        ("handshake", {"connect": SHORT}, ConnectTimeout),
        ("head", {"head": SHORT}, HeadTimeout),
        ("body", {"idle": SHORT}, IdleTimeout),
    ],
    indirect=["begun"],
)
async def test_each_phase_has_its_own_limit(begun: Begun, error: type[UpstreamError]) -> None:
    with pytest.raises(UpstreamError) as caught:
        await begun.task
    assert type(caught.value) is error
    assert caught.value.sent is begun.sent
    await begun.gives_way()
    await begun.exchange.is_healthy()


DRIPPED_HEAD = [step for _ in range(DRIPS) for step in (Pause(0.01), b"x")]
INTERIM = [Pause(0.01), b"HTTP/1.1 102 Processing\r\n\r\n"] * DRIPS


@pytest.mark.parametrize(
    ("script", "limits", "error"),
    [
        ([b"HTTP/1.1 200 OK\r\nX: ", *DRIPPED_HEAD], {"head": 3 * SHORT}, HeadTimeout),
        (INTERIM, {"head": 3 * SHORT}, HeadTimeout),
        ([COUNTED], {"idle": SHORT}, IdleTimeout),
    ],
    ids=["a head that drips", "interim responses", "no body"],
)
async def test_what_does_not_come_in_time_is_the_timeout_of_its_phase(
    exchange: Exchange, script: list[Step], limits: dict[str, float], error: type[UpstreamError]
) -> None:
    exchange.server.behave = say(*script, End.HANG)
    assert (await exchange.fails(error, **limits)).sent


async def test_an_idle_timeout_closes_the_connection_by_itself(exchange: Exchange) -> None:
    exchange.server.behave = say(COUNTED, End.HANG)
    response = await exchange.open(idle=SHORT)
    with pytest.raises(IdleTimeout):
        await response.read(10)
    await exchange.peer.wait_closed()
    await response.close()


@plain_only
async def test_the_idle_limit_does_not_count_while_the_head_is_awaited(exchange: Exchange) -> None:
    exchange.server.behave = say(Pause(3 * SHORT), reply(b"late"))
    assert await exchange.read(idle=SHORT) == b"late"


@plain_only
async def test_the_idle_limit_starts_anew_with_each_piece(
    exchange: Exchange, loop_time: LoopTime
) -> None:
    async def drip(peer: Peer) -> None:
        await peer.play(CHUNKED)
        for _ in range(6):
            await peer.play(b"1\r\nx\r\n")
            await take_turns()
            await loop_time.advance(20)
            await take_turns()
        await peer.play(b"0\r\n\r\n")

    exchange.server.behave = drip
    assert await exchange.stream(head=600, total=600) == b"xxxxxx"


@plain_only
async def test_an_idle_limit_leaves_nothing_on_a_connection_that_is_used_again(
    exchange: Exchange,
) -> None:
    exchange.server.behave = say(reply(b"one"))
    assert await exchange.read(idle=0.5, total=0.5) == b"one"
    exchange.server.behave = say(Pause(0.7), reply(b"two"))
    assert await exchange.read() == b"two"
    assert len(exchange.server.peers) == 1


@pytest.mark.parametrize("limits", [{"total": SHORT}])
async def test_the_total_limit_holds_at_any_point(begun: Begun) -> None:
    with pytest.raises(TotalTimeout) as caught:
        await begun.task
    assert caught.value.sent is begun.sent
    await begun.gives_way()
    await begun.exchange.is_healthy()


async def test_the_total_limit_holds_for_a_body_that_drips(exchange: Exchange) -> None:
    dripped = 0

    async def drip(peer: Peer) -> None:
        nonlocal dripped
        await peer.play(CHUNKED)
        for dripped in range(DRIPS):  # noqa: B007 - read at the end
            await peer.play(Pause(0.01), b"1\r\nx\r\n")

    exchange.server.behave = drip
    await exchange.fails(TotalTimeout, total=3 * SHORT)
    assert 0 < dripped < DRIPS - 1


@plain_only
async def test_the_total_limit_closes_a_connection_that_nobody_reads(exchange: Exchange) -> None:
    exchange.server.behave = say(COUNTED, b"half", End.HANG)
    response = await exchange.open(total=0.5)
    await exchange.peer.wait_closed()
    with pytest.raises(TotalTimeout):
        await response.read(100)


@plain_only
async def test_a_body_that_came_in_time_may_be_read_later(
    exchange: Exchange, loop_time: LoopTime
) -> None:
    exchange.server.behave = say(COUNTED, b"0123456789")
    response = await exchange.open()
    await take_turns()
    await loop_time.advance(100)
    await take_turns()
    assert await response.read(100) == b"0123456789"
