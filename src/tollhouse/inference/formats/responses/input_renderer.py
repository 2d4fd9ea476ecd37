"""Renders canonical turns as the input of a responses request.

    system       a developer message
    user         function_call_output ..., then a message
    assistant    message, reasoning, function_call ... in their order

Source: https://platform.openai.com/docs/api-reference/responses/create#responses-create-input
"""

from __future__ import annotations

from hashlib import sha256
from itertools import groupby
from typing import TYPE_CHECKING, Final

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
)
from tollhouse.inference.formats.canonical.reasoning import OPENAI
from tollhouse.inference.formats.responses.output_renderer import (
    JsonObject,
    freeform_input,
    function_arguments,
    reasoning_part,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from tollhouse.inference.formats.canonical.blocks import Turn

_LONGEST_CALL_ID: Final = 64


def render_input(turns: Sequence[Turn], freeform: Collection[str]) -> list[JsonObject]:
    """Return the items of a conversation.

    Args:
        turns: The conversation.
        freeform: The names of the tools that take text.
    """
    texts = {
        block.id
        for turn in turns
        for block in turn.blocks
        if isinstance(block, ToolCall) and block.name in freeform
    }
    return [item for turn in turns for item in _turn(turn, freeform, texts)]


def _turn(turn: Turn, freeform: Collection[str], texts: Collection[str]) -> Iterable[JsonObject]:
    if turn.role == "assistant":
        return _assistant(turn.blocks, freeform)
    if turn.role == "system":
        return _message("developer", turn.blocks)
    results = [block for block in turn.blocks if isinstance(block, ToolResult)]
    return [*(_result(result, texts) for result in results), *_message("user", turn.blocks)]


def _message(role: str, blocks: Iterable[Block]) -> list[JsonObject]:
    parts = [part for part in map(_part, blocks) if part is not None]
    return [{"type": "message", "role": role, "content": parts}] if parts else []


def _part(block: Block) -> JsonObject | None:
    if isinstance(block, TextBlock):
        return {"type": "input_text", "text": block.text}
    if isinstance(block, ImageBlock):
        detail: JsonObject = {} if block.detail is None else {"detail": block.detail}
        return {"type": "input_image", "image_url": block.url, **detail}
    if isinstance(block, AudioBlock):
        message = "input: a recording cannot be sent to this model's provider."
        raise Invalid(message)
    return _file(block) if isinstance(block, DocumentBlock) else None


def _file(document: DocumentBlock) -> JsonObject:
    if document.url is None:
        return {"type": "input_text", "text": document.text or ""}
    if not document.url.startswith("data:"):
        return {"type": "input_file", "file_url": document.url}
    # OpenAI rejects data without a name.
    name = document.name or "document"
    return {"type": "input_file", "filename": name, "file_data": document.url}


def _result(result: ToolResult, texts: Collection[str]) -> JsonObject:
    is_text = result.call_id in texts
    return {
        "type": "custom_tool_call_output" if is_text else "function_call_output",
        "call_id": call_id(result.call_id),
        "output": _result_content(result),
    }


def _result_content(result: ToolResult) -> object:
    """Return a string if there is only text; not every server accepts a list of parts."""
    texts = [block.text for block in result.content if isinstance(block, TextBlock)]
    if len(texts) == len(result.content):
        return "\n".join(texts)
    return [part for part in map(_part, result.content) if part is not None]


def _assistant(blocks: Iterable[Block], freeform: Collection[str]) -> list[JsonObject]:
    items: list[JsonObject] = []
    for is_message, run in groupby(
        blocks, lambda block: isinstance(block, (TextBlock, RefusalBlock))
    ):
        if is_message:
            parts = [part for part in map(_output_part, run) if part is not None]
            if parts:
                items.append({"type": "message", "role": "assistant", "content": parts})
        else:
            given = (_output_item(block, freeform) for block in run)
            items += [item for item in given if item is not None]
    return items


def _output_item(block: Block, freeform: Collection[str]) -> JsonObject | None:
    if isinstance(block, ToolCall):
        return _call(block, freeform)
    return reasoning_input(block) if isinstance(block, ReasoningBlock) else None


def _output_part(block: Block) -> JsonObject | None:
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    if isinstance(block, TextBlock) and block.text:
        return {"type": "output_text", "text": block.text, "annotations": []}
    return None


def call_id(given: str) -> str:
    """Return a call's id within OpenAI's limit; the same for a call and its output."""
    if len(given) <= _LONGEST_CALL_ID:
        return given
    return f"call_{sha256(given.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


def _call(call: ToolCall, freeform: Collection[str]) -> JsonObject:
    own: JsonObject = {"call_id": call_id(call.id), "name": call.name}
    if call.name in freeform:
        return {"type": "custom_tool_call", **own, "input": freeform_input(call.arguments)}
    arguments = function_arguments(call.arguments)
    return {"type": "function_call", **own, "arguments": arguments}


def reasoning_input(block: ReasoningBlock) -> JsonObject | None:
    """Return OpenAI's own reasoning as an input item; None for another provider's."""
    if block.format != OPENAI or not block.encrypted:
        return None
    is_shown = block.is_summary and block.text
    return {
        "type": "reasoning",
        **({} if block.id is None else {"id": block.id}),
        "summary": [reasoning_part(block.text, is_summary=True)] if is_shown else [],
        "encrypted_content": block.encrypted,
    }
