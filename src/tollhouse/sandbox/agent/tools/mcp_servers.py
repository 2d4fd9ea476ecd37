"""MCP servers that the workspace names in `.mcp.json`, in the format that other clients read, too.

    {"mcpServers": {"files": {"command": "npx", "args": ["..."], "env": {"A": "b"}},
                    "issues": {"url": "https://...", "headers": {"Authorization": "..."}},
                    "older": {"type": "sse", "url": "https://..."}}}

A server is started when it is first used, and runs for as long as the agent does and its entry in
the file stays the same. All that it does has a deadline: one that hangs is an error to the model.

Source: the MCP specification, transports `stdio` and `Streamable HTTP`; of 2024-11-05, `HTTP with
SSE`, which servers older than that offer alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic_ai.exceptions import ToolFailed

if TYPE_CHECKING:
    from mcp import Client

_STOP_SECONDS: Final = 5.0
_FILE: Final = ".mcp.json"
_MOST_BYTES: Final = 256 * 1024
_MOST_TOOLS: Final = 500
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class McpServerConfig:
    """A server's entry in the file."""

    name: str
    command: tuple[str, ...] = ()
    """Program and arguments; empty if it has a URL."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    is_sse: bool = False
    """Whether it speaks HTTP with SSE, as older servers do."""

    @property
    def digest(self) -> str:
        """A hash of the whole entry."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def where(self) -> str:
        """Its URL or its command."""
        return self.url or " ".join(self.command)


def read_configs(data: bytes) -> dict[str, McpServerConfig]:
    """Read the file; raise `ToolFailed` where it is not what it has to be."""
    try:
        servers = json.loads(data)["mcpServers"]
        return {name: _config(name, found) for name, found in servers.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ToolFailed(f"{_FILE} cannot be understood.") from None


def _config(name: str, found: Mapping[str, Any]) -> McpServerConfig:
    if "url" in found:
        headers = _texts(found.get("headers", {}))
        is_sse = found.get("type") == "sse"
        return McpServerConfig(name, url=_text(found["url"]), headers=headers, is_sse=is_sse)
    arguments = [_text(each) for each in found.get("args", [])]
    environment = _texts(found.get("env", {}))
    return McpServerConfig(name, (_text(found["command"]), *arguments), environment)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value


def _texts(value: Mapping[object, object]) -> dict[str, str]:
    return {_text(name): _text(text) for name, text in value.items()}


@dataclass(slots=True, repr=False)
class McpServers:
    """Starts servers, and keeps those that run; its methods raise `ToolFailed`.

    A server has `start_seconds` to start, and for each page of its list of tools.
    """

    workspace: Path
    environment: Mapping[str, str] = field(repr=False)
    start_seconds: float = 30.0
    call_seconds: float = 300.0
    _running: dict[str, _RunningServer] = field(default_factory=dict, init=False)

    def configured(self) -> dict[str, McpServerConfig]:
        """Return what the file names now."""
        try:
            file = os.open(self.workspace / _FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as opened:
                return read_configs(opened.read(_MOST_BYTES))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ToolFailed(f"{_FILE} cannot be read: {error.strerror}.") from None

    async def tools(self, config: McpServerConfig) -> list[dict[str, Any]]:
        """Return what a server can do: name, description and schema of each tool."""
        running, client = await self._started(config)
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(found) < _MOST_TOOLS:
            listing = client.list_tools(cursor=cursor)
            page = await self._bounded(running, listing, self.start_seconds)
            for tool in page.tools:
                told = {"name": tool.name, "description": tool.description}
                found.append({**told, "parameters": tool.input_schema})
            if not (cursor := page.next_cursor):
                break
        return found[:_MOST_TOOLS]

    async def call(self, config: McpServerConfig, tool: str, arguments: Mapping[str, Any]) -> str:
        """Have a server do something; return what it says."""
        running, client = await self._started(config)
        calling = client.call_tool(tool, dict(arguments))
        result = await self._bounded(running, calling, self.call_seconds)
        text = "\n".join(
            str(getattr(part, "text", f"({part.type} is left out)")) for part in result.content
        )
        if result.is_error:
            raise ToolFailed(text or "The tool failed.")
        return text or json.dumps(result.structured_content)

    async def close(self) -> None:
        """End all servers."""
        running, self._running = [*self._running.values()], {}
        await asyncio.gather(*(each.end() for each in running))

    async def _started(self, config: McpServerConfig) -> tuple[_RunningServer, Client]:
        running = self._running.get(config.name)
        while running is not None and (running.config != config or running.task.done()):
            await self._drop(running)
            running = self._running.get(config.name)  # somebody else may have been quicker
        if running is None:
            running = _RunningServer(config, self.workspace, self.environment)
            self._running[config.name] = running
        try:
            return running, await running.client(self.start_seconds)
        except ToolFailed:
            await self._drop(running)
            raise

    async def _drop(self, running: _RunningServer) -> None:
        """End a server; one of its name that is started since then runs on."""
        if self._running.get(running.config.name) is running:
            del self._running[running.config.name]
        await running.end()

    async def _bounded(self, running: _RunningServer, work: Awaitable[_T], seconds: float) -> _T:
        name = running.config.name
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            message = f"The server {name} did not answer within {seconds:g} seconds."
            raise ToolFailed(message) from None
        except Exception as error:  # noqa: BLE001 - its edge: what a server makes a library raise
            if _has_ended(error, has_url=bool(running.config.url)):
                await self._drop(running)
            raise ToolFailed(f"The server {name}: {error}"[:2000]) from None


class _RunningServer:
    """A server's connection, held open by a task of its own, as the library wants it."""

    def __init__(
        self, config: McpServerConfig, workspace: Path, environment: Mapping[str, str]
    ) -> None:
        self.config = config
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._hold(workspace, environment))

    async def client(self, seconds: float) -> Client:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            message = f"The server {self.config.name} did not start within {seconds:g} seconds."
            raise ToolFailed(message) from None

    async def end(self) -> None:
        self._stop.set()
        if not self._ready.done():
            self.task.cancel()
        await asyncio.wait({self.task}, timeout=_STOP_SECONDS)
        self.task.cancel()
        if self._ready.done():
            self._ready.exception()  # so that it counts as seen where nobody waited for it

    async def _hold(self, workspace: Path, environment: Mapping[str, str]) -> None:
        try:
            async with AsyncExitStack() as stack:
                client = await _connected(stack, self.config, workspace, environment)
                if not self._ready.done():
                    self._ready.set_result(client)
                await self._stop.wait()
        except Exception as error:  # noqa: BLE001 - its edge: what a server makes a library raise
            if not self._ready.done():
                text = f"The server {self.config.name} cannot be started: {_inner(error)}"
                self._ready.set_exception(ToolFailed(text[:2000]))


async def _connected(
    stack: AsyncExitStack, config: McpServerConfig, workspace: Path, environment: Mapping[str, str]
) -> Client:
    # 25 MB and half a second, which an agent without servers does not need.
    import httpx2  # noqa: PLC0415
    from mcp import Client, StdioServerParameters  # noqa: PLC0415
    from mcp.client.sse import sse_client  # noqa: PLC0415
    from mcp.client.stdio import stdio_client  # noqa: PLC0415
    from mcp.client.streamable_http import streamable_http_client  # noqa: PLC0415

    if config.is_sse:
        transport = sse_client(config.url, dict(config.headers))
    elif config.url:
        http = await stack.enter_async_context(
            httpx2.AsyncClient(headers=dict(config.headers), timeout=None)
        )
        transport = streamable_http_client(config.url, http_client=http)
    else:
        # What it says on standard error is nobody's: not the model's, and not the log's.
        silence = stack.enter_context(os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        parameters = StdioServerParameters(
            command=config.command[0],
            args=list(config.command[1:]),
            env={**environment, **config.environment},
            cwd=workspace,
        )
        transport = stdio_client(parameters, errlog=silence)
    return await stack.enter_async_context(Client(transport))


def _has_ended(error: Exception, *, has_url: bool) -> bool:
    """Tell whether a connection has ended, rather than that its server has said what is wrong.

    A server with a URL that has forgotten a session answers 404, and wants to be met anew.

    Source: MCP 2025-06-18, Streamable HTTP, "Session Management".
    """
    from mcp import MCPError  # noqa: PLC0415
    from mcp_types import CONNECTION_CLOSED, INVALID_REQUEST  # noqa: PLC0415

    if not isinstance(error, MCPError):
        return False
    forgotten = has_url and error.code == INVALID_REQUEST  # as the library says it
    return forgotten or error.code == CONNECTION_CLOSED


def _inner(error: BaseException) -> str:
    """Return what is at the bottom of groups of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return str(error) or type(error).__name__
