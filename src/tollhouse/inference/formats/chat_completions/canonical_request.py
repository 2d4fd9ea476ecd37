"""Converts a chat request to a canonical request.

Source: https://platform.openai.com/docs/api-reference/chat/create, and the public gateway's
additions to it (`reasoning`, `reasoning_details`, `cache_control`).
"""

from __future__ import annotations

from itertools import groupby
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from tollhouse.inference.formats.canonical.blocks import (
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.canonical.request import (
    CanonicalRequest,
    CanonicalToolChoice,
    JsonOutput,
    ThinkingOptions,
    ToolDefinition,
)
from tollhouse.inference.formats.chat_completions.reasoning import ReasoningDetail, parse_details
from tollhouse.inference.formats.fields import Fields, read_typed
from tollhouse.inference.formats.raw_json import NULL
from tollhouse.kernel.errors import Invalid

SAMPLING: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "top_a",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "seed",
    "logit_bias",
    "prompt_cache_key",
    "service_tier",
    "safety_identifier",
)
"""Parameters whose value is passed on unchanged."""

_RESULTS: Final = frozenset({"tool", "function"})
AtLeastOne = Annotated[int, Meta(ge=1)]


class _Url(Struct):
    url: str
    detail: str | None = None


class _File(Struct):
    filename: str | None = None
    file_data: str | None = None
    file_id: str | None = None


class _Recording(Struct):
    data: str
    format: str


class _Part(Struct):
    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: _Url | str | None = None
    file: _File | None = None
    input_audio: _Recording | None = None
    cache_control: Raw = NULL


class _Function(Struct):
    name: str
    arguments: str = ""


class _Custom(Struct):
    name: str
    input: str = ""


class _Call(Struct):
    id: str
    function: _Function | None = None
    custom: _Custom | None = None


class _Message(Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[_Part] | None = None
    refusal: str | None = None
    tool_calls: list[_Call] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    reasoning_details: list[ReasoningDetail] | None = None


class _ToolFunction(Struct):
    name: str
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None


class _CustomTool(Struct):
    name: str
    description: str | None = None


class _Tool(Struct):
    type: str = "function"
    function: _ToolFunction | None = None
    custom: _CustomTool | None = None
    cache_control: Raw = NULL


class _Named(Struct):
    name: str


class _Choice(Struct):
    type: str
    function: _Named | None = None
    custom: _Named | None = None


class _Schema(Struct):
    name: str | None = None
    description: str | None = None
    schema: Raw = NULL
    strict: bool | None = None


class _Format(Struct):
    type: str
    json_schema: _Schema | None = None


class _Reasoning(Struct):
    effort: str | None = None
    max_tokens: int | None = None
    enabled: bool | None = None
    summary: str | None = None
    exclude: bool | None = None


class _Body(Struct):
    messages: list[_Message]
    stream: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    parallel_tool_calls: bool | None = None
    max_tokens: AtLeastOne | None = None
    max_completion_tokens: AtLeastOne | None = None
    stop: str | list[str] | None = None
    response_format: _Format | None = None
    reasoning: _Reasoning | None = None
    reasoning_effort: str | None = None
    include_reasoning: bool | None = None
    verbosity: str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    n: AtLeastOne | None = None
    user: str | None = None
    metadata: Raw = NULL


_body = msgspec.json.Decoder(_Body)


def parse_canonical_request(body: bytes, fields: Fields) -> CanonicalRequest:
    """Convert a chat request to a canonical request.

    Args:
        body: The request's body.
        fields: Its top-level fields.

    Raises:
        Invalid: A field is of the wrong type or missing; the message begins with its path.
    """
    read = read_typed(_body, body)
    return CanonicalRequest(
        turns=_turns(read.messages),
        stream=bool(read.stream),
        tools=tuple(filter(None, map(_tool, read.tools or ()))),
        tool_choice=_tool_choice(read.tool_choice),
        parallel_tool_calls=read.parallel_tool_calls,
        max_tokens=read.max_completion_tokens or read.max_tokens,
        stop=(read.stop,) if isinstance(read.stop, str) else tuple(read.stop or ()),
        output=_output(read.response_format),
        thinking=_thinking(read),
        verbosity=read.verbosity,
        logprobs=bool(read.logprobs),
        top_logprobs=read.top_logprobs,
        choices=read.n,
        user=read.user,
        metadata=_given(read.metadata),
        sampling={name: fields[name] for name in SAMPLING if fields.get(name, NULL) != NULL},
    )


def _given(value: Raw) -> Raw | None:
    return None if value == NULL else value


# Messages


def _turns(messages: list[_Message]) -> tuple[Turn, ...]:
    """Return a turn for each message, and one for consecutive tool results."""
    turns: list[Turn] = []
    placed = ((f"messages[{index}]", message) for index, message in enumerate(messages))
    for is_result, run in groupby(placed, lambda each: each[1].role in _RESULTS):
        if is_result:
            turns.append(Turn("user", tuple(_result(message, at) for at, message in run)))
        else:
            turns += [_turn(message, at) for at, message in run]
    return tuple(turns)


def _turn(message: _Message, at: str) -> Turn:
    if message.role == "assistant":
        return Turn("assistant", _said(message, at))
    role = "user" if message.role == "user" else "system"
    return Turn(role, _content(message.content, at))


def _result(message: _Message, at: str) -> ToolResult:
    call_id = message.tool_call_id or message.name
    if call_id is None:
        raise Invalid(f"{at}.tool_call_id: this field is required.")
    blocks = _content(message.content, at)
    content = tuple(
        each for each in blocks if isinstance(each, (TextBlock, ImageBlock, DocumentBlock))
    )
    return ToolResult(call_id, content)


def _said(message: _Message, at: str) -> tuple[Block, ...]:
    blocks: list[Block] = [*_reasoning(message), *_content(message.content, at, of_model=True)]
    if message.refusal:
        blocks.append(RefusalBlock(message.refusal))
    for call in message.tool_calls or ():
        if call.function is not None:
            blocks.append(ToolCall(call.id, call.function.name, call.function.arguments))
        elif call.custom is not None:
            arguments = msgspec.json.encode({"input": call.custom.input}).decode()
            blocks.append(ToolCall(call.id, call.custom.name, arguments))
    return tuple(blocks)


def _reasoning(message: _Message) -> list[ReasoningBlock]:
    if message.reasoning_details:
        return parse_details(message.reasoning_details)
    text = message.reasoning or message.reasoning_content
    return [ReasoningBlock(text)] if text else []


def _content(
    content: str | list[_Part] | None, at: str, *, of_model: bool = False
) -> tuple[Block, ...]:
    if content is None:
        return ()
    if isinstance(content, str):
        return (TextBlock(content),)
    parts = (
        _part(each, f"{at}.content[{index}]", of_model=of_model)
        for index, each in enumerate(content)
    )
    return tuple(each for each in parts if each is not None)


def _part(part: _Part, at: str, *, of_model: bool) -> Block | None:
    cache = _given(part.cache_control)
    if part.text is not None:
        return TextBlock(part.text, cache)
    if part.refusal is not None:
        return RefusalBlock(part.refusal)
    if isinstance(part.image_url, str):
        return ImageBlock(part.image_url, cache=cache)
    if part.image_url is not None:
        return ImageBlock(part.image_url.url, part.image_url.detail, cache)
    if part.file is not None:
        return _file(part.file, at, cache)
    return _recording(part, at, of_model=of_model)


def _recording(part: _Part, at: str, *, of_model: bool) -> AudioBlock | None:
    """Return an audio part; reject any other part that is left."""
    if part.input_audio is not None:
        return AudioBlock(part.input_audio.data, part.input_audio.format)
    if part.type in {"text", "image_url", "file", "input_audio"}:
        raise Invalid(f"{at}.{part.type}: this field is required.")
    if of_model:
        # Another model's output of an unknown type; the user cannot change it.
        return None
    raise Invalid(f"{at}.type: {part.type[:40]!r} is not supported here.")


def _file(file: _File, at: str, cache: Raw | None) -> DocumentBlock:
    if file.file_data is None:
        raise Invalid(f"{at}.file.file_data: is required; an id of a file is known to nobody here.")
    return DocumentBlock(url=file.file_data, name=file.filename, cache=cache)


# Tools and the shape of the answer


def _tool(tool: _Tool) -> ToolDefinition | None:
    """Return a tool that the client runs; None for a provider's own tool."""
    cache = _given(tool.cache_control)
    if tool.custom is not None:
        return ToolDefinition(tool.custom.name, tool.custom.description, cache=cache, freeform=True)
    if tool.function is None:
        return None
    given = tool.function
    parameters = _given(given.parameters)
    return ToolDefinition(given.name, given.description, parameters, given.strict, cache)


def _tool_choice(choice: str | _Choice | None) -> CanonicalToolChoice | None:
    if isinstance(choice, _Choice):
        named = choice.function or choice.custom
        return None if named is None else CanonicalToolChoice("named", named.name)
    if choice == "auto" or choice == "none" or choice == "required":  # noqa: PLR1714 - narrows
        return CanonicalToolChoice(choice)
    if choice is not None:
        message = "tool_choice: must be auto, none, required or an object that names a tool."
        raise Invalid(message)
    return None


def _output(wanted: _Format | None) -> JsonOutput | None:
    if wanted is None or wanted.type not in {"json_object", "json_schema"}:
        return None
    given = wanted.json_schema
    if given is None:
        return JsonOutput()
    return JsonOutput(_given(given.schema), given.name, given.description, given.strict)


def _thinking(body: _Body) -> ThinkingOptions | None:
    given = body.reasoning
    hidden = body.include_reasoning is False
    if given is None:
        thinking = ThinkingOptions(effort=body.reasoning_effort, exclude=hidden)
        return None if thinking == ThinkingOptions() else thinking
    return ThinkingOptions(
        effort=given.effort or body.reasoning_effort,
        budget_tokens=given.max_tokens,
        enabled=given.enabled,
        summary=given.summary,
        exclude=hidden or bool(given.exclude),
    )
