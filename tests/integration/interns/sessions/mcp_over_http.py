"""MCP servers that are reached by a URL, made with the protocol's own library."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any

import uvicorn
from mcp.server import MCPServer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

APPS = {
    "http": (MCPServer.streamable_http_app, "/mcp"),
    "sse": (MCPServer.sse_app, "/sse"),
}


class OverHttp:
    """One that says again what it is told; it can be told to be slow, and shows who asked."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tokens: set[str] = set()
        """What requests had in `Authorization`."""


@asynccontextmanager
async def over_http(kind: str) -> AsyncGenerator[OverHttp]:
    """Serve one on this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    made, path = APPS[kind]
    served = OverHttp(f"http://127.0.0.1:{listener.getsockname()[1]}{path}")
    inner = made(_server())

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            served.tokens.add(dict(scope["headers"]).get(b"authorization", b"").decode())
        await inner(scope, receive, send)

    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listener]))  # noqa: SLF001 - without its signals
    try:
        yield served
    finally:
        server.should_exit = True
        with suppress(asyncio.CancelledError):
            await task
        listener.close()


def _server() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("test")

    @server.tool(description="Say it again.")
    async def echo(text: str) -> str:
        return f"{text} again"

    @server.tool(description="Never answer.")
    async def hang() -> str:
        await asyncio.Event().wait()
        return "never"

    _ = echo, hang
    return server
