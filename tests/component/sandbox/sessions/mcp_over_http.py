"""MCP servers over HTTP: made with the protocol's own library, and one of an older version."""

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import uvicorn
from mcp.server import MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

APPS = {"http": (MCPServer.streamable_http_app, "/mcp"), "sse": (MCPServer.sse_app, "/sse")}


class HttpMcpServer:
    """A server that repeats its input, can be slow, and shows the caller's credentials."""

    def __init__(self) -> None:
        self.url = ""
        self.tokens: set[str] = set()
        """The `Authorization` headers of the requests."""


class SessionMcpServer:
    """A server with the protocol's sessions, which it can forget as after a restart.

    Source: MCP 2025-06-18, Streamable HTTP, "Session Management".
    """

    def __init__(self) -> None:
        self.session = 1

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        asked = {} if request.method != "POST" else await request.json()
        await self._answer(request, asked)(scope, receive, send)

    def _answer(self, request: Request, asked: dict[str, Any]) -> Response:
        session = {"Mcp-Session-Id": f"session-{self.session}"}
        result: dict[str, Any]
        match asked.get("method"):
            case "initialize":
                result = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "older", "version": "1"},
                }
            case _ if request.headers.get("Mcp-Session-Id") != session["Mcp-Session-Id"]:
                return Response(status_code=404)
            case "tools/list":
                result = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
            case "tools/call":
                text = f"{asked['params']['arguments']['text']} again"
                result = {"content": [{"type": "text", "text": text}]}
            case _:
                return Response(status_code=202 if request.method == "POST" else 405)
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result}, 200, session)


@asynccontextmanager
async def serve_mcp(kind: str) -> AsyncGenerator[HttpMcpServer]:
    made, path = APPS[kind]
    inner = made(_server())
    served = HttpMcpServer()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            served.tokens.add(dict(scope["headers"]).get(b"authorization", b"").decode())
        await inner(scope, receive, send)

    async with serve_app(app, path) as served.url:
        yield served


@asynccontextmanager
async def serve_app(app: Any, path: str = "/") -> AsyncGenerator[str]:
    """Serve an application on loopback; yields its URL."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server._serve([listener]))  # noqa: SLF001 - without its signals
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}{path}"
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
