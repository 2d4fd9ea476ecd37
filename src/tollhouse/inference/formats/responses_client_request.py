"""Converts a responses request to a canonical request, as far as others can express it. Pure.

    message (system, developer, user)              one turn each
    message (assistant), reasoning, calls ...      one assistant turn for consecutive items
    outputs of calls ...                           one user turn for consecutive items

What becomes of each type of item, tool and part says `formats.kinds`; unknown types are refused.
Objects with a `type` are decoded twice: first the type and then the rest.

Source: https://platform.openai.com/docs/api-reference/responses/create, and the public gateway's
reference for `stop`, `top_k`, the penalties and `reasoning.max_tokens`.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.types import (
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
    ToolResult,
    Turn,
    unpack,
)
from tollhouse.inference.formats.kinds import PARTS, TOOLS, Kind, refused
from tollhouse.inference.formats.media_types import data_url, file_block, recording
from tollhouse.inference.formats.proofs import unwrapped
from tollhouse.inference.formats.responses_client_items import (
    ParsedItem,
    read_item,
    read_kind,
    tools_of,
)
from tollhouse.inference.formats.responses_client_tools import RequestTools
from tollhouse.inference.formats.responses_provider_response import PARAGRAPH
from tollhouse.inference.formats.responses_wire import (
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


class _AgentMessage(msgspec.Struct):
    content: str | list[Raw]
    author: str = "an agent"
    recipient: str = "you"


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
    namespace: str | None = None


class _CustomCall(msgspec.Struct):
    call_id: str
    name: str
    input: str
    namespace: str | None = None


class _CallOutput(msgspec.Struct):
    call_id: str
    output: str | list[Raw]


class _NamedChoice(msgspec.Struct):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: str | None = None


_body: Final = msgspec.json.Decoder(_RequestBody)


# The input

_TEXTS = frozenset({"input_text", "output_text", "text"})
_message = msgspec.json.Decoder(_InputMessage)
_agent_message = msgspec.json.Decoder(_AgentMessage)
_text = msgspec.json.Decoder(_TextPart)
_refusal = msgspec.json.Decoder(_RefusalPart)
_image = msgspec.json.Decoder(_ImagePart)
_file = msgspec.json.Decoder(_FilePart)
_audio = msgspec.json.Decoder(_AudioPart)
_function_call = msgspec.json.Decoder(_FunctionCall)
_custom_call = msgspec.json.Decoder(_CustomCall)
_output = msgspec.json.Decoder(_CallOutput)


def _parse_turns(body: _RequestBody, kinds: Sequence[str], tools: RequestTools) -> tuple[Turn, ...]:
    """Parse a conversation: the system prompt, what the model is told of tools, and the input."""
    told = [f"[{kind}: this tool is not available here.]" for kind in tools.told]
    leading = "\n\n".join(filter(None, [body.instructions, *told]))
    items = [ParsedItem("system", [TextBlock(leading)])] if leading else []
    if isinstance(body.input, str):
        items.append(ParsedItem("user", [TextBlock(body.input)]))
    else:
        for index, (kind, item) in enumerate(zip(kinds, body.input, strict=True)):
            items += _item(kind, item, f"input[{index}]", tools)
    return tuple(_merged_turns(items))


def _merged_turns(items: Iterable[ParsedItem]) -> list[Turn]:
    turns: list[Turn] = []
    for (role, merges), run in groupby(items, lambda each: (each.role, each.merges)):
        if merges:
            turns.append(Turn(role, tuple(block for each in run for block in each.blocks)))
        else:
            turns += [Turn(role, tuple(each.blocks)) for each in run]
    return turns


def _item(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    if kind == "message":
        return (_read_message(data, path),)
    if kind == "agent_message":
        return (_read_agent_message(data, path),)
    read = _ITEMS.get(kind)
    if read is None:
        return read_item(kind, data, path, tools)
    block = read(data, path, tools)
    role: Role = "user" if isinstance(block, ToolResult) else "assistant"
    return (ParsedItem(role, [block], merges=True),)


def _read_message(data: Raw, path: str) -> ParsedItem:
    message = read_at(_message, data, path)
    role: Role = "system" if message.role == "developer" else message.role
    if isinstance(message.content, str):
        blocks: list[Block] = [TextBlock(message.content)]
    else:
        read = _ASSISTANT if role == "assistant" else _USER
        blocks = _parts(message.content, f"{path}.content", read)
    if role == "system" and not all(isinstance(block, TextBlock) for block in blocks):
        raise Invalid(f"{path}.content: a {message.role} message is made of text alone.")
    return ParsedItem(role, blocks, merges=role == "assistant")


def _read_agent_message(data: Raw, path: str) -> ParsedItem:
    """Return what one agent says to another as a message of the user's."""
    message = read_at(_agent_message, data, path)
    named = f"[agent_message] From {message.author} to {message.recipient}:"
    if isinstance(message.content, str):
        return ParsedItem("user", [TextBlock(f"{named}\n{message.content}")])
    return ParsedItem(
        "user", [TextBlock(named), *_parts(message.content, f"{path}.content", _USER)]
    )


def _parts(
    parts: Iterable[Raw], path: str, parsers: Mapping[str, Callable[[Raw, str], Block]]
) -> list[Block]:
    """Parse the parts of a content; one that cannot stand there is `Invalid`."""
    blocks: list[Block] = []
    for index, part in enumerate(parts):
        here = f"{path}[{index}]"
        kind = read_at(item_decoder, part, here).type
        read = parsers.get(kind or "")
        if read is None:
            raise refused(PARTS, kind, here)
        blocks.append(read(part, here))
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
    return ImageBlock(data_url(part.image_url), part.detail, given(part.cache_control))


def _read_file(data: Raw, path: str) -> DocumentBlock | ImageBlock:
    part = read_at(_file, data, path)
    url = part.file_url if part.file_data is None else part.file_data
    if url is None:
        raise Invalid(
            f"{path}.file_data: a file must come with its data or a URL; file ids are not known"
            " here."
        )
    return file_block(url, part.filename, given(part.cache_control))


def _read_audio(data: Raw, path: str) -> AudioBlock:
    audio = read_at(_audio, data, path).input_audio
    return recording(audio.data, audio.format)


def _read_function_call(data: Raw, path: str, tools: RequestTools) -> ToolCall:
    call = read_at(_function_call, data, path)
    return ToolCall(call.call_id, tools.name(call.name, call.namespace), call.arguments)


def _read_custom_call(data: Raw, path: str, tools: RequestTools) -> ToolCall:
    call = read_at(_custom_call, data, path)
    arguments = encoder.encode({"input": call.input}).decode()
    return ToolCall(call.call_id, tools.name(call.name, call.namespace), arguments)


def _read_output(data: Raw, path: str, _: RequestTools) -> ToolResult:
    result = read_at(_output, data, path)
    if isinstance(result.output, str):
        return ToolResult(result.call_id, (TextBlock(result.output),))
    blocks = _parts(result.output, f"{path}.output", _RESULT)
    carried = (TextBlock, ImageBlock, DocumentBlock)
    return ToolResult(result.call_id, tuple(each for each in blocks if isinstance(each, carried)))


def _read_reasoning(data: Raw, path: str, _: RequestTools) -> ReasoningBlock:
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


_ITEMS: Mapping[str, Callable[[Raw, str, RequestTools], ToolCall | ToolResult | ReasoningBlock]] = {
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
_object = msgspec.json.Decoder(Fields | None)
_choice = msgspec.json.Decoder(str | _NamedChoice | None)
_CALLABLE: Final = Kind("carried")


def parse_canonical_request(request: ResponsesRequest) -> CanonicalRequest:
    """Convert a responses request; raises `Invalid` with the path of a field of the wrong type."""
    if request.fields.get("prompt", NULL) != NULL:
        raise Invalid("prompt: a stored prompt is known to OpenAI alone; send its text.")
    body = read_typed(_body, request.body)
    kinds: list[str] = []
    lists: list[tuple[Sequence[Raw], str]] = [(body.tools or (), "tools")]
    if not isinstance(body.input, str):
        placed = [(item, f"input[{index}]") for index, item in enumerate(body.input)]
        kinds = [read_kind(item, at) for item, at in placed]
        brought = (tools_of(kind, *each) for kind, each in zip(kinds, placed, strict=True))
        lists += [each for each in brought if each is not None]
    own_tools = RequestTools(lists)
    tools = own_tools.definitions
    choice = _tool_choice(body.tool_choice, own_tools)
    return CanonicalRequest(
        turns=_parse_turns(body, kinds, own_tools),
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
        cache=given(request.fields.get("cache_control", NULL)),
    )


def _tool_choice(data: Raw, tools: RequestTools) -> CanonicalToolChoice | None:
    choice = read_at(_choice, data, "tool_choice")
    if choice is None:
        return None
    if isinstance(choice, str):
        mode = _WORDS.get(choice, "auto")
        if mode == "required" and tools.told and not tools.definitions:
            raise Invalid("tool_choice: a tool is required, and none is left that can be called.")
        return CanonicalToolChoice(mode)
    if TOOLS.get(choice.type, _CALLABLE).rule != "carried":
        raise Invalid(f"tool_choice.type: {choice.type[:40]!r} is a tool that is not here.")
    if choice.name is None:
        name = tools.name_of_type(choice.type)
    else:
        name = tools.name(choice.name, choice.namespace)
    if any(tool.name == name for tool in tools.definitions):
        return CanonicalToolChoice("named", name)
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
