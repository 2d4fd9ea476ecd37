"""Converts a responses request to a canonical request.

Source: https://platform.openai.com/docs/api-reference/responses/create, and the public gateway's
reference for its additions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.request import (
    CanonicalRequest,
    CanonicalToolChoice,
    JsonOutput,
    ThinkingOptions,
    ToolDefinition,
)
from tollhouse.inference.formats.fields import Fields, read_typed
from tollhouse.inference.formats.raw_json import NULL, raw
from tollhouse.inference.formats.responses import request_schema as shapes
from tollhouse.inference.formats.responses.input_parser import parse_turns
from tollhouse.inference.formats.responses.request_schema import body_decoder, read_at, read_kind
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tollhouse.inference.formats.responses.request import ResponsesRequest

LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` that requests log-probabilities."""
_SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_a",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "prompt_cache_key",
    "service_tier",
    "safety_identifier",
)
_FREEFORM_SCHEMA: Final = raw(
    {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
)
_WORDS: Final[Mapping[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}
_tool = msgspec.json.Decoder(shapes.ResponsesTool)
_object = msgspec.json.Decoder(Fields | None)
_choice = msgspec.json.Decoder(str | shapes.NamedChoice | None)


def parse_canonical_request(request: ResponsesRequest) -> CanonicalRequest:
    """Convert a responses request to a canonical request.

    Tools that the provider would run are left out, as no other format has them; if no tool is
    left, the tool parameters are left out as well.

    Raises:
        Invalid: A field is of the wrong type or missing; the message begins with its path.
    """
    if request.fields.get("prompt", NULL) != NULL:
        message = "prompt: a stored prompt is known to OpenAI alone; send its text."
        raise Invalid(message)
    body = read_typed(body_decoder, request.body)
    turns = parse_turns(body.instructions, body.input)
    tools = _tools(body.tools or ())
    stop = [body.stop] if isinstance(body.stop, str) else body.stop
    choice = _tool_choice(body.tool_choice, tools)
    return CanonicalRequest(
        turns=turns,
        stream=request.stream,
        tools=tools,
        tool_choice=choice if tools else None,
        parallel_tool_calls=body.parallel_tool_calls if tools else None,
        max_tokens=body.max_output_tokens,
        stop=tuple(stop or ()),
        output=_output(body.text),
        thinking=_thinking(body.reasoning),
        verbosity=body.text.verbosity if body.text else None,
        logprobs=LOGPROBS in (body.include or ()) or bool(body.top_logprobs),
        top_logprobs=body.top_logprobs,
        user=body.user,
        metadata=_given(request.fields, "metadata"),
        sampling={
            name: value for name in _SAMPLING if (value := _given(request.fields, name)) is not None
        },
    )


def _given(fields: Fields, name: str) -> Raw | None:
    value = fields.get(name, NULL)
    return None if value == NULL else value


def _tools(given: Sequence[Raw]) -> tuple[ToolDefinition, ...]:
    read = (_read_tool(tool, f"tools[{index}]") for index, tool in enumerate(given))
    return tuple(tool for tool in read if tool is not None)


def _read_tool(data: Raw, path: str) -> ToolDefinition | None:
    kind = read_kind(data, path)
    if kind not in {"function", "custom"}:
        return None
    tool = read_at(_tool, data, path)
    cache = None if tool.cache_control == NULL else tool.cache_control
    if kind == "custom":
        description = _described(tool)
        return ToolDefinition(tool.name, description, _FREEFORM_SCHEMA, cache=cache, freeform=True)
    read_at(_object, tool.parameters, f"{path}.parameters")
    parameters = None if tool.parameters == NULL else tool.parameters
    return ToolDefinition(tool.name, tool.description, parameters, tool.strict, cache)


def _described(tool: shapes.ResponsesTool) -> str | None:
    """Return a custom tool's description with its grammar: other formats have no field for it."""
    if tool.format is None or not tool.format.definition:
        return tool.description
    rule = f"The input must follow this {tool.format.syntax or ''} grammar:"
    return "\n\n".join(filter(None, [tool.description, f"{rule}\n{tool.format.definition}"]))


def _tool_choice(given: Raw, tools: Sequence[ToolDefinition]) -> CanonicalToolChoice | None:
    choice = read_at(_choice, given, "tool_choice")
    if choice is None:
        return None
    if isinstance(choice, str):
        return CanonicalToolChoice(_WORDS.get(choice, "auto"))
    if choice.name is not None and any(tool.name == choice.name for tool in tools):
        return CanonicalToolChoice("named", choice.name)
    return CanonicalToolChoice(_WORDS.get(choice.mode or "", "auto"))


def _output(text: shapes.TextConfig | None) -> JsonOutput | None:
    if text is None or text.format is None:
        return None
    wanted = text.format
    if wanted.type == "json_object":
        return JsonOutput()
    if wanted.type != "json_schema":
        return None
    read_at(_object, wanted.schema, "text.format.schema")
    schema = None if wanted.schema == NULL else wanted.schema
    return JsonOutput(schema, wanted.name, wanted.description, wanted.strict)


def _thinking(reasoning: shapes.ReasoningConfig | None) -> ThinkingOptions | None:
    if reasoning is None:
        return None
    thinking = ThinkingOptions(
        effort=reasoning.effort,
        budget_tokens=reasoning.max_tokens,
        enabled=reasoning.enabled,
        summary=reasoning.summary,
        exclude=bool(reasoning.exclude),
    )
    return None if thinking == ThinkingOptions() else thinking
