"""Attacks that exhaust resources."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.component.vault.egress.attacks.table import (
    assert_refused,
    attack,
    check_nothing,
    without,
)
from tests.support.providers.raw_server import reply, say
from tests.support.waiting import take_turns
from tollhouse.vault.egress import proxy, request_head
from tollhouse.vault.egress.messages import SessionLimits
from tollhouse.vault.egress.proxy import ProxySession
from tollhouse.vault.egress.streams import BandwidthLimiter

if TYPE_CHECKING:
    from tests.component.vault.egress.egress_fixture import Client, EgressFixture

# -------------------------------------------------------------------------------- exhaustion


@attack("exhaustion", without(request_head, "LARGEST_HEAD", 1 << 30))
async def a_head_of_more_than_64_kb(egress: EgressFixture) -> None:
    client = await egress.tunnel()
    await client.send(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 9_000)
    status, _, _ = await asyncio.wait_for(client.response(), 2)
    assert status == 431


@attack("exhaustion", without(ProxySession, "full", property(lambda _: False)))
async def more_connections_than_are_allowed(egress: EgressFixture) -> None:
    await egress.restart(limits=TWO)
    held = [await egress.client() for _ in range(2)]
    for client in held:
        await client.send(b"GET")
    await take_turns()
    third = await egress.client()
    await assert_refused(third, b"GET / HTTP/1.1\r\n\r\n", "too_many_connections")


TWO = SessionLimits(connections=2, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
IDLE = SessionLimits(connections=64, idle_seconds=0.3, total_seconds=600, bytes_per_minute=1 << 40)
TOTAL = SessionLimits(connections=64, idle_seconds=60, total_seconds=0.3, bytes_per_minute=1 << 40)
SLOW = SessionLimits(connections=64, idle_seconds=60, total_seconds=600, bytes_per_minute=600_000)


@attack("exhaustion", without(proxy.ClientConnection, "touched", property(lambda _: 1e12)))
async def a_connection_that_says_nothing(egress: EgressFixture) -> None:
    await egress.restart(limits=IDLE)
    client = await egress.tunnel()
    assert await asyncio.wait_for(client.receive(), 2) == b""


async def _trickle(client: Client) -> None:
    while True:
        await client.send(b"X")
        await asyncio.sleep(0.05)


@attack(
    "exhaustion",
    lambda patch: patch.setattr(
        proxy.ClientConnection, "began", property(lambda _: 1e12, check_nothing), raising=False
    ),
)
async def a_connection_that_never_ends(egress: EgressFixture) -> None:
    await egress.restart(limits=TOTAL)
    client = await egress.tunnel()
    trickling = asyncio.create_task(_trickle(client))
    try:
        with suppress(ConnectionResetError):  # it was dropped with bytes that nobody had read
            assert await asyncio.wait_for(client.receive(), 3) == b""
    finally:
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


@attack("exhaustion", without(BandwidthLimiter, "wait", lambda *_: 0.0))
async def more_bytes_than_a_minute_allows(egress: EgressFixture) -> None:
    await egress.restart(limits=SLOW)
    egress.api.behave = say(reply(bytes(1_000_000)))
    client = await egress.tunnel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.request(egress.head()), 1.0)
