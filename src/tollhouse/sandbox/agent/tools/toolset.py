"""All tools together."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pydantic_ai.toolsets import FunctionToolset

from tollhouse.sandbox.agent.tools.asking import ask_user
from tollhouse.sandbox.agent.tools.files import edit_file, read_file, write_file
from tollhouse.sandbox.agent.tools.http import http_request
from tollhouse.sandbox.agent.tools.mcp import call_mcp_tool, list_mcp_tools
from tollhouse.sandbox.agent.tools.shell import shell

if TYPE_CHECKING:
    from tollhouse.sandbox.agent.tools.work import Work


@cache
def toolset(*, with_servers: bool) -> FunctionToolset[Work]:
    """Return what the agent can do: always the same, which takes time to make and keeps nothing.

    Args:
        with_servers: Whether there are MCP servers.
    """
    found: FunctionToolset[Work] = FunctionToolset(
        [shell, http_request, ask_user], docstring_format="google"
    )
    # One at a time: what is written by one call is what the next one reads.
    found.add_function(read_file, sequential=True)
    found.add_function(write_file, sequential=True)
    found.add_function(edit_file, sequential=True)
    if with_servers:
        found.add_function(list_mcp_tools)
        found.add_function(call_mcp_tool)
    return found
