"""The tools of a messages request that the client runs, as functions that every format has. Pure.

Anthropic's models know the schemas of its own tools; other models have to be told. The client gets
the calls as it does Anthropic's: as `tool_use` of the tool's name.

Source: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/, bash-tool, text-editor-tool
and memory-tool for the schemas, tool-search-tool for `defer_loading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Raw, Struct

from tollhouse.inference.formats.canonical.types import ToolDefinition
from tollhouse.inference.formats.kinds import MESSAGE_TOOLS, refused
from tollhouse.inference.formats.wire import NULL, Fields, given, raw
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Tool(Struct):
    """A tool of a request; one without a type is the client's own."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: Fields | None = None
    strict: bool | None = None
    cache_control: Raw = NULL


def _object(required: str, **properties: object) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": required.split()}


_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_RANGE: Final = {"type": "array", "items": _NUMBER}
_EDIT: Final = {
    "path": _TEXT,
    "view_range": _RANGE,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "file_text": _TEXT,
    "insert_line": _NUMBER,
    "insert_text": _TEXT,
}
_BUILT_IN: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "bash": (
        "Run a command in a lasting bash session, or restart the session.",
        _object("", command=_TEXT, restart={"type": "boolean"}),
    ),
    "text": (
        "View, create and edit text files.",
        _object(
            "command path",
            command={"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
            **_EDIT,
        ),
    ),
    "memory": (
        "View, create, edit, delete and rename files below /memories, which outlast this talk.",
        _object(
            "command",
            command={
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
            },
            **_EDIT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""By the first word of the types: `text_editor_20250728`."""


def definitions(tools: Iterable[Tool]) -> tuple[ToolDefinition, ...]:
    """Return the client's tools; raises `Invalid` for one that only Anthropic runs."""
    read = (_definition(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in read if tool is not None)


def _definition(tool: Tool, path: str) -> ToolDefinition | None:
    kind = tool.type or "custom"
    if kind not in MESSAGE_TOOLS or MESSAGE_TOOLS[kind].rule == "refused":
        raise refused(MESSAGE_TOOLS, kind, path)
    if kind.startswith("tool_search_tool"):
        # All tools are given at once, whether they are deferred or not.
        return None
    if not tool.name:
        raise Invalid(f"{path}.name: this field is required.")
    description, schema = _BUILT_IN.get(kind.partition("_")[0], (None, tool.input_schema))
    if schema is None:
        raise Invalid(f"{path}.input_schema: this field is required.")
    return ToolDefinition(
        name=tool.name,
        description=tool.description or description,
        parameters=raw(schema),
        strict=tool.strict,
        cache=given(tool.cache_control),
    )
