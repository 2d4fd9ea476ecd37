"""Converts clients' messages requests to canonical ones, and these to providers'. Pure.

`messages_content.py` has the blocks. Anthropic's models know the schemas of its own tools; other
models have to be told. The client gets the calls as it does Anthropic's: as `tool_use` of the
tool's name.

What a provider gets:

    system turns              -> `system`, in order
    user and assistant turns  -> `messages`; consecutive turns of one role are one message
    thinking of older models  -> thinking{enabled, budget_tokens}: a share of max_tokens
    thinking of newer models  -> thinking{adaptive}, output_config{effort}

Source: https://docs.anthropic.com/en/api/messages and, below https://docs.anthropic.com/en/docs/,
agents-and-tools/tool-use/ (bash-tool, text-editor-tool and memory-tool for the schemas,
tool-search-tool for `defer_loading`), build-with-claude/extended-thinking,
build-with-claude/effort, and build-with-claude/adaptive-thinking (Opus 4.7 and later take no
budget, and no sampling parameters)
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.canonical import (
    FREEFORM_SCHEMA,
    CanonicalRequest,
    CanonicalToolChoice,
    JsonOutput,
    TextBlock,
    ThinkingOptions,
    ToolDefinition,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.kinds import MESSAGE_TOOLS, refused
from tollhouse.inference.formats.messages import DEFAULT_MAX_TOKENS, refused_in_messages
from tollhouse.inference.formats.messages_content import (
    parse_content,
    render_turns,
)
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    fields_decoder,
    given,
    present,
    raw,
    read_typed,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tollhouse.inference.formats.messages import MessagesRequest
    from tollhouse.inference.types import Endpoint

    Content = dict[str, object]
    Mode = Literal["auto", "none", "required", "named"]

# Tools


class _Tool(Struct):
    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: Fields | None = None
    strict: bool | None = None
    cache_control: Raw = NULL


def _object(required: str, **properties: object) -> Content:
    return {"type": "object", "properties": properties, "required": required.split()}


def _one_of(words: str) -> Content:
    return {"type": "string", "enum": words.split()}


_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_EDIT: Final = {
    "path": _TEXT,
    "view_range": {"type": "array", "items": _NUMBER},
    "old_str": _TEXT,
    "new_str": _TEXT,
    "file_text": _TEXT,
    "insert_line": _NUMBER,
    "insert_text": _TEXT,
}
_BUILT_IN: Final[Mapping[str, tuple[str, Content]]] = {
    "bash": (
        "Run a command in a lasting bash session, or restart the session.",
        _object("", command=_TEXT, restart={"type": "boolean"}),
    ),
    "text": (
        "View, create and edit text files.",
        _object("command path", command=_one_of("view create str_replace insert"), **_EDIT),
    ),
    "memory": (
        "View, create, edit, delete and rename files below /memories, which outlast this talk.",
        _object(
            "command",
            command=_one_of("view create str_replace insert delete rename"),
            **_EDIT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""By the first word of the types: `text_editor_20250728`."""


def _definitions(tools: Iterable[_Tool]) -> Iterator[ToolDefinition]:
    for position, tool in enumerate(tools):
        kind, path = tool.type or "custom", f"tools[{position}]"
        if kind not in MESSAGE_TOOLS or MESSAGE_TOOLS[kind].rule == "refused":
            raise refused(MESSAGE_TOOLS, kind, path)
        if kind.startswith("tool_search_tool"):
            # All tools are given at once, whether they are deferred or not.
            continue
        if not tool.name:
            raise Invalid(f"{path}.name: this field is required.")
        description, schema = _BUILT_IN.get(kind.partition("_")[0], (None, tool.input_schema))
        if schema is None:
            raise Invalid(f"{path}.input_schema: this field is required.")
        yield ToolDefinition(
            name=tool.name,
            description=tool.description or description,
            parameters=raw(schema),
            strict=tool.strict,
            cache=given(tool.cache_control),
        )


class _ToolChoice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


_MODES: Final[Mapping[Mode, str]] = {
    "auto": "auto",
    "none": "none",
    "required": "any",
    "named": "tool",
}
_MODE_OF: Final[Mapping[str, Mode]] = {theirs: ours for ours, theirs in _MODES.items()}


def _canonical_choice(
    choice: _ToolChoice | None, tools: Iterable[ToolDefinition]
) -> CanonicalToolChoice | None:
    """Return the tool choice; None if the tool that it names is not there."""
    if choice is None or not tools:
        return None
    if choice.type != "tool":
        return CanonicalToolChoice(_MODE_OF[choice.type])
    if not choice.name:
        raise Invalid("tool_choice.name: this field is required.")
    known = any(tool.name == choice.name for tool in tools)
    return CanonicalToolChoice("named", choice.name) if known else None


_NO_PARAMETERS: Final[Content] = {"type": "object", "properties": {}}


def _tool(tool: ToolDefinition) -> Content:
    schema = None if tool.parameters is None else try_decode(fields_decoder, tool.parameters)
    # Anthropic requires the type, which every function's schema implies.
    taken = _NO_PARAMETERS if schema is None else {"type": "object", **schema}
    return present(
        {
            "name": tool.name,
            "description": tool.description,
            "strict": tool.strict or None,
            "cache_control": tool.cache,
            "input_schema": FREEFORM_SCHEMA if tool.freeform else taken,
        }
    )


def _tool_choice(prompt: CanonicalRequest) -> Content | None:
    if not prompt.tools:
        return None
    choice = prompt.tool_choice
    told: Content = {"type": _MODES[choice.mode] if choice else "auto"}
    if choice and choice.name is not None:
        told["name"] = choice.name
    if prompt.parallel_tool_calls is False and told["type"] != "none":
        told["disable_parallel_tool_use"] = True
    return told if choice or len(told) > 1 else None


# A client's request


class _Message(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Raw]


class _ThinkingConfig(Struct):
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
    mcp_servers: list[Raw] | None = None
    system: str | list[Raw] | None = None
    tools: list[_Tool] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _ThinkingConfig | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None
    stop_sequences: list[str] | None = None
    metadata: _Metadata | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    service_tier: str | None = None


_body = msgspec.json.Decoder(_Body)
_TIERS: Final = {"auto": "auto", "default": "standard_only", "standard_only": "standard_only"}


def parse_canonical_request(request: MessagesRequest, given: bytes) -> CanonicalRequest:
    """Convert a messages request; raises `Invalid` with the path of a field of the wrong type."""
    body = read_typed(_body, given)
    if body.mcp_servers:
        raise Invalid("mcp_servers: only Anthropic asks them itself; give their tools as tools.")
    tools = tuple(_definitions(body.tools or ()))
    choice = body.tool_choice
    return CanonicalRequest(
        turns=tuple(_turns(body)),
        stream=request.stream,
        tools=tools,
        tool_choice=_canonical_choice(choice, tools),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        max_tokens=request.max_tokens,
        stop=tuple(body.stop_sequences or ()),
        output=_output(body),
        thinking=_thinking_options(body),
        user=body.metadata.user_id if body.metadata else None,
        sampling=_canonical_sampling(body, request.fields),
    )


def _turns(body: _Body) -> Iterator[Turn]:
    if system := parse_content(body.system or (), "system"):
        yield Turn("system", system)
    for position, message in enumerate(body.messages):
        if blocks := parse_content(message.content, f"messages[{position}].content"):
            # Tool results come first; the rest keeps its order.
            ordered = sorted(blocks, key=lambda block: not isinstance(block, ToolResult))
            yield Turn(message.role, tuple(ordered))


def _thinking_options(body: _Body) -> ThinkingOptions | None:
    effort = body.output_config.effort if body.output_config else None
    config = body.thinking
    if config is None:
        return None if effort is None else ThinkingOptions(effort=effort)
    return ThinkingOptions(
        effort=effort,
        budget_tokens=config.budget_tokens,
        enabled=config.type != "disabled",
        summary="auto" if config.display == "summarized" else None,
    )


def _output(body: _Body) -> JsonOutput | None:
    wanted = (body.output_config and body.output_config.format) or body.output_format
    if wanted is None or wanted.type != "json_schema" or wanted.schema is None:
        return None
    return JsonOutput(schema=raw(wanted.schema))


def _canonical_sampling(body: _Body, fields: Fields) -> Mapping[str, Raw]:
    names = ("temperature", "top_p", "top_k")
    sampling = {name: fields[name] for name in names if getattr(body, name) is not None}
    if body.service_tier is not None:
        tier = "default" if body.service_tier == "standard_only" else body.service_tier
        sampling["service_tier"] = raw(tier)
    return sampling


# A provider's request

_VERSION: Final = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?!\d)(?:[-.](\d{1,2})(?!\d))?")
_LAST_WITH_BUDGET: Final = (4, 5)
"""Until then models take a thinking budget in tokens, and neither `adaptive` nor `effort`."""
_LAST_WITH_SAMPLING: Final = (4, 6)
"""Until then models take temperature, top_p and top_k."""
_NEWEST: Final = (99, 0)
_SHARES: Final[Mapping[str, float]] = {
    "minimal": 0.1,
    "low": 0.2,
    "medium": 0.5,
    "high": 0.8,
    "xhigh": 0.95,
    "max": 0.95,
}
"""The share of `max_tokens` for each effort."""
_EFFORTS: Final = {effort: effort for effort in _SHARES} | {"minimal": "low"}
_USUAL: Final = "medium"
_LEAST_BUDGET: Final = 1024
_LEAST_TOP_P: Final = 0.95
"""While the model reasons."""
_ANY_OBJECT: Final = (
    "Answer with one valid JSON object and nothing else: no text around it and no code fence."
)
_MOST_BREAKPOINTS: Final = 4
_number: Final = msgspec.json.Decoder(float)


def render_request(prompt: CanonicalRequest, endpoint: Endpoint) -> bytes:
    """Return the provider's request body; raises `NotCarriedError`."""
    turns, schema = prompt.turns, prompt.output and prompt.output.schema
    if prompt.output is not None and schema is None:
        # The dialect has no mode for any JSON object, so the model is instructed.
        turns = (*turns, Turn("system", (TextBlock(_ANY_OBJECT),)))
    system, messages = render_turns(turns, endpoint.provider)
    max_tokens, thinking, effort = _thinking_plan(prompt, endpoint)
    output = schema and {"type": "json_schema", "schema": schema}
    fields: Content = {
        "model": endpoint.model,
        "max_tokens": max_tokens,
        "system": system,
        "messages": messages,
        "tools": [_tool(tool) for tool in prompt.tools],
        "tool_choice": _tool_choice(prompt),
        "stop_sequences": [each for each in prompt.stop if each.strip()],
        "thinking": thinking,
        "output_config": present({"effort": effort, "format": output}),
        "metadata": {"user_id": prompt.user} if prompt.user else None,
        "stream": prompt.stream,
        "cache_control": prompt.cache,
    }
    _drop_surplus_breakpoints(fields)
    # Anthropic rejects null; an empty list means the same as an absent field.
    told = {name: value for name, value in fields.items() if value or name == "messages"}
    told |= _sampling(prompt, endpoint, thinks=thinking is not None)
    return encoder.encode(without(told, refused_in_messages(endpoint.profile)))


def _drop_surplus_breakpoints(fields: Mapping[str, Any]) -> None:
    """Leave at most four breakpoints, the last ones: what each caches begins with all before it.

    That of the request counts. Source: build-with-claude/prompt-caching.
    """
    blocks = [*fields["tools"], *fields["system"]]
    for part in (part for message in fields["messages"] for part in message["content"]):
        inside = part.get("content", ()) if part["type"] == "tool_result" else ()
        blocks += [*inside, part]
    cached = [block for block in blocks if "cache_control" in block]
    most = _MOST_BREAKPOINTS - (fields["cache_control"] is not None)
    for block in cached[: max(0, len(cached) - most)]:
        del block["cache_control"]


def _claude_version(model: str) -> tuple[int, int] | None:
    """Return the version in a provider's name of a model: `claude-sonnet-4-20250514` has 4.0.

    An unknown model of Claude counts as new; other models have none.
    """
    name = model.lower()
    if "claude" not in name:
        return None
    match = _VERSION.search(name)
    return (int(match[1]), int(match[2] or 0)) if match else _NEWEST


def _wants_thinking(prompt: CanonicalRequest, thinking: ThinkingOptions) -> bool:
    """Return whether the model is to reason: not with a forced tool or a prefilled answer.

    Anthropic rejects either one together with thinking.
    """
    if thinking.enabled is False or thinking.effort == "none":
        return False
    choice = prompt.tool_choice
    forced = bool(prompt.tools) and choice is not None and choice.mode in {"required", "named"}
    begun = bool(prompt.turns) and prompt.turns[-1].role == "assistant"
    wanted = bool(thinking.enabled or thinking.budget_tokens or thinking.effort)
    return wanted and not forced and not begun


def _thinking_plan(
    prompt: CanonicalRequest, endpoint: Endpoint
) -> tuple[int, Content | None, str | None]:
    """Return `max_tokens`, `thinking` and the effort.

    The limit of reasoning and answer together is raised if a budget would leave nothing for the
    answer.
    """
    thinking, most = prompt.thinking, endpoint.max_completion_tokens
    limit = prompt.max_tokens or most or DEFAULT_MAX_TOKENS
    if thinking is None or not _wants_thinking(prompt, thinking):
        return limit, None, None
    version = _claude_version(endpoint.model)
    if version is None or version > _LAST_WITH_BUDGET:
        shows = thinking.summary is not None and not thinking.exclude
        display: Content = {"display": "summarized"} if shows else {}
        return limit, {"type": "adaptive", **display}, _EFFORTS.get(thinking.effort or "")
    share = _SHARES.get(thinking.effort or "", _SHARES[_USUAL])
    budget = max(_LEAST_BUDGET, thinking.budget_tokens or int(share * limit))
    if budget >= limit:
        limit += budget
        if most is not None and most > _LEAST_BUDGET:
            limit = min(limit, most)
            budget = min(budget, limit - 1)
    return limit, {"type": "enabled", "budget_tokens": budget}, None


def _sampling(prompt: CanonicalRequest, endpoint: Endpoint, *, thinks: bool) -> Content:
    asked = prompt.sampling
    sampling: Content = {}
    tier = try_decode(text_decoder, asked.get("service_tier", NULL))
    if tier in _TIERS:
        sampling["service_tier"] = _TIERS[tier]
    version = _claude_version(endpoint.model)
    if version is not None and version > _LAST_WITH_SAMPLING:
        return sampling
    top_p = try_decode(_number, asked.get("top_p", NULL))
    if thinks:
        return sampling | ({"top_p": top_p} if top_p and top_p >= _LEAST_TOP_P else {})
    temperature = try_decode(_number, asked.get("temperature", NULL))
    if "top_k" in asked:
        sampling["top_k"] = asked["top_k"]
    if temperature is not None:
        # Newer models reject top_p together with temperature.
        return sampling | {"temperature": min(1.0, max(0.0, temperature))}
    return sampling if top_p is None else sampling | {"top_p": top_p}
