"""Each fault many times over, then 100 healthy requests; memory must not grow with the dose.

`SOAK_DOSE` is a number of repetitions, or `small` (20) or `full` (2,000).
"""

import asyncio
import gc
import os
import time
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from tests.component.outbound.http.conftest import MakeUpstream
from tests.component.outbound.http.exchange import Exchange
from tests.support.providers.byte_script import Pause
from tests.support.providers.raw_server import Peer, RawServer, echo, reply, say
from tests.support.upstream_faults import CHUNKED, FAULTS, Fault
from tests.support.waiting import take_turns

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

_DOSES = {"small": "20", "full": "2000"}
_GIVEN = os.environ.get("SOAK_DOSE", "small")
DOSE = int(_DOSES.get(_GIVEN, _GIVEN))
HEALTHY = 100
WARM_UP = 20
KEPT_BYTES = 200_000
ATTEMPTS = 3
LINGERING_SECONDS = 40.0


@pytest.mark.parametrize("fault", FAULTS, ids=str)
async def test_fault_many_times(exchange: Exchange, fault: Fault) -> None:
    async def meet(times: int, healthy: int) -> None:
        for _ in range(times):
            exchange.server.behave = fault.behave
            with pytest.raises(fault.error):
                await exchange.read()
            exchange.server.peers.clear()
        await exchange.is_healthy(healthy)

    tracemalloc.start()
    try:
        await meet(WARM_UP, WARM_UP)
        await keeps_nothing_of(lambda: meet(DOSE, HEALTHY))
    finally:
        tracemalloc.stop()


async def keeps_nothing_of(dose: Callable[[], Awaitable[None]]) -> None:
    """Check that memory does not grow with the dose: of the same dose again and again it must.

    What is kept once (a cache that fills, a record that somebody writes) is no leak.
    """
    kept: list[int] = []
    for _ in range(ATTEMPTS):
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        await dose()
        kept.append(await growth_since(before))
        if kept[-1] < KEPT_BYTES:
            return
    largest = tracemalloc.take_snapshot().statistics("lineno")[:5]
    pytest.fail(f"bytes kept by each of {ATTEMPTS} doses: {kept}; most of it from {largest}")


async def growth_since(before: int) -> int:
    """Return the bytes that stay; asyncio's own TLS gives up on a shutdown after 30 s."""
    deadline = time.monotonic() + LINGERING_SECONDS
    while True:
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - before
        if growth < KEPT_BYTES or time.monotonic() > deadline:
            return growth
        await asyncio.sleep(0.1)


async def test_cancelled_at_every_turn_many_times(
    make_upstream: MakeUpstream, server: RawServer
) -> None:
    exchange = Exchange(make_upstream(connections_per_host=3), server)
    for number in range(DOSE):
        server.behave = say(CHUNKED, b"3\r\none\r\n", Pause(0), b"0\r\n\r\n")
        tasks = [asyncio.create_task(exchange.stream()) for _ in range(6)]
        for _ in range(number % 50):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await exchange.is_healthy(2, connections=3)
    await exchange.is_healthy(HEALTHY, connections=3)


async def test_replies_without_a_request_many_times(exchange: Exchange) -> None:
    said = asyncio.Event()

    async def push(peer: Peer) -> None:
        await peer.body()
        await peer.play(reply(b"mine"), Pause(0.001), reply(b"evil"))
        said.set()

    exchange.server.behave = push
    for _ in range(DOSE):
        assert await exchange.read() == b"mine"
        # One that is sent after the next request left could not be told from its reply.
        await said.wait()
        await take_turns()
        said.clear()
    exchange.server.behave = echo
    await exchange.is_healthy(HEALTHY)
