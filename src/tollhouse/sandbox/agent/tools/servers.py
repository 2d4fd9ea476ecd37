"""MCP servers that the workspace names in `.mcp.json`, in the format that other clients read, too.

    {"mcpServers": {"files": {"command": "npx", "args": ["..."], "env": {"A": "b"}},
                    "issues": {"url": "https://...", "headers": {"Authorization": "..."}},
                    "older": {"type": "sse", "url": "https://..."}}}

A server is started when it is first asked for, and runs for as long as the agent does and nobody
changes what the file says of it. All that it does has a deadline: one that hangs is an error to
the model.

Source: the MCP specification, transports `stdio` and `Streamable HTTP`; of 2024-11-05, `HTTP with
SSE`, which servers older than that offer alone.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping
    from pathlib import Path

    from mcp import Client

_STOP_SECONDS: Final = 5.0
_FILE: Final = ".mcp.json"
_MOST_BYTES: Final = 256 * 1024
_MOST_TOOLS: Final = 500
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long what may take, in seconds."""

    start: float = 30.0
    """Until a server can be asked, and says what it can do."""
    call: float = 300.0
    """Until it has done something."""


class ServerFailed(Exception):
    """The text is for the model."""


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """What the file says of a server."""

    name: str
    command: tuple[str, ...] = ()
    """Program and arguments; empty where it is reached by its URL."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    is_sse: bool = False
    """Whether its URL is that of a stream of events, as older servers have it."""

    @property
    def digest(self) -> str:
        """Of all of it: another server has another one."""
        told = [self.name, self.command, sorted(self.environment.items()), self.url]
        text = json.dumps([*told, sorted(self.headers.items()), self.is_sse])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def where(self) -> str:
        """What is started, or reached."""
        return self.url or " ".join(self.command)


def read_configs(data: bytes) -> dict[str, ServerConfig]:
    """Read the file.

    Raises:
        ServerFailed: It is not what it has to be.
    """
    try:
        servers = json.loads(data)["mcpServers"]
        return {name: _config(name, found) for name, found in servers.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise ServerFailed(f"{_FILE} cannot be understood.") from None


def _config(name: str, found: Mapping[str, Any]) -> ServerConfig:
    if "url" in found:
        headers = _texts(found.get("headers", {}))
        is_sse = found.get("type") == "sse"
        return ServerConfig(name, url=_text(found["url"]), headers=headers, is_sse=is_sse)
    arguments = [_text(each) for each in found.get("args", [])]
    environment = _texts(found.get("env", {}))
    return ServerConfig(name, (_text(found["command"]), *arguments), environment)


def _text(value: object) -> str:
    if not isinstance(value, str) or "\0" in value:
        raise TypeError
    return value


def _texts(value: Mapping[object, object]) -> dict[str, str]:
    return {_text(name): _text(text) for name, text in value.items()}


class Servers:
    """Starts servers, and keeps those that run."""

    def __init__(
        self, workspace: Path, environment: Mapping[str, str], patience: Patience | None = None
    ) -> None:
        """Start none.

        Args:
            workspace: Where the file is, and where servers run.
            environment: Of servers.
            patience: With them.
        """
        self._patience = patience or Patience()
        self._workspace = workspace
        self._environment = environment
        self._running: dict[str, _Running] = {}

    def configured(self) -> dict[str, ServerConfig]:
        """Return what the file names now.

        Raises:
            ServerFailed: It cannot be read, or not be understood.
        """
        try:
            file = os.open(self._workspace / _FILE, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            with os.fdopen(file, "rb") as opened:
                return read_configs(opened.read(_MOST_BYTES))
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise ServerFailed(f"{_FILE} cannot be read: {error.strerror}.") from None

    async def tools(self, config: ServerConfig) -> list[dict[str, Any]]:
        """Return what a server can do: name, description and schema of each tool.

        Raises:
            ServerFailed: It does not answer as it has to.
        """
        running, client = await self._started(config)
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while len(found) < _MOST_TOOLS:
            page = await self._bounded(
                running, client.list_tools(cursor=cursor), self._patience.start
            )
            found += [
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.input_schema,
                }
                for tool in page.tools
            ]
            cursor = page.next_cursor
            if not cursor:
                break
        return found[:_MOST_TOOLS]

    async def call(self, config: ServerConfig, tool: str, arguments: Mapping[str, Any]) -> str:
        """Have a server do something; return what it says.

        Raises:
            ServerFailed: It says that it failed, or does not answer as it has to.
        """
        running, client = await self._started(config)
        result = await self._bounded(
            running, client.call_tool(tool, dict(arguments)), self._patience.call
        )
        text = "\n".join(
            str(getattr(part, "text", f"({part.type} is left out)")) for part in result.content
        )
        if result.is_error:
            raise ServerFailed(text or "The tool failed.")
        return text or json.dumps(result.structured_content)

    async def close(self) -> None:
        """End all servers."""
        running, self._running = [*self._running.values()], {}
        await asyncio.gather(*(each.end() for each in running))

    async def _started(self, config: ServerConfig) -> tuple[_Running, Client]:
        running = self._running.get(config.name)
        while running is not None and (running.config != config or running.over):
            await self._drop(running)
            running = self._running.get(config.name)  # somebody else may have been quicker
        if running is None:
            running = _Running(config, self._workspace, self._environment)
            self._running[config.name] = running
        try:
            return running, await running.client(self._patience.start)
        except ServerFailed:
            await self._drop(running)
            raise

    async def _drop(self, running: _Running) -> None:
        """End a server; one of its name that is started since then runs on."""
        if self._running.get(running.config.name) is running:
            del self._running[running.config.name]
        await running.end()

    async def _bounded(self, running: _Running, work: Awaitable[_T], seconds: float) -> _T:
        name = running.config.name
        try:
            async with asyncio.timeout(seconds):
                return await work
        except TimeoutError:
            message = f"The server {name} did not answer within {seconds:g} seconds."
            raise ServerFailed(message) from None
        except Exception as error:  # noqa: BLE001 - its edge: what a server makes a library raise
            if _is_over(error, has_url=bool(running.config.url)):
                await self._drop(running)
            raise ServerFailed(f"The server {name}: {error}"[:2000]) from None


class _Running:
    """A server's connection, held open by a task of its own, as the library wants it."""

    def __init__(
        self, config: ServerConfig, workspace: Path, environment: Mapping[str, str]
    ) -> None:
        self.config = config
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._hold(workspace, environment))

    @property
    def over(self) -> bool:
        return self._task.done()

    async def client(self, seconds: float) -> Client:
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            message = f"The server {self.config.name} did not start within {seconds:g} seconds."
            raise ServerFailed(message) from None

    async def end(self) -> None:
        self._stop.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_STOP_SECONDS)
        self._task.cancel()
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
                self._ready.set_exception(ServerFailed(text[:2000]))


async def _connected(
    stack: AsyncExitStack, config: ServerConfig, workspace: Path, environment: Mapping[str, str]
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


def _is_over(error: Exception, *, has_url: bool) -> bool:
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
