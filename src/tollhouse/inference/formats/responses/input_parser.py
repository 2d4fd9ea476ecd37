"""Parses the input of a request to canonical turns.

    message (system, developer, user)              one turn each
    message (assistant), reasoning, calls ...      one assistant turn for consecutive items
    outputs of calls ...                           one user turn for consecutive items

Items of a provider's own tools, references to stored items and unknown types are skipped.

Source: https://platform.openai.com/docs/api-reference/responses/create#responses-create-input
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.blocks import (
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
    Turn,
)
from tollhouse.inference.formats.canonical.reasoning import OPENAI, unpack
from tollhouse.inference.formats.raw_json import NULL, encoder
from tollhouse.inference.formats.responses import request_schema
from tollhouse.inference.formats.responses.request_schema import read_at, read_kind
from tollhouse.inference.formats.responses.response_parser import PARAGRAPH
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_TEXTS = frozenset({"input_text", "output_text", "text"})
_message = msgspec.json.Decoder(request_schema.ResponsesInputMessage)
_text = msgspec.json.Decoder(request_schema.TextPart)
_refusal = msgspec.json.Decoder(request_schema.RefusalPart)
_image = msgspec.json.Decoder(request_schema.ImagePart)
_file = msgspec.json.Decoder(request_schema.FilePart)
_audio = msgspec.json.Decoder(request_schema.AudioPart)
_function_call = msgspec.json.Decoder(request_schema.FunctionCall)
_custom_call = msgspec.json.Decoder(request_schema.CustomCall)
_output = msgspec.json.Decoder(request_schema.CallOutput)
_reasoning = msgspec.json.Decoder(request_schema.ResponsesReasoningInput)


class _ParsedItem(NamedTuple):
    """The content of one item."""

    role: Role
    blocks: Sequence[Block]
    merges: bool = False
    """Whether it shares a turn with adjacent items of its role that merge as well."""


def parse_turns(instructions: str | None, given: str | Sequence[Raw]) -> tuple[Turn, ...]:
    """Parse a conversation.

    Args:
        instructions: The system prompt.
        given: The input.

    Raises:
        Invalid: An item of a known type is invalid, or holds what no other format can carry.
    """
    items = [_ParsedItem("system", [TextBlock(instructions)])] if instructions else []
    if isinstance(given, str):
        items.append(_ParsedItem("user", [TextBlock(given)]))
    else:
        read = (_item(item, f"input[{index}]") for index, item in enumerate(given))
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
    kind = read_kind(data, path) or "message"
    if kind == "message":
        return _read_message(data, path)
    read = _ITEMS.get(kind)
    if read is None:
        return None
    block = read(data, path)
    return _ParsedItem(
        "user" if isinstance(block, ToolResult) else "assistant", [block], merges=True
    )


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
    """Parse the parts of a content.

    Args:
        parts: The content's.
        path: The content's path in the body.
        parsers: A parser for each type of part that is allowed here.
        strict: Whether other types are rejected instead of skipped.
    """
    blocks: list[Block] = []
    for index, part in enumerate(parts):
        here = f"{path}[{index}]"
        kind = read_kind(part, here)
        read = parsers.get(kind or "")
        if read is not None:
            blocks.append(read(part, here))
        elif strict:
            raise Invalid(f"{here}.type: a part of this type cannot be carried to the model.")
    return blocks


def _read_text(data: Raw, path: str) -> TextBlock:
    part = read_at(_text, data, path)
    return TextBlock(part.text, cache=_cache(part.cache_control))


def _read_refusal(data: Raw, path: str) -> RefusalBlock:
    return RefusalBlock(read_at(_refusal, data, path).refusal)


def _read_image(data: Raw, path: str) -> ImageBlock:
    part = read_at(_image, data, path)
    if part.image_url is None:
        raise Invalid(
            f"{path}.image_url: an image must come as a URL; file ids are not known here."
        )
    return ImageBlock(part.image_url, part.detail, _cache(part.cache_control))


def _read_file(data: Raw, path: str) -> DocumentBlock:
    part = read_at(_file, data, path)
    url = part.file_url
    if part.file_data is not None:
        is_url = part.file_data.startswith("data:")
        url = part.file_data if is_url else f"data:application/pdf;base64,{part.file_data}"
    if url is None:
        raise Invalid(
            f"{path}.file_data: a file must come with its data or a URL; file ids are not known"
            " here."
        )
    return DocumentBlock(url=url, name=part.filename, cache=_cache(part.cache_control))


def _read_audio(data: Raw, path: str) -> AudioBlock:
    audio = read_at(_audio, data, path).input_audio
    return AudioBlock(audio.data, audio.format)


def _cache(mark: Raw) -> Raw | None:
    return None if mark == NULL else mark


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
    carried = [
        block for block in blocks if isinstance(block, (TextBlock, ImageBlock, DocumentBlock))
    ]
    return ToolResult(result.call_id, tuple(carried))


def _read_reasoning(data: Raw, path: str) -> ReasoningBlock:
    item = read_at(_reasoning, data, path)
    packed = unpack(item.encrypted_content) if item.encrypted_content else None
    if packed is not None:
        return packed
    summary = PARAGRAPH.join(part.text for part in item.summary or ())
    reasoning_text = "".join(part.text for part in item.content or ())
    return ReasoningBlock(
        text=reasoning_text or summary,
        is_summary=bool(summary) and not reasoning_text,
        encrypted=item.encrypted_content,
        id=item.id,
        format=OPENAI,
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
