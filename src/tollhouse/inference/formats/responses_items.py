"""Reads the items of requests and of replies: messages, reasoning, calls, their results. Pure.

    calls of functions                       a call, under the name that the tool has elsewhere
    calls of tools that the client runs      a call of the function that stands for the tool
    calls of a provider's own tools          text that begins with the item's type
    pictures of the two                      in a user message after it

What becomes of each type of item and part says `formats.kinds`; unknown types are refused. Objects
with a `type` are decoded twice: first the type and then the rest.

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical import (
    OPENAI,
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    ReasoningBlock,
    RefusalBlock,
    Role,
    TextBlock,
    ToolCall,
    ToolResult,
    unpack,
)
from tollhouse.inference.formats.kinds import ITEMS, PARTS, marked, refused
from tollhouse.inference.formats.media_types import data_url, file_block, recording
from tollhouse.inference.formats.proofs import unwrapped
from tollhouse.inference.formats.responses_tools import (
    CALLS_BY_CLIENT,
    RUN_BY_CLIENT,
    RequestTools,
    type_decoder,
)
from tollhouse.inference.formats.tools import arguments_text
from tollhouse.inference.formats.wire import (
    NULL,
    encoder,
    fields_decoder,
    given,
    read_at,
    text_decoder,
    try_decode,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence


class ParsedItem(NamedTuple):
    """The content of one item."""

    role: Role
    blocks: Sequence[Block]
    merges: bool = False
    """Whether it shares a turn with adjacent items of its role that merge as well."""


# Items of replies, and what requests repeat of them


class ResponsesPart(msgspec.Struct):
    """A part of a message's or a reasoning item's content."""

    type: str | None = None
    text: str = ""
    refusal: str = ""
    logprobs: list[Raw] | None = None


class ResponsesMessage(msgspec.Struct):
    """An item of type `message`."""

    content: list[ResponsesPart] = []


class ResponsesCall(msgspec.Struct):
    """An item of type `function_call` or `custom_tool_call`."""

    name: str
    call_id: str
    arguments: str = ""
    input: str = ""


class ResponsesReasoningItem(msgspec.Struct):
    """An item of type `reasoning`."""

    id: str | None = None
    summary: list[ResponsesPart] | None = None
    content: list[ResponsesPart] | None = None
    encrypted_content: str | None = None


message_decoder: Final = msgspec.json.Decoder(ResponsesMessage)
call_decoder: Final = msgspec.json.Decoder(ResponsesCall)
reasoning_decoder: Final = msgspec.json.Decoder(ResponsesReasoningItem)
CALL_TYPES: Final = frozenset({"function_call", "custom_tool_call"})

PARAGRAPH: Final = "\n\n"
"""Joins the parts of a summary, which are one text in canonical form."""


def parse_item(item: Raw, tokens: list[Raw]) -> Sequence[Block]:
    """Return the blocks of an item; add the log-probabilities of its text."""
    kind = type_decoder.decode(item).type
    if kind == "message":
        parts = message_decoder.decode(item).content
        for part in parts:
            tokens += part.logprobs or ()
        return [block for block in map(_parsed_part, parts) if block is not None]
    if kind in CALL_TYPES:
        return [parse_call(call_decoder.decode(item), freeform=kind == "custom_tool_call")]
    if kind == "reasoning":
        return parse_reasoning(reasoning_decoder.decode(item))
    return ()


def _parsed_part(part: ResponsesPart) -> Block | None:
    if part.type == "output_text":
        return TextBlock(part.text)
    return RefusalBlock(part.refusal) if part.type == "refusal" else None


def parse_call(call: ResponsesCall, *, freeform: bool) -> ToolCall:
    """Convert a call; the text of a custom call becomes the field `input` of an object."""
    arguments = encoder.encode({"input": call.input}).decode() if freeform else call.arguments
    return ToolCall(call.call_id, call.name, arguments)


def parse_reasoning(item: ResponsesReasoningItem) -> list[ReasoningBlock]:
    """Convert a reasoning item: its summary, its text, or only its encrypted content.

    The encrypted content is attached to the last block.
    """
    blocks: list[ReasoningBlock] = []
    if summary := PARAGRAPH.join(part.text for part in item.summary or ()):
        blocks.append(ReasoningBlock(text=summary, is_summary=True, format=OPENAI))
    if reasoning_text := "".join(part.text for part in item.content or ()):
        blocks.append(ReasoningBlock(text=reasoning_text, format=OPENAI))
    if item.encrypted_content and not blocks:
        blocks.append(ReasoningBlock(format=OPENAI))
    if blocks:
        proof = {"encrypted": item.encrypted_content, "id": item.id}
        blocks[-1] = msgspec.structs.replace(blocks[-1], **proof)
    return blocks


# Items of all formats


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


def _read_message(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    del kind, tools
    message = read_at(_message, data, path)
    role: Role = "system" if message.role == "developer" else message.role
    if isinstance(message.content, str):
        blocks: list[Block] = [TextBlock(message.content)]
    else:
        read = _ASSISTANT if role == "assistant" else _USER
        blocks = _parts(message.content, f"{path}.content", read)
    if role == "system" and not all(isinstance(block, TextBlock) for block in blocks):
        raise Invalid(f"{path}.content: a {message.role} message is made of text alone.")
    return (ParsedItem(role, blocks, merges=role == "assistant"),)


def _read_agent_message(
    kind: str, data: Raw, path: str, tools: RequestTools
) -> Sequence[ParsedItem]:
    """Return what one agent says to another as a message of the user's."""
    del tools
    message = read_at(_agent_message, data, path)
    named = f"[{kind}] From {message.author} to {message.recipient}:"
    if isinstance(message.content, str):
        blocks: list[Block] = [TextBlock(f"{named}\n{message.content}")]
    else:
        blocks = [TextBlock(named), *_parts(message.content, f"{path}.content", _USER)]
    return (ParsedItem("user", blocks),)


def _parts(
    parts: Iterable[Raw], path: str, parsers: Mapping[str, Callable[[Raw, str], Block]]
) -> list[Block]:
    """Parse the parts of a content; one that cannot stand there is `Invalid`."""
    blocks: list[Block] = []
    for index, part in enumerate(parts):
        here = f"{path}[{index}]"
        kind = read_at(type_decoder, part, here).type
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
    return image_of(part.image_url, path, part.detail, part.cache_control)


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


_BLOCKS: Mapping[
    str, Callable[[Raw, str, RequestTools], ToolCall | ToolResult | ReasoningBlock]
] = {
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


# Items of this format alone


class _Untyped(msgspec.Struct):
    type: str | None = None
    role: Raw = NULL
    id: Raw = NULL


class _RanCall(msgspec.Struct):
    call_id: str | None = None
    id: str | None = None
    arguments: Raw = NULL
    action: Raw = NULL
    operation: Raw = NULL


class _RanOutput(msgspec.Struct):
    call_id: str | None = None
    id: str | None = None
    output: Raw = NULL
    status: str | None = None


class _ToolList(msgspec.Struct):
    tools: list[Raw]


class _Picture(msgspec.Struct):
    result: str | None = None


class _Screenshot(msgspec.Struct):
    image_url: str | None = None


class _ScreenOutput(msgspec.Struct):
    output: _Screenshot


_untyped = msgspec.json.Decoder(_Untyped)
_ran_call = msgspec.json.Decoder(_RanCall)
_ran_output = msgspec.json.Decoder(_RanOutput)
_tool_list = msgspec.json.Decoder(_ToolList)
_picture = msgspec.json.Decoder(_Picture)
_screen = msgspec.json.Decoder(_ScreenOutput)
ITEM_REFERENCE: Final = "item_reference"
_OF_USERS: Final = frozenset(
    {"agent_message", "mcp_approval_response", "multi_agent_call_output", "program_output"}
)
_WITH_TOOLS: Final = frozenset({"additional_tools", "tool_search_output"})


def read_kind(data: Raw, path: str) -> str:
    """Return an item's type; one without is a message, or a reference if it has an id alone."""
    kind = read_at(type_decoder, data, path).type
    if kind is not None:
        return kind
    item = read_at(_untyped, data, path)
    return ITEM_REFERENCE if item.role == NULL and item.id != NULL else "message"


def tools_of(kind: str, data: Raw, path: str) -> tuple[Sequence[Raw], str] | None:
    """Return the tools that an item brings, and their path; None for other items."""
    if kind not in _WITH_TOOLS:
        return None
    return read_at(_tool_list, data, path).tools, f"{path}.tools"


def role_of_text(kind: str) -> Role:
    """Return who says what an item becomes that no other format has."""
    return "user" if kind in _OF_USERS else "assistant"


def image_of(url: str | None, path: str, detail: str | None, cache: Raw) -> ImageBlock:
    """Return the image of an `image_url`; raises `Invalid` if a client refers to a file."""
    if url is None:
        reason = "an image must come as a URL; file ids are not known here."
        raise Invalid(f"{path}.image_url: {reason}")
    return ImageBlock(data_url(url), detail, given(cache))


def read_item(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    """Return what an item says; raises `Invalid` if it cannot be passed on."""
    if kind in _BLOCKS:
        block = _BLOCKS[kind](data, path, tools)
        role: Role = "user" if isinstance(block, ToolResult) else "assistant"
        return (ParsedItem(role, [block], merges=True),)
    if kind not in ITEMS or ITEMS[kind].rule == "refused":
        raise refused(ITEMS, kind, path)
    return _READERS.get(kind, _read_other)(kind, data, path, tools)


def _read_other(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    del path, tools
    role = role_of_text(kind)
    return (ParsedItem(role, [TextBlock(marked(kind, data))], merges=role == "assistant"),)


def _read_call(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    call = read_at(_ran_call, data, path)
    if call.call_id is None:
        # A search that a server ran: nobody waits for its result.
        return _read_other(kind, data, path, tools)
    if call.id is not None:
        tools.call_ids[call.id] = call.call_id
    name = CALLS_BY_CLIENT[kind]
    run = RUN_BY_CLIENT[name]
    shown: Raw = getattr(call, run.field)
    arguments = try_decode(text_decoder, shown)
    if arguments is None:
        arguments = run.written(read_at(fields_decoder, shown, f"{path}.{run.field}"))
    block = ToolCall(call.call_id, tools.name_of_type(name), arguments)
    return (ParsedItem("assistant", [block], merges=True),)


def _read_ran(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    output = read_at(_ran_output, data, path)
    if kind == "tool_search_output":
        found = tools.found.get(f"{path}.tools", ())
        names = [tools.name(each.name, each.namespace) for each in found]
        text = f"Found: {', '.join(names)}" if names else "Found no tools."
        if output.call_id is None:
            return (ParsedItem("assistant", [TextBlock(f"[{kind}] {text}")], merges=True),)
    else:
        text = arguments_text(output.output)
    call_id = output.call_id or tools.call_ids.get(output.id or "", output.id)
    if call_id is None:
        raise Invalid(f"{path}.call_id: this field is required.")
    result = ToolResult(call_id, (TextBlock(text),), output.status == "failed")
    return (ParsedItem("user", [result], merges=True),)


def _read_picture(kind: str, data: Raw, path: str, _: RequestTools) -> Sequence[ParsedItem]:
    picture = read_at(_picture, data, path).result
    text = ParsedItem("assistant", [TextBlock(marked(kind, data, {"result"}))], merges=True)
    if not picture:
        return (text,)
    return (text, ParsedItem("user", [ImageBlock(data_url(picture, otherwise="image/png"))]))


def _read_screen(kind: str, data: Raw, path: str, _: RequestTools) -> Sequence[ParsedItem]:
    url = read_at(_screen, data, path).output.image_url
    image = image_of(url, f"{path}.output", None, NULL)
    return (ParsedItem("user", [TextBlock(marked(kind, data, {"output"})), image]),)


_READERS: Final[Mapping[str, Callable[[str, Raw, str, RequestTools], Sequence[ParsedItem]]]] = {
    "message": _read_message,
    "agent_message": _read_agent_message,
    "additional_tools": lambda _kind, _data, _path, _tools: (),
    **dict.fromkeys(CALLS_BY_CLIENT, _read_call),
    **dict.fromkeys([f"{call}_output" for call in CALLS_BY_CLIENT], _read_ran),
    "tool_search_output": _read_ran,
    "image_generation_call": _read_picture,
    "computer_call_output": _read_screen,
}
