"""Converts a messages request to a canonical request.

Source: https://docs.anthropic.com/en/api/messages
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.canonical.blocks import Block, Role, ToolResult, Turn
from tollhouse.inference.formats.canonical.request import (
    CanonicalRequest,
    CanonicalToolChoice,
    JsonOutput,
    ThinkingOptions,
    ToolDefinition,
)
from tollhouse.inference.formats.fields import Fields, read_typed
from tollhouse.inference.formats.messages.content_parser import parse_content
from tollhouse.inference.formats.raw_json import NULL, raw
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.inference.formats.messages.request import MessagesRequest


class _Message(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Raw]


class _Tool(Struct):
    name: str | None = None
    description: str | None = None
    input_schema: Fields | None = None
    strict: bool | None = None
    cache_control: Raw = NULL


class _ToolChoice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _Thinking(Struct):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class _Format(Struct):
    type: str
    schema: Fields | None = None


class _OutputConfig(Struct):
    effort: str | None = None
    format: _Format | None = None


class _Metadata(Struct):
    user_id: str | None = None


class _Body(Struct):
    messages: list[_Message]
    system: str | list[Raw] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None
    stop_sequences: list[str] | None = None
    metadata: _Metadata | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    service_tier: str | None = None


_body = msgspec.json.Decoder(_Body)
_MODES: Final[Mapping[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "any": "required",
}
_TIERS: Final = {"standard_only": "default"}
"""Anthropic's service tiers to the common names."""


def parse_canonical_request(request: MessagesRequest) -> CanonicalRequest:
    """Convert a messages request to a canonical request.

    Raises:
        Invalid: A field is of the wrong type or missing; the message begins with its path.
    """
    body = read_typed(_body, request.body)
    tools = _tools(body.tools or ())
    choice = body.tool_choice
    return CanonicalRequest(
        turns=(*_system(body.system), *_turns(body.messages)),
        stream=request.stream,
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        max_tokens=request.max_tokens,
        stop=tuple(body.stop_sequences or ()),
        output=_output(body),
        thinking=_thinking(body),
        user=body.metadata.user_id if body.metadata else None,
        sampling=_sampling(body, request.fields),
    )


def _system(system: str | list[Raw] | None) -> tuple[Turn, ...]:
    blocks = parse_content(system or (), "system")
    return (Turn("system", blocks),) if blocks else ()


def _turns(messages: list[_Message]) -> list[Turn]:
    turns: list[Turn] = []
    for position, message in enumerate(messages):
        role: Role = message.role
        path = f"messages[{position}].content"
        blocks = parse_content(message.content, path, keeps_unknown=role != "assistant")
        if blocks:
            turns.append(Turn(role, tuple(sorted(blocks, key=_is_no_result))))
    return turns


def _is_no_result(block: Block) -> bool:
    """Sort tool results first, and keep the order of the rest."""
    return not isinstance(block, ToolResult)


def _tools(given: list[_Tool] | tuple[()]) -> tuple[ToolDefinition, ...]:
    """Return the client's tools; Anthropic's own have no schema and are left out."""
    return tuple(
        _tool(tool, position)
        for position, tool in enumerate(given)
        if tool.input_schema is not None
    )


def _tool(tool: _Tool, position: int) -> ToolDefinition:
    if not tool.name:
        message = f"tools[{position}].name: this field is required."
        raise Invalid(message)
    return ToolDefinition(
        name=tool.name,
        description=tool.description,
        parameters=raw(tool.input_schema),
        strict=tool.strict,
        cache=None if tool.cache_control == NULL else tool.cache_control,
    )


def _tool_choice(
    given: _ToolChoice | None, tools: tuple[ToolDefinition, ...]
) -> CanonicalToolChoice | None:
    """Return the tool choice; None if the tool that it names is not there."""
    if given is None or not tools:
        return None
    if given.type != "tool":
        return CanonicalToolChoice(_MODES[given.type])
    if not given.name:
        message = "tool_choice.name: this field is required."
        raise Invalid(message)
    known = any(tool.name == given.name for tool in tools)
    return CanonicalToolChoice("named", given.name) if known else None


def _thinking(body: _Body) -> ThinkingOptions | None:
    effort = body.output_config.effort if body.output_config else None
    given = body.thinking
    if given is None:
        return None if effort is None else ThinkingOptions(effort=effort)
    return ThinkingOptions(
        effort=effort,
        budget_tokens=given.budget_tokens,
        enabled=given.type != "disabled",
        summary="auto" if given.display == "summarized" else None,
    )


def _output(body: _Body) -> JsonOutput | None:
    given = (body.output_config and body.output_config.format) or body.output_format
    if given is None or given.type != "json_schema" or given.schema is None:
        return None
    return JsonOutput(schema=raw(given.schema))


def _sampling(body: _Body, fields: Fields) -> Mapping[str, Raw]:
    names = ("temperature", "top_p", "top_k")
    sampling = {name: fields[name] for name in names if getattr(body, name) is not None}
    if body.service_tier is not None:
        sampling["service_tier"] = raw(_TIERS.get(body.service_tier, body.service_tier))
    return sampling
