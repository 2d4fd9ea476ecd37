"""Renders canonical turns as `system` and `messages`.

    system turns              -> `system`, in order
    user and assistant turns  -> `messages`; consecutive turns of one role are one message

Anthropic rejects empty text, trailing space in a prefilled answer, tool results that do not come
first, and call ids with characters other than its own.

Source: https://docs.anthropic.com/en/api/messages and
https://docs.anthropic.com/en/docs/build-with-claude/tool-use
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Final

from tollhouse.inference.formats.canonical.block_sequencer import arguments_object
from tollhouse.inference.formats.canonical.blocks import (
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
from tollhouse.inference.formats.messages.reasoning import render_provider_reasoning
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from msgspec import Raw

    from tollhouse.inference.formats.canonical.blocks import Role

    Content = Mapping[str, object]

_SAID_BY_MODEL: Final = TextBlock | RefusalBlock | ReasoningBlock | ToolCall
"""The block types of a model's turn; images that another model generated are left out."""
_DATA_URL: Final = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_FOREIGN_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def render_turns(turns: Sequence[Turn]) -> tuple[list[Content], list[Content]]:
    """Return `system` and `messages`.

    Raises:
        Invalid: The dialect cannot carry some of the user's content.
    """
    system = [block for turn in turns if turn.role == "system" for block in _system(turn.blocks)]
    spoken = _merged([turn for turn in turns if turn.role != "system"])
    if spoken and spoken[-1][0] == "assistant":
        _strip(spoken[-1][1])
    if spoken and spoken[0][0] == "assistant":
        # Anthropic requires the user to begin.
        spoken.insert(0, ("user", [{"type": "text", "text": "."}]))
    if not spoken and system:
        # At least one message is required: a system prompt alone becomes the user's.
        return [], [{"role": "user", "content": system}]
    return system, [{"role": role, "content": content} for role, content in spoken]


def _merged(turns: Sequence[Turn]) -> list[tuple[Role, list[Content]]]:
    """Return messages with alternating roles, tool results first."""
    merged: list[tuple[Role, list[Content]]] = []
    for turn in turns:
        own = _SAID_BY_MODEL if turn.role == "assistant" else Block
        parts = [part for block in turn.blocks if isinstance(block, own) for part in _block(block)]
        if merged and merged[-1][0] == turn.role:
            merged[-1][1].extend(parts)
        elif parts:
            merged.append((turn.role, parts))
    for _, content in merged:
        content.sort(key=_is_no_result)
    return merged


def _is_no_result(content: Content) -> bool:
    return content["type"] != "tool_result"


def _strip(prefill: list[Content]) -> None:
    """Remove trailing space from a prefilled answer."""
    if prefill[-1]["type"] == "text":
        prefill[-1] = {**prefill[-1], "text": str(prefill[-1]["text"]).rstrip()}


def _system(blocks: Iterable[Block]) -> list[Content]:
    content: list[Content] = []
    for block in blocks:
        if not isinstance(block, (TextBlock, RefusalBlock)):
            message = "The model takes nothing but text in a system message."
            raise Invalid(message)
        content += _text(block)
    return content


def _block(block: Block) -> list[Content]:
    if isinstance(block, (TextBlock, RefusalBlock)):
        return _text(block)
    if isinstance(block, ImageBlock):
        return [{"type": "image", "source": _source(block.url), **_cached(block.cache)}]
    if isinstance(block, DocumentBlock):
        return [_document(block)]
    if isinstance(block, ToolCall):
        return [_tool_use(block)]
    if isinstance(block, ToolResult):
        return [_tool_result(block)]
    if isinstance(block, ReasoningBlock):
        reasoning = render_provider_reasoning(block)
        return [] if reasoning is None else [reasoning]
    message = "The model takes no audio."
    raise Invalid(message)


def _text(block: TextBlock | RefusalBlock) -> list[Content]:
    if not block.text.strip():
        return []
    cache = block.cache if isinstance(block, TextBlock) else None
    return [{"type": "text", "text": block.text, **_cached(cache)}]


def _document(block: DocumentBlock) -> Content:
    named: Content = {} if block.name is None else {"title": block.name}
    return {"type": "document", "source": _content_of(block), **named, **_cached(block.cache)}


def _content_of(block: DocumentBlock) -> Content:
    if block.url is None:
        return _plain(block.text or "")
    source = _source(block.url)
    if not str(source.get("media_type", "")).startswith("text/"):
        return source
    try:
        return _plain(b64decode(str(source["data"])).decode())
    except ValueError:
        message = "A text document must be UTF-8 in base64."
        raise Invalid(message) from None


def _plain(text: str) -> Content:
    return {"type": "text", "media_type": "text/plain", "data": text}


def _source(url: str) -> Content:
    if url[:5].lower() != "data:":
        return {"type": "url", "url": url}
    match = _DATA_URL.match(url)
    if match is None:
        message = "A data: URL must hold base64."
        raise Invalid(message)
    return {"type": "base64", "media_type": match["type"].lower(), "data": url[match.end() :]}


def _tool_use(block: ToolCall) -> Content:
    return {
        "type": "tool_use",
        "id": _id(block.id),
        "name": block.name,
        "input": arguments_object(block.arguments),
        **_cached(block.cache),
    }


def _tool_result(block: ToolResult) -> Content:
    content = [content for part in block.content for content in _block(part)]
    return {
        "type": "tool_result",
        "tool_use_id": _id(block.call_id),
        **({"content": content} if content else {}),
        **({"is_error": True} if block.is_error else {}),
        **_cached(block.cache),
    }


def _id(text: str) -> str:
    return _FOREIGN_IN_ID.sub("_", text)


def _cached(cache: Raw | None) -> Content:
    return {} if cache is None else {"cache_control": cache}
