"""Converts a responses request to a canonical request, as far as others can express it. Pure.

    message (system, developer, user)              one turn each
    message (assistant), reasoning, calls ...      one assistant turn for consecutive items
    outputs of calls ...                           one user turn for consecutive items

Items of a provider's own tools, references to stored items and unknown types are skipped. Objects
with a `type` are decoded twice: first the type and then, if it is known, the rest. An item of an
unknown type may therefore have any fields.

Source: https://platform.openai.com/docs/api-reference/responses/create, and the public gateway's
reference for `stop`, `top_k`, the penalties and `reasoning.max_tokens`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.types import (
    FREEFORM_SCHEMA,
    OPENAI,
    SAMPLING,
    AudioBlock,
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    ReasoningBlock,
    ReasoningParameter,
    RefusalBlock,
    Role,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
    unpack,
)
from tollhouse.inference.formats.media_types import file_url
from tollhouse.inference.formats.proofs import unwrapped
from tollhouse.inference.formats.responses.provider_response import PARAGRAPH
from tollhouse.inference.formats.responses.wire import (
    ResponsesRequest,
    item_decoder,
    reasoning_decoder,
)
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    given,
    given_fields,
    read_at,
    read_typed,
    texts,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class _TextFormat(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    schema: Raw = NULL
    strict: bool | None = None


class _TextConfig(msgspec.Struct):
    format: _TextFormat | None = None
    verbosity: str | None = None


class _RequestBody(msgspec.Struct):
    input: str | list[Raw]
    instructions: str | None = None
    tools: list[Raw] | None = None
    tool_choice: Raw = NULL
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    stop: str | list[str] | None = None
    text: _TextConfig | None = None
    reasoning: ReasoningParameter | None = None
    include: list[str] | None = None
    top_logprobs: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    top_a: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


class _InputMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Raw]


class _TextPart(msgspec.Struct):
    text: str
    cache_control: Raw = NULL


class _RefusalPart(msgspec.Struct):
    refusal: str


class _ImagePart(msgspec.Struct):
    image_url: str | None = None
    detail: str | None = None
    cache_control: Raw = NULL


class _FilePart(msgspec.Struct):
    file_data: str | None = None
    file_url: str | None = None
    filename: str | None = None
    cache_control: Raw = NULL


class _AudioData(msgspec.Struct):
    data: str
    format: str


class _AudioPart(msgspec.Struct):
    input_audio: _AudioData


class _FunctionCall(msgspec.Struct):
    call_id: str
    name: str
    arguments: str


class _CustomCall(msgspec.Struct):
    call_id: str
    name: str
    input: str


class _CallOutput(msgspec.Struct):
    call_id: str
    output: str | list[Raw]


class _Grammar(msgspec.Struct):
    type: str | None = None
    syntax: str | None = None
    definition: str | None = None


class _Tool(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: Raw = NULL
    strict: bool | None = None
    format: _Grammar | None = None
    cache_control: Raw = NULL


class _NamedChoice(msgspec.Struct):
    type: str
    name: str | None = None
    mode: str | None = None


_body: Final = msgspec.json.Decoder(_RequestBody)


def _read_kind(data: Raw, path: str) -> str | None:
    return read_at(item_decoder, data, path).type


# The input

_TEXTS = frozenset({"input_text", "output_text", "text"})
_message = msgspec.json.Decoder(_InputMessage)
_text = msgspec.json.Decoder(_TextPart)
_refusal = msgspec.json.Decoder(_RefusalPart)
_image = msgspec.json.Decoder(_ImagePart)
_file = msgspec.json.Decoder(_FilePart)
_audio = msgspec.json.Decoder(_AudioPart)
_function_call = msgspec.json.Decoder(_FunctionCall)
_custom_call = msgspec.json.Decoder(_CustomCall)
_output = msgspec.json.Decoder(_CallOutput)


class _ParsedItem(NamedTuple):
    """The content of one item."""

    role: Role
    blocks: Sequence[Block]
    merges: bool = False
    """Whether it shares a turn with adjacent items of its role that merge as well."""


def _parse_turns(instructions: str | None, input_: str | Sequence[Raw]) -> tuple[Turn, ...]:
    """Parse a conversation: the system prompt and the input."""
    items = [_ParsedItem("system", [TextBlock(instructions)])] if instructions else []
    if isinstance(input_, str):
        items.append(_ParsedItem("user", [TextBlock(input_)]))
    else:
        read = (_item(item, f"input[{index}]") for index, item in enumerate(input_))
        items += [each for each in read if each is not None]
    return tuple(_merged_turns(items))


def _merged_turns(items: Iterable[_ParsedItem]) -> list[Turn]:
    turns: list[Turn] = []
    for (role, merges), run in groupby(items, lambda each: (each.role, each.merges)):
        if merges:
            turns.append(Turn(role, tuple(block for each in run for block in each.blocks)))
        else:
            turns += [Turn(role, tuple(each.blocks)) for each in run]
    return turns


def _item(data: Raw, path: str) -> _ParsedItem | None:
    kind = _read_kind(data, path) or "message"
    if kind == "message":
        return _read_message(data, path)
    read = _ITEMS.get(kind)
    if read is None:
        return None
    block = read(data, path)
    role: Role = "user" if isinstance(block, ToolResult) else "assistant"
    return _ParsedItem(role, [block], merges=True)


def _read_message(data: Raw, path: str) -> _ParsedItem:
    message = read_at(_message, data, path)
    role: Role = "system" if message.role == "developer" else message.role
    if isinstance(message.content, str):
        blocks: list[Block] = [TextBlock(message.content)]
    else:
        read = _ASSISTANT if role == "assistant" else _USER
        blocks = _parts(message.content, f"{path}.content", read, strict=role != "assistant")
    if role == "system" and not all(isinstance(block, TextBlock) for block in blocks):
        raise Invalid(f"{path}.content: a {message.role} message is made of text alone.")
    return _ParsedItem(role, blocks, merges=role == "assistant")


def _parts(
    parts: Iterable[Raw],
    path: str,
    parsers: Mapping[str, Callable[[Raw, str], Block]],
    *,
    strict: bool,
) -> list[Block]:
    """Parse the parts of a content; types without a parser are skipped unless `strict`."""
    blocks: list[Block] = []
    for index, part in enumerate(parts):
        here = f"{path}[{index}]"
        kind = _read_kind(part, here)
        read = parsers.get(kind or "")
        if read is not None:
            blocks.append(read(part, here))
        elif strict:
            raise Invalid(f"{here}.type: a part of this type cannot be carried to the model.")
    return blocks


def _read_text(data: Raw, path: str) -> TextBlock:
    part = read_at(_text, data, path)
    return TextBlock(part.text, cache=given(part.cache_control))


def _read_refusal(data: Raw, path: str) -> RefusalBlock:
    return RefusalBlock(read_at(_refusal, data, path).refusal)


def _read_image(data: Raw, path: str) -> ImageBlock:
    part = read_at(_image, data, path)
    if part.image_url is None:
        raise Invalid(
            f"{path}.image_url: an image must come as a URL; file ids are not known here."
        )
    return ImageBlock(part.image_url, part.detail, given(part.cache_control))


def _read_file(data: Raw, path: str) -> DocumentBlock:
    part = read_at(_file, data, path)
    url = part.file_url
    if part.file_data is not None:
        url = file_url(part.file_data)
    if url is None:
        raise Invalid(
            f"{path}.file_data: a file must come with its data or a URL; file ids are not known"
            " here."
        )
    return DocumentBlock(url=url, name=part.filename, cache=given(part.cache_control))


def _read_audio(data: Raw, path: str) -> AudioBlock:
    audio = read_at(_audio, data, path).input_audio
    return AudioBlock(audio.data, audio.format)


def _read_function_call(data: Raw, path: str) -> ToolCall:
    call = read_at(_function_call, data, path)
    return ToolCall(call.call_id, call.name, call.arguments)


def _read_custom_call(data: Raw, path: str) -> ToolCall:
    call = read_at(_custom_call, data, path)
    return ToolCall(call.call_id, call.name, encoder.encode({"input": call.input}).decode())


def _read_output(data: Raw, path: str) -> ToolResult:
    result = read_at(_output, data, path)
    if isinstance(result.output, str):
        return ToolResult(result.call_id, (TextBlock(result.output),))
    blocks = _parts(result.output, f"{path}.output", _RESULT, strict=True)
    carried = (TextBlock, ImageBlock, DocumentBlock)
    return ToolResult(result.call_id, tuple(each for each in blocks if isinstance(each, carried)))


def _read_reasoning(data: Raw, path: str) -> ReasoningBlock:
    item = read_at(reasoning_decoder, data, path)
    packed = unpack(item.encrypted_content) if item.encrypted_content else None
    if packed is not None:
        return packed
    summary = PARAGRAPH.join(part.text for part in item.summary or ())
    reasoning_text = "".join(part.text for part in item.content or ())
    maker, own = unwrapped(item.encrypted_content or "")
    return ReasoningBlock(
        text=reasoning_text or summary,
        is_summary=bool(summary) and not reasoning_text,
        encrypted=own or None,
        id=item.id,
        format=OPENAI,
        maker=maker,
    )


_ITEMS: Mapping[str, Callable[[Raw, str], ToolCall | ToolResult | ReasoningBlock]] = {
    "function_call": _read_function_call,
    "custom_tool_call": _read_custom_call,
    "function_call_output": _read_output,
    "custom_tool_call_output": _read_output,
    "reasoning": _read_reasoning,
}
_RESULT: Mapping[str, Callable[[Raw, str], Block]] = {
    **dict.fromkeys(_TEXTS, _read_text),
    "input_image": _read_image,
    "input_file": _read_file,
}
_USER: Mapping[str, Callable[[Raw, str], Block]] = {**_RESULT, "input_audio": _read_audio}
_ASSISTANT: Mapping[str, Callable[[Raw, str], Block]] = {
    **dict.fromkeys(_TEXTS, _read_text),
    "refusal": _read_refusal,
}

# The request

LOGPROBS: Final = "message.output_text.logprobs"
"""The value of `include` that requests log-probabilities."""
_SAMPLING: Final = tuple(name for name in SAMPLING if name != "logit_bias")
_WORDS: Final[Mapping[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "required": "required",
}
_tool = msgspec.json.Decoder(_Tool)
_object = msgspec.json.Decoder(Fields | None)
_choice = msgspec.json.Decoder(str | _NamedChoice | None)


def parse_canonical_request(request: ResponsesRequest) -> CanonicalRequest:
    """Convert a responses request; raises `Invalid` with the path of a field of the wrong type.

    Tools that the provider would run are left out, as no other format has them; if no tool is
    left, the tool parameters are left out as well.
    """
    if request.fields.get("prompt", NULL) != NULL:
        raise Invalid("prompt: a stored prompt is known to OpenAI alone; send its text.")
    body = read_typed(_body, request.body)
    turns = _parse_turns(body.instructions, body.input)
    tools = _tools(body.tools or ())
    choice = _tool_choice(body.tool_choice, tools)
    return CanonicalRequest(
        turns=turns,
        stream=request.stream,
        tools=tools,
        tool_choice=choice if tools else None,
        parallel_tool_calls=body.parallel_tool_calls if tools else None,
        max_tokens=body.max_output_tokens,
        stop=texts(body.stop),
        output=_json_output(body.text),
        thinking=_thinking(body.reasoning),
        verbosity=body.text.verbosity if body.text else None,
        logprobs=LOGPROBS in (body.include or ()) or bool(body.top_logprobs),
        top_logprobs=body.top_logprobs,
        user=body.user,
        metadata=given(request.fields.get("metadata", NULL)),
        sampling=given_fields(request.fields, _SAMPLING),
    )


def _tools(tools: Sequence[Raw]) -> tuple[ToolDefinition, ...]:
    read = (_read_tool(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in read if tool is not None)


def _read_tool(data: Raw, path: str) -> ToolDefinition | None:
    kind = _read_kind(data, path)
    if kind not in {"function", "custom"}:
        return None
    tool = read_at(_tool, data, path)
    cache = given(tool.cache_control)
    if kind == "custom":
        description = _described(tool)
        return ToolDefinition(tool.name, description, FREEFORM_SCHEMA, cache=cache, freeform=True)
    read_at(_object, tool.parameters, f"{path}.parameters")
    parameters = given(tool.parameters)
    return ToolDefinition(tool.name, tool.description, parameters, tool.strict, cache)


def _described(tool: _Tool) -> str | None:
    """Return a custom tool's description with its grammar: other formats have no field for it."""
    if tool.format is None or not tool.format.definition:
        return tool.description
    rule = f"The input must follow this {tool.format.syntax or ''} grammar:"
    return "\n\n".join(filter(None, [tool.description, f"{rule}\n{tool.format.definition}"]))


def _tool_choice(data: Raw, tools: Sequence[ToolDefinition]) -> CanonicalToolChoice | None:
    choice = read_at(_choice, data, "tool_choice")
    if choice is None:
        return None
    if isinstance(choice, str):
        return CanonicalToolChoice(_WORDS.get(choice, "auto"))
    if choice.name is not None and any(tool.name == choice.name for tool in tools):
        return CanonicalToolChoice("named", choice.name)
    return CanonicalToolChoice(_WORDS.get(choice.mode or "", "auto"))


def _json_output(text: _TextConfig | None) -> JsonOutput | None:
    if text is None or text.format is None:
        return None
    wanted = text.format
    if wanted.type == "json_object":
        return JsonOutput()
    if wanted.type != "json_schema":
        return None
    read_at(_object, wanted.schema, "text.format.schema")
    return JsonOutput(given(wanted.schema), wanted.name, wanted.description, wanted.strict)


def _thinking(reasoning: ReasoningParameter | None) -> ThinkingOptions | None:
    thinking = ThinkingOptions() if reasoning is None else reasoning.options()
    return None if thinking == ThinkingOptions() else thinking
