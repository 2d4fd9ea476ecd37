"""Tools that reach out: requests through the environment's proxy, and tools of MCP servers.

An MCP server is asked for its tools only when the model wants them: so one that is not used is not
started, and one that hangs delays nothing else.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Annotated, Any, Final

import httpx2
from pydantic import Field
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.context import Excerpt, ToolContext, require_approval
from tollhouse.sandbox.agent.tools.mcp_servers import McpServerConfig

_SCOPE: Final = "http_request"
_MOST_SECONDS: Final = 300
MOST_BYTES: Final = 16 * 1024 * 1024
"""Bytes of an answer that are read; the model sees an excerpt."""
_LONGEST_TEXT: Final = 128 * 1024
"""Bytes of what an MCP server says of its tools, or of a result."""
_SHOWN_HEADERS: Final = ("content-type", "content-length", "location", "retry-after", "etag")


async def http_request(
    ctx: RunContext[ToolContext],
    url: Annotated[str, Field(max_length=8192)],
    method: Annotated[str, Field(pattern=r"^[A-Za-z]{1,16}$")] = "GET",
    headers: dict[str, str] | None = None,
    body: str | None = None,
    timeout_seconds: Annotated[int, Field(ge=1, le=_MOST_SECONDS)] = 60,
) -> str:
    """Send an HTTP request, and return the answer's status, some of its headers, and its text.

    Redirects are not followed. Of a long answer you get the beginning and the end; use the shell
    to store one.

    Args:
        ctx: Of the call.
        url: With http:// or https://.
        method: GET, POST, and so on.
        headers: Of the request.
        body: Of the request, as text.
        timeout_seconds: After so many seconds it is given up.
    """
    method, headers = method.upper(), headers or {}
    require_approval(ctx, _SCOPE, _operation(method, url, headers, body))
    try:
        async with asyncio.timeout(timeout_seconds):
            return await _send(method, url, headers, body)
    except TimeoutError:
        raise ToolFailed(f"There was no answer within {timeout_seconds} seconds.") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise ToolFailed(f"The request failed: {error or type(error).__name__}") from None


async def _send(method: str, url: str, headers: Mapping[str, str], body: str | None) -> str:
    content = None if body is None else body.encode(errors="replace")
    excerpt = Excerpt()
    async with (
        httpx2.AsyncClient(follow_redirects=False, timeout=None) as client,
        client.stream(method, url, headers=headers, content=content) as response,
    ):
        async for piece in response.aiter_bytes():
            excerpt.add(piece)
            if excerpt.size > MOST_BYTES:
                break
    shown = [
        f"{name}: {response.headers[name]}" for name in _SHOWN_HEADERS if name in response.headers
    ]
    lines = [f"HTTP {response.status_code} {response.reason_phrase}".rstrip(), *shown, ""]
    return "\n".join([*lines, excerpt.text()])


def _operation(method: str, url: str, headers: Mapping[str, str], body: str | None) -> str:
    """Return what a person decides about: all that is sent."""
    lines = [f"{method} {url}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\n".join(lines if body is None else [*lines, "", body])


async def list_mcp_tools(ctx: RunContext[ToolContext], server: str) -> str:
    """Return the tools of an MCP server: names, descriptions, and schemas of their arguments.

    Args:
        ctx: Of the call.
        server: Its name.
    """
    config = _configured_server(ctx, server)
    require_approval(ctx, f"mcp:{config.digest}", f"Start the MCP server {server}: {config.where}")
    return _excerpt(json.dumps(await ctx.deps.servers.tools(config), ensure_ascii=False))


async def call_mcp_tool(
    ctx: RunContext[ToolContext], server: str, tool: str, arguments: dict[str, Any] | None = None
) -> str:
    """Call a tool of an MCP server.

    Args:
        ctx: Of the call.
        server: The server's name.
        tool: The tool's name, as `list_mcp_tools` gives it.
        arguments: As its schema wants them.
    """
    config = _configured_server(ctx, server)
    given = json.dumps(arguments or {}, ensure_ascii=False)
    operation = f"MCP server {server} ({config.where}): {tool} {given}"
    require_approval(ctx, f"mcp:{config.digest}:{tool}", operation)
    try:
        return _excerpt(await ctx.deps.servers.call(config, tool, arguments or {}))
    except ToolFailed as error:
        raise ToolFailed(_excerpt(str(error))) from None


def _configured_server(ctx: RunContext[ToolContext], server: str) -> McpServerConfig:
    configs = ctx.deps.servers.configured()
    if server not in configs:
        names = ", ".join(configs) or "none"
        raise ToolFailed(f"There is no server of this name; there are {names}.")
    return configs[server]


def _excerpt(text: str) -> str:
    excerpt = Excerpt(_LONGEST_TEXT // 2)
    excerpt.add(text.encode(errors="replace"))
    return excerpt.text()
