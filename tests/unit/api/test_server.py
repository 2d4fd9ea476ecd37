"""What a connection leaves behind when it is gone: nothing."""

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.loop_time import LoopTime
from tests.support.waiting import take_turns
from tollhouse.api.asgi import ON_GONE
from tollhouse.api.asgi_call import MOST_UNTAKEN
from tollhouse.api.connection import BODY_SECONDS, HttpConnection
from tollhouse.api.server import make_server

REQUEST = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"

RATE = 1_000


class App:
    """Leaves what the hot routes leave in the scope, and answers when it is let."""

    def __init__(self) -> None:
        self.gone = 0
        self.let = asyncio.Event()

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        scope[ON_GONE] = self._gone
        await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    def _gone(self) -> None:
        self.gone += 1


@asynccontextmanager
async def serving(app: Any) -> AsyncGenerator[int]:
    """Serve on a free port."""
    server = make_server(app, limit_per_address=9, shutdown_seconds=1, min_body_rate=RATE)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        yield listener.getsockname()[1]
        server.stop()
        await running


@pytest.mark.parametrize("answered", [False, True])
async def test_a_connection_that_is_gone_needs_no_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    seen: list[weakref.ref[HttpConnection]] = []
    made = HttpConnection.connection_made

    def note(self: HttpConnection, transport: Any) -> None:
        seen.append(weakref.ref(self))
        made(self, transport)

    monkeypatch.setattr(HttpConnection, "connection_made", note)
    app = App()
    async with serving(app) as port:
        gc.collect()
        gc.disable()
        try:
            for _ in range(5):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(REQUEST)
                if answered:
                    app.let.set()
                    await reader.readuntil(b"hello")
                else:
                    await take_turns()
                writer.transport.abort()
            async with asyncio.timeout(5):
                while app.gone < (0 if answered else 5):
                    await asyncio.sleep(0.01)
                app.let.set()
                while any(each() is not None for each in seen):
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
    assert len(seen) == 5
    assert app.gone == (0 if answered else 5)


class Reader:
    """Reads the body when it is let, and answers with its size."""

    def __init__(self) -> None:
        self.let = asyncio.Event()
        self.let.set()
        self.heard: list[str] = []

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        await self.let.wait()
        size = 0
        while (message := await receive()).get("more_body"):
            size += len(message["body"])
        self.heard.append(message["type"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"%d" % (size + len(message["body"]))})


HEAD = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n"
A_WINDOW = int(RATE * BODY_SECONDS)


@dataclass
class Sender:
    """A client that sends a body piece by piece."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def sends(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()
        await take_turns()


@asynccontextmanager
async def sender(port: int) -> AsyncGenerator[Sender]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield Sender(reader, writer)
    writer.transport.abort()


async def test_bodies_that_drip_are_answered_with_408_and_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Reader()
    async with serving(app) as port, AsyncExitStack() as stack:
        time = LoopTime(monkeypatch)
        senders = [await stack.enter_async_context(sender(port)) for _ in range(3)]
        for each in senders:
            await each.sends(HEAD % 1_000_000 + b"x")
        await time.advance(BODY_SECONDS + 1)
        answers = [await each.reader.read() for each in senders]
    assert {answer.split(b" ")[1] for answer in answers} == {b"408"}
    assert all(b"The request body arrived too slowly." in answer for answer in answers)
    assert app.heard == ["http.disconnect"] * 3


async def test_a_body_at_the_least_rate_may_take_as_long_as_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with serving(Reader()) as port, sender(port) as client:
        time = LoopTime(monkeypatch)
        await client.sends(HEAD % (3 * A_WINDOW))
        for _ in range(3):
            await client.sends(b"x" * A_WINDOW)
            await time.advance(BODY_SECONDS + 1)
        assert await client.reader.readuntil(b"%d" % (3 * A_WINDOW))


async def test_a_body_that_the_route_does_not_read_is_not_too_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = Reader()
    app.let.clear()
    body = b"x" * (MOST_UNTAKEN + 1)
    async with serving(app) as port, sender(port) as client:
        time = LoopTime(monkeypatch)
        await client.sends(HEAD % (len(body) + 1) + body)
        for _ in range(3):
            await time.advance(BODY_SECONDS + 1)
        app.let.set()
        await client.sends(b"x")
        assert await client.reader.readuntil(b"%d" % (len(body) + 1))
