"""Validates the tools of requests to the Anthropic stub.

Source: https://docs.anthropic.com/en/api/messages (`tools`, `tool_choice`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tests.support.providers.anthropic_blocks import (
    RejectedMessagesRequest,
    check_fields,
    check_list,
    check_object,
    check_text,
)

if TYPE_CHECKING:
    from tests.support.providers.stub_text import JsonObject

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_SERVER_TOOLS: Final = (
    *("bash_", "browser_", "code_execution_", "computer_", "memory_", "text_editor_"),
    *("tool_search_", "web_fetch_", "web_search_"),
)
_OPTIONAL: Final = {
    *("type", "description", "cache_control", "strict", "allowed_callers", "defer_loading"),
    *("eager_input_streaming", "input_examples"),
}
_CHOICES: Final[dict[str, tuple[set[str], set[str]]]] = {
    "auto": (set(), {"disable_parallel_tool_use"}),
    "any": (set(), {"disable_parallel_tool_use"}),
    "tool": ({"name"}, {"disable_parallel_tool_use"}),
    "none": (set(), set()),
}


def check_tools(fields: JsonObject) -> list[JsonObject]:
    """Return the tools that the client runs."""
    tools = [
        _check_tool(f"tools.{at}", check_object(f"tools.{at}", tool))
        for at, tool in enumerate(check_list("tools", fields.get("tools", [])))
    ]
    names = [tool.get("name") for tool in tools]
    if len(set(names)) < len(names):
        raise RejectedMessagesRequest("tools: Tool names must be unique.")
    return [tool for tool in tools if "input_schema" in tool]


def _check_tool(path: str, tool: JsonObject) -> JsonObject:
    kind = tool.get("type") or "custom"
    if kind != "custom":
        if not str(kind).startswith(_SERVER_TOOLS):
            raise RejectedMessagesRequest(
                f"{path}: Input tag '{kind}' does not match any of the expected tags"
            )
        return tool
    check_fields(f"{path}.custom", tool, {"name", "input_schema"}, _OPTIONAL)
    if not _NAME.fullmatch(check_text(f"{path}.custom.name", tool["name"])):
        raise RejectedMessagesRequest(
            f"{path}.custom.name: String should match pattern '^{_NAME.pattern}$'"
        )
    if "description" in tool:
        check_text(f"{path}.custom.description", tool["description"])
    schema = check_object(f"{path}.custom.input_schema", tool["input_schema"])
    if "type" not in schema:
        raise RejectedMessagesRequest(f"{path}.custom.input_schema.type: Field required")
    if schema["type"] != "object":
        raise RejectedMessagesRequest(f"{path}.custom.input_schema.type: Input should be 'object'")
    return tool


def check_tool_choice(fields: JsonObject) -> str | None:
    """Return the name of the tool that must be called."""
    if fields.get("tool_choice") is None:
        return None
    choice = check_object("tool_choice", fields["tool_choice"])
    kind = choice.get("type")
    if kind not in _CHOICES:
        raise RejectedMessagesRequest(
            f"tool_choice: Input tag '{kind}' does not match any of the expected tags"
        )
    required, optional = _CHOICES[kind]
    check_fields(f"tool_choice.{kind}", choice, required | {"type"}, optional)
    if not fields.get("tools"):
        raise RejectedMessagesRequest("tool_choice: may only be specified while providing tools")
    name = choice.get("name")
    if kind == "tool" and name not in {tool.get("name") for tool in fields["tools"]}:
        raise RejectedMessagesRequest(f"Tool '{name}' not found in provided tools")
    return name
