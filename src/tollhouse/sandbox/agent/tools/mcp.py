"""MCP servers, as two tools: what a server can do is read when it is wanted.

So a server that nobody asks is not started, and one that hangs is in nobody's way.
"""

from __future__ import annotations

import json
from typing import Any, Final

from pydantic_ai import RunContext
from pydantic_ai.exceptions import ToolFailed

from tollhouse.sandbox.agent.tools.consent import need_consent
from tollhouse.sandbox.agent.tools.excerpts import Excerpt
from tollhouse.sandbox.agent.tools.servers import ServerConfig, ServerFailed
from tollhouse.sandbox.agent.tools.work import Work

_MOST_BYTES: Final = 128 * 1024
"""Of what is told of tools."""


async def list_mcp_tools(ctx: RunContext[Work], server: str) -> str:
    """Return the tools of an MCP server: names, descriptions, and schemas of their arguments.

    Args:
        ctx: Of the call.
        server: Its name.
    """
    config = _found(ctx, server)
    need_consent(ctx, f"mcp:{config.digest}", f"Start the MCP server {server}: {config.where}")
    try:
        tools = await ctx.deps.servers.tools(config)
    except ServerFailed as error:
        raise ToolFailed(str(error)) from None
    return _bounded(json.dumps(tools, ensure_ascii=False))


async def call_mcp_tool(
    ctx: RunContext[Work], server: str, tool: str, arguments: dict[str, Any] | None = None
) -> str:
    """Call a tool of an MCP server.

    Args:
        ctx: Of the call.
        server: The server's name.
        tool: The tool's name, as `list_mcp_tools` gives it.
        arguments: As its schema wants them.
    """
    config = _found(ctx, server)
    given = json.dumps(arguments or {}, ensure_ascii=False)
    operation = f"MCP server {server} ({config.where}): {tool} {given}"
    need_consent(ctx, f"mcp:{config.digest}:{tool}", operation)
    try:
        return _bounded(await ctx.deps.servers.call(config, tool, arguments or {}))
    except ServerFailed as error:
        raise ToolFailed(_bounded(str(error))) from None


def _found(ctx: RunContext[Work], server: str) -> ServerConfig:
    try:
        configs = ctx.deps.servers.configured()
    except ServerFailed as error:
        raise ToolFailed(str(error)) from None
    if server not in configs:
        raise ToolFailed(
            f"There is no server of this name; there are {', '.join(configs) or 'none'}."
        )
    return configs[server]


def _bounded(text: str) -> str:
    excerpt = Excerpt(_MOST_BYTES // 2, _MOST_BYTES // 2)
    excerpt.add(text.encode(errors="replace"))
    return excerpt.text()
