"""Attacks that use up what there is."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

from tests.integration.vault.egress.attacks.table import attack, nothing, refused, without
from tollhouse.testing.raw_server import reply, say
from tollhouse.vault.egress import connection, heads
from tollhouse.vault.egress.messages import Limits
from tollhouse.vault.egress.pace import Pace
from tollhouse.vault.egress.session import Session

if TYPE_CHECKING:
    from tests.integration.vault.egress.house import Client, House

# -------------------------------------------------------------------------------- exhaustion


@attack("exhaustion", without(heads, "LARGEST_HEAD", 1 << 30))
async def a_head_of_more_than_64_kb(house: House) -> None:
    client = await house.tunnel()
    await client.say(b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * 9_000)
    status, _, _ = await asyncio.wait_for(client.response(), 2)
    assert status == 431


@attack("exhaustion", without(Session, "full", property(lambda _: False)))
async def more_connections_than_are_allowed(house: House) -> None:
    await house.again(limits=TWO)
    held = [await house.client() for _ in range(2)]
    for client in held:
        await client.say(b"GET")
    await asyncio.sleep(0.05)
    third = await house.client()
    await refused(third, b"GET / HTTP/1.1\r\n\r\n", "too_many_connections")


TWO = Limits(connections=2, idle_seconds=60, total_seconds=600, bytes_per_minute=1 << 40)
IDLE = Limits(connections=64, idle_seconds=0.3, total_seconds=600, bytes_per_minute=1 << 40)
TOTAL = Limits(connections=64, idle_seconds=60, total_seconds=0.3, bytes_per_minute=1 << 40)
SLOW = Limits(connections=64, idle_seconds=60, total_seconds=600, bytes_per_minute=600_000)


@attack("exhaustion", without(connection.ClientConnection, "touched", property(lambda _: 1e12)))
async def a_connection_that_says_nothing(house: House) -> None:
    await house.again(limits=IDLE)
    client = await house.tunnel()
    assert await asyncio.wait_for(client.hear(), 2) == b""


async def _trickle(client: Client) -> None:
    while True:
        await client.say(b"X")
        await asyncio.sleep(0.05)


@attack(
    "exhaustion",
    lambda patch: patch.setattr(
        connection.ClientConnection, "began", property(lambda _: 1e12, nothing), raising=False
    ),
)
async def a_connection_that_never_ends(house: House) -> None:
    await house.again(limits=TOTAL)
    client = await house.tunnel()
    trickling = asyncio.create_task(_trickle(client))
    try:
        with suppress(ConnectionResetError):  # it was dropped with bytes that nobody had read
            assert await asyncio.wait_for(client.hear(), 6) == b""
    finally:
        trickling.cancel()
        await asyncio.gather(trickling, return_exceptions=True)


@attack("exhaustion", without(Pace, "wait", lambda *_: 0.0))
async def more_bytes_than_a_minute_allows(house: House) -> None:
    await house.again(limits=SLOW)
    house.api.behave = say(reply(bytes(1_000_000)))
    client = await house.tunnel()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(client.ask(house.head()), 1.0)
