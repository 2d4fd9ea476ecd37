"""An exchange that comes to a point and goes no further."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.component.outbound.http.exchange import Exchange, collect, open_sockets, post
from tests.support.providers.byte_script import End
from tests.support.providers.raw_server import RawServer, say, unresponsive_port
from tests.support.upstream_faults import CHUNKED, COUNTED
from tests.support.waiting import take_turns

POINTS: Final = ("place", "connect", "handshake", "head", "body")
"""It waits for a place among the host's connections, for an answer to its connection attempt or to
its TLS handshake, for the head of the response, or for the rest of the body."""


@dataclass
class Begun:
    """An exchange under way."""

    exchange: Exchange
    task: asyncio.Task[object]
    is_there: Callable[[], object]
    sent: bool
    """Whether its request has left by then."""
    closed: Callable[[], Awaitable[object]] = take_turns
    """Waits until the upstream has seen its connection close."""
    gives_way: Callable[[], Awaitable[object]] = take_turns
    """Ends what it waits for, so that the client can do something else."""


@asynccontextmanager
async def begun_at(point: str, exchange: Exchange, **limits: float) -> AsyncIterator[Begun]:
    """Begin an exchange of a client with one place for each host."""
    server = exchange.server

    def start(url: str) -> asyncio.Task[object]:
        return asyncio.create_task(exchange.upstream.send(post(url, **limits)))

    if point == "connect":
        with unresponsive_port() as port:
            before = open_sockets()
            task = start(f"http://127.0.0.1:{port}/")
            yield Begun(exchange, task, lambda: open_sockets() > before, sent=False)
    elif point == "handshake":
        async with RawServer() as silent:
            task = start(silent.url.replace("http:", "https:"))
            yield Begun(
                exchange,
                task,
                lambda: silent.peers and silent.peers[0].received,
                sent=False,
                closed=partial(_closed, silent),
            )
    elif point == "place":
        server.behave = say(COUNTED, End.HANG)
        holder = await exchange.open()
        task = asyncio.create_task(exchange.read(**limits))
        await take_turns()
        yield Begun(exchange, task, lambda: True, sent=False, gives_way=holder.close)
        await holder.close()
    else:
        await exchange.is_healthy(1)
        got: list[bytes] = []
        requests = server.requests
        body = [CHUNKED, b"3\r\none\r\n"] if point == "body" else []
        server.behave = say(*body, End.HANG)
        task = asyncio.create_task(_streamed(exchange, got, limits))
        yield Begun(
            exchange,
            task,
            lambda: got if body else server.requests > requests,
            sent=True,
            closed=exchange.peer.wait_closed,
        )


async def _closed(server: RawServer) -> None:
    await server.peers[0].wait_closed()


async def _streamed(exchange: Exchange, got: list[bytes], limits: dict[str, float]) -> None:
    await collect(await exchange.open(**limits), got)
