"""Renders canonical blocks as the output items of a response.

    TextBlock, RefusalBlock  ->  message         one for consecutive blocks
    ReasoningBlock           ->  reasoning       packed if the format has no field for a part of it
    ToolCall                 ->  function_call, or custom_tool_call for a freeform tool

Source: https://platform.openai.com/docs/api-reference/responses/object#responses/object-output
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

import msgspec

from tollhouse.inference.formats.canonical.blocks import (
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
)
from tollhouse.inference.formats.canonical.reasoning import OPENAI, pack

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from msgspec import Raw

    from tollhouse.inference.formats.canonical.blocks import Block
    from tollhouse.inference.types import ReplyIdentity

JsonObject = dict[str, object]
NO_ARGUMENTS: Final = "{}"
_PREFIXES: Final = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
}
_logprobs = msgspec.json.Decoder(dict[str, list[msgspec.Raw] | None])
_freeform = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The options of a request that affect how its output is rendered."""

    freeform: Collection[str] = frozenset()
    """The names of the tools that take text."""
    summarizes: bool = False
    """Whether all reasoning is shown as a summary: clients that request one show nothing else."""


def item_id(identity: ReplyIdentity, kind: str, position: int) -> str:
    """Return an item's id, derived from the response's: the same response has the same ids."""
    return f"{_PREFIXES[kind]}_{identity.id}_{position}"


def render_items(
    blocks: Iterable[Block],
    identity: ReplyIdentity,
    options: OutputOptions,
    *,
    logprobs: Raw | None = None,
    complete: bool = True,
) -> list[JsonObject]:
    """Return the output of a response.

    Args:
        blocks: The output of the model.
        identity: The response's.
        options: The request's.
        logprobs: The chat format's object for all text; rendered with the first text part.
        complete: Whether the response is complete; if not, its last item is `incomplete`.
    """
    items: list[JsonObject] = []
    tokens = text_logprobs(logprobs)
    for is_message, run in groupby(blocks, _is_message_content):
        if is_message:
            parts: list[JsonObject] = []
            for block in run:
                parts.append(content_part(block, tokens))
                tokens = () if isinstance(block, TextBlock) else tokens
            items.append(message_item(item_id(identity, "message", len(items)), parts))
            continue
        for block in run:
            if isinstance(block, (ReasoningBlock, ToolCall)):
                items.append(_item(block, identity, len(items), options))
    if items and not complete:
        items[-1]["status"] = "incomplete"
    return items


def _is_message_content(block: Block) -> bool:
    return isinstance(block, (TextBlock, RefusalBlock))


def _item(
    block: ReasoningBlock | ToolCall, identity: ReplyIdentity, position: int, options: OutputOptions
) -> JsonObject:
    if isinstance(block, ReasoningBlock):
        native = block.id if block.format == OPENAI else None
        id_ = native or item_id(identity, "reasoning", position)
        return reasoning_item(block, id_, is_summary=block.is_summary or options.summarizes)
    kind = call_kind(block.name, options.freeform)
    return call_item(block, kind, item_id(identity, kind, position))


def call_kind(name: str, freeform: Collection[str]) -> str:
    """Return the item type of a tool's calls."""
    return "custom_tool_call" if name in freeform else "function_call"


def content_part(block: Block, tokens: Sequence[Raw] = ()) -> JsonObject:
    """Return a message part: text, with its tokens' log-probabilities, or a refusal."""
    if isinstance(block, RefusalBlock):
        return {"type": "refusal", "refusal": block.text}
    text = block.text if isinstance(block, TextBlock) else ""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": tokens}


def message_item(id_: str, parts: Sequence[JsonObject]) -> JsonObject:
    """Return a message item."""
    return {
        "id": id_,
        "type": "message",
        "status": "completed",
        "role": "assistant",
        "content": parts,
    }


def call_item(call: ToolCall, kind: str, id_: str) -> JsonObject:
    """Return the item of a function call or a custom tool call."""
    item: JsonObject = {
        "id": id_,
        "type": kind,
        "status": "completed",
        "call_id": call.id,
        "name": call.name,
    }
    if kind == "custom_tool_call":
        return {**item, "input": freeform_input(call.arguments)}
    return {**item, "arguments": function_arguments(call.arguments)}


def function_arguments(arguments: str) -> str:
    """Return a call's arguments; `{}` if they are empty, as clients decode JSON."""
    return arguments if arguments.strip() else arguments + NO_ARGUMENTS


def freeform_input(arguments: str) -> str:
    """Return the text for a freeform tool: the field `input`, or the arguments as written."""
    try:
        return _text.decode(_freeform.decode(arguments)["input"])
    except (msgspec.DecodeError, RecursionError, KeyError):
        return arguments


def reasoning_item(block: ReasoningBlock, id_: str, *, is_summary: bool) -> JsonObject:
    """Return a reasoning item, with its signature or encrypted content.

    OpenAI's encrypted reasoning is passed on unchanged, under its own id. Any other block is packed
    as a whole, because clients may send the item back without its text.

    Args:
        block: The reasoning.
        id_: The item's id.
        is_summary: Whether the text is rendered as a summary.
    """
    parts = [reasoning_part(block.text, is_summary=is_summary)] if block.text else []
    return {
        "id": id_,
        "type": "reasoning",
        "status": "completed",
        "summary": parts if is_summary else [],
        **({} if is_summary or not parts else {"content": parts}),
        "encrypted_content": _proof(block, id_),
    }


def _proof(block: ReasoningBlock, id_: str) -> str | None:
    is_native = block.format == OPENAI and block.signature is None
    if is_native and (block.encrypted is None or block.id == id_):
        return block.encrypted
    return pack(block)


def reasoning_part(text: str, *, is_summary: bool) -> JsonObject:
    """Return a text part of a reasoning item."""
    return {"type": "summary_text" if is_summary else "reasoning_text", "text": text}


def text_logprobs(logprobs: Raw | None) -> Sequence[Raw]:
    """Return the tokens of the chat format's `logprobs` object."""
    if logprobs is None:
        return ()
    try:
        return _logprobs.decode(logprobs).get("content") or ()
    except (msgspec.DecodeError, RecursionError):
        return ()
