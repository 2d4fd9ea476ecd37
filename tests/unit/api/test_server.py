"""What a connection leaves behind when it is gone: nothing."""

import asyncio
import gc
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tollhouse.api import server as module
from tollhouse.api.asgi import ON_GONE, SINK
from tollhouse.api.server import GatewayProtocol, make_server

REQUEST = b"POST /x HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}"


class App:
    """Leaves what the hot routes leave in the scope, and answers when it is let."""

    def __init__(self) -> None:
        self.gone = 0
        self.let = asyncio.Event()

    async def __call__(self, scope: Any, _receive: Any, send: Any) -> None:
        scope[ON_GONE] = self._gone
        assert scope[SINK]
        await self.let.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello"})

    def _gone(self) -> None:
        self.gone += 1


@asynccontextmanager
async def serving(app: App) -> AsyncIterator[int]:
    """Serve on a free port."""
    server = make_server(app, limit_per_address=9, shutdown_seconds=1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        running = asyncio.create_task(server.serve(sockets=[listener]))
        await server.listening.wait()
        yield listener.getsockname()[1]
        server.should_exit = True
        await running


@pytest.mark.parametrize("answered", [False, True])
async def test_a_connection_that_is_gone_needs_no_garbage_collector(
    monkeypatch: pytest.MonkeyPatch, *, answered: bool
) -> None:
    seen: list[weakref.ref[GatewayProtocol]] = []
    made = GatewayProtocol.connection_made

    def note(self: GatewayProtocol, transport: Any) -> None:
        seen.append(weakref.ref(self))
        made(self, transport)

    monkeypatch.setattr(module.GatewayProtocol, "connection_made", note)
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
                    await asyncio.sleep(0.02)
                writer.transport.abort()
            app.let.set()
            async with asyncio.timeout(5):
                while any(each() is not None for each in seen):
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()
    assert len(seen) == 5
    assert app.gone == 5
