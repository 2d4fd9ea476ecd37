"""Clients and hosts leave in any state: the egress proxy keeps no socket, task or descriptor."""

import asyncio
import gc
import random
import ssl
import time
import warnings
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.component.vault.egress.egress_fixture import API, OTHER, VALUE, Client, EgressFixture
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import Peer, interrupt
from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault.egress.messages import SessionLimits

TOKEN = "Authorization: Bearer {{secret:token}}"
IDLE_SECONDS = 0.5
LIMITS = SessionLimits(256, IDLE_SECONDS, 600, 1 << 40)
UPGRADE = ("Connection: Upgrade", "Upgrade: websocket")
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n" + VALUE.encode()[:9]
TOGETHER = 50
"""Clients at once."""


@pytest.fixture(autouse=True)
def nobody_elses_garbage() -> Iterator[None]:
    """Collect the garbage of earlier tests, and freeze what they still hold.

    What of that becomes garbage meanwhile is no leak of ours, but would be told as one.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
async def impatient(egress: EgressFixture) -> EgressFixture:
    await egress.restart(limits=LIMITS)
    return egress


# States: how far a connection has come when somebody goes away.


async def in_the_first_head(egress: EgressFixture) -> Client:
    client = await egress.client()
    await client.send(b"CONNECT api.example:443 HTTP/1.1\r\nHo")
    return client


async def in_the_handshake(egress: EgressFixture) -> Client:
    client = await egress.client()
    await client.connect(API, egress.port_of(API))
    layer = TlsLayer(egress.trust, API)
    layer.handshake(b"")
    await client.send(layer.outgoing()[:100])
    return client


async def in_an_unread_handshake(egress: EgressFixture) -> Client:
    client = await egress.client()
    await client.connect(OTHER, egress.port_of(OTHER))
    return client


def sends(
    request: str = "GET / HTTP/1.1", *lines: str, host: str = API, cut: int | None = None
) -> Callable[[EgressFixture], Awaitable[Client]]:
    """Return a state: a request was sent, or its begin, and some of its answer read."""

    async def state(egress: EgressFixture) -> Client:
        client = await egress.tunnel(host)
        token = (TOKEN,) if host == API else ()
        body = bytes(5_000) if request.startswith("POST") else b""
        await client.send((egress.head(*token, *lines, host=host, request=request) + body)[:cut])
        if "/whole" in request:
            await client.response()
        elif "/half" in request or "/switch" in request:
            await client.receive()
        return client

    return state


STATES: dict[str, Callable[[EgressFixture], Awaitable[Client]]] = {
    "in the first head": in_the_first_head,
    "in the handshake": in_the_handshake,
    "in an unread handshake": in_an_unread_handshake,
    "in a head": sends(cut=-3),
    "in a body": sends("POST / HTTP/1.1", "Content-Length: 100000"),
    "waiting for an answer": sends(),
    "in an answer": sends("GET /half HTTP/1.1"),
    "between requests": sends("GET /whole HTTP/1.1"),
    "in a tunnel": sends("GET /half HTTP/1.1", host=OTHER),
    "in a websocket": sends("GET /switch HTTP/1.1", *UPGRADE),
}


async def answer(peer: Peer) -> None:
    """Answer as the request's path says."""
    path = peer.head.split(b" ")[1]
    if path == b"/whole":
        await peer.play(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
    elif path == b"/half":
        await peer.play(HALF, End.HANG)
    elif path == b"/switch":
        await peer.play(SWITCH, b"\x81\x02hi", End.HANG)
    else:
        await interrupt(End.HANG)(peer)


# Ways to go away.


async def client_cancels(_: EgressFixture, client: Client) -> None:
    client.abort()


async def client_closes(_: EgressFixture, client: Client) -> None:
    await client.close()


async def client_half_closes(_: EgressFixture, client: Client) -> None:
    with suppress(OSError):
        client.half_close()
    with suppress(OSError, EOFError, ssl.SSLError):
        await asyncio.wait_for(client.receive_all(), 5 * IDLE_SECONDS)
    client.abort()


async def client_idles(_: EgressFixture, client: Client) -> None:
    with suppress(OSError, EOFError, ssl.SSLError):
        await client.receive_all()
    client.abort()


def peers(egress: EgressFixture) -> list[Peer]:
    return [peer for server in (egress.api, egress.other) for peer in server.open_peers]


async def host_closes(egress: EgressFixture, client: Client) -> None:
    for peer in peers(egress):
        peer.transport.close()
    await client_idles(egress, client)


async def host_resets(egress: EgressFixture, client: Client) -> None:
    for peer in peers(egress):
        peer.transport.abort()
    await client_idles(egress, client)


WAYS = [client_cancels, client_closes, client_half_closes, client_idles, host_closes, host_resets]


async def everybody_leaves(egress: EgressFixture, times: int, seed: int) -> Counter[str]:
    """Have clients come and go, some at once; return how often each state was left in each way."""
    drawn = random.Random(seed)
    done: Counter[str] = Counter()

    async def one() -> None:
        state, way = drawn.choice([*STATES]), drawn.choice(WAYS)
        client = await STATES[state](egress)
        await way(egress, client)
        done[f"{state} {way.__name__}"] += 1

    egress.api.behave = egress.other.behave = answer
    for start in range(0, times, TOGETHER):
        await asyncio.gather(
            *(one() for _ in range(min(TOGETHER, times - start))), return_exceptions=True
        )
        for client in egress.clients:  # of those that never came so far, too
            client.abort()
        egress.clients.clear()
    return done


async def test_clients_that_leave_in_any_state_leak_nothing(impatient: EgressFixture) -> None:
    await leave(impatient, 100)


@pytest.mark.soak
async def test_two_thousand_clients_that_leave_leak_nothing(
    impatient: EgressFixture, soak_factor: int
) -> None:
    done = await leave(impatient, 2_000 * soak_factor)
    assert len(done) == len(STATES) * len(WAYS)


async def leave(egress: EgressFixture, times: int) -> Counter[str]:
    # What belongs to the first connection of all (a certificate, a thread that looks names up).
    await everybody_leaves(egress, TOGETHER, 0)
    await settle(egress, descriptors() + 1_000)
    before = descriptors()
    done = await everybody_leaves(egress, times, 1)
    assert sum(done.values()) >= times * 0.9
    await settle(egress, before)
    return done


async def settle(egress: EgressFixture, most: int) -> None:
    """Wait until no connection is left, and no more descriptors than there were."""
    deadline = time.monotonic() + 20
    for server in (egress.api, egress.other):
        for peer in server.peers:
            peer.transport.abort()
        server.peers.clear()
    while True:
        session = egress.proxy._sessions["session"]  # noqa: SLF001 - what must become empty
        left = len(session.connections), descriptors(), len(asyncio.all_tasks())
        # This one and the patrol's three.
        if left[0] == 0 and left[1] <= most and left[2] <= 4:
            return
        assert time.monotonic() < deadline, (left, most, asyncio.all_tasks())
        gc.collect()
        await asyncio.sleep(0.05)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
