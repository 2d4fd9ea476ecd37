"""Parses a client's content blocks to canonical blocks.

    parse_content(content, "messages[2].content", keeps_unknown=...) -> (TextBlock, ImageBlock ...)

An error names the path of the invalid block. Blocks of unknown types are skipped in the model's
turns and rejected in the user's: user content must not be lost silently.

Source: https://docs.anthropic.com/en/api/messages, "messages.content".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.canonical.blocks import (
    Block,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ToolCall,
    ToolResult,
)
from tollhouse.inference.formats.fields import Fields, read_typed
from tollhouse.inference.formats.messages.reasoning import parse_redacted, parse_thinking
from tollhouse.inference.formats.raw_json import NULL, encoder
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

T = TypeVar("T")


class _Base64(Struct, tag="base64"):
    media_type: str
    data: str


class _Url(Struct, tag="url"):
    url: str


class _Plain(Struct, tag="text"):
    data: str


class _Nested(Struct, tag="content"):
    content: str | list[Raw]


class _File(Struct, tag="file"):
    pass


class _Kind(Struct):
    type: str


class _Cached(Struct):
    cache_control: Raw = NULL

    @property
    def cache(self) -> Raw | None:
        return None if self.cache_control == NULL else self.cache_control


class _Text(_Cached, kw_only=True):
    text: str


class _Image(_Cached, kw_only=True):
    source: _Base64 | _Url | _File


class _Document(_Cached, kw_only=True):
    source: _Base64 | _Url | _Plain | _Nested | _File
    title: str | None = None


class _SearchResult(_Cached, kw_only=True):
    content: list[_Text]
    title: str | None = None


class _ToolUse(_Cached, kw_only=True):
    id: str
    name: str
    input: Fields = msgspec.field(default_factory=dict[str, Raw])


class _ToolResult(_Cached, kw_only=True):
    tool_use_id: str
    content: str | list[Raw] | None = None
    is_error: bool | None = None


class _Thinking(Struct):
    thinking: str
    signature: str | None = None


class _Redacted(Struct):
    data: str


_kind: Final = msgspec.json.Decoder(_Kind)
_text: Final = msgspec.json.Decoder(_Text)
_image: Final = msgspec.json.Decoder(_Image)
_document: Final = msgspec.json.Decoder(_Document)
_search_result: Final = msgspec.json.Decoder(_SearchResult)
_tool_use: Final = msgspec.json.Decoder(_ToolUse)
_tool_result: Final = msgspec.json.Decoder(_ToolResult)
_thinking: Final = msgspec.json.Decoder(_Thinking)
_redacted: Final = msgspec.json.Decoder(_Redacted)
_PASSED_OVER: Final = frozenset({"tool_reference"})
"""Blocks of the user's side that carry nothing for the model."""


def parse_content(
    content: str | Sequence[Raw], path: str, *, keeps_unknown: bool = True
) -> tuple[Block, ...]:
    """Parse a message's content.

    Args:
        content: The content as received.
        path: Its path in the request.
        keeps_unknown: Whether a block of an unknown type is rejected instead of skipped.

    Raises:
        Invalid: A block does not match its type, or other formats cannot carry it.
    """
    if isinstance(content, str):
        return (TextBlock(content),) if content else ()
    blocks: list[Block] = []
    for position, data in enumerate(content):
        at = f"{path}[{position}]"
        kind = read_at(_kind, data, at).type
        parse = _PARSERS.get(kind)
        if parse is not None:
            blocks.append(parse(data, at))
        elif keeps_unknown and kind not in _PASSED_OVER:
            message = f"{at}.type: a block of this kind cannot be put to this model."
            raise Invalid(message)
    return tuple(blocks)


def read_at(decoder: msgspec.json.Decoder[T], data: Raw, path: str) -> T:
    """Decode a part of the body as a type.

    Raises:
        Invalid: The part does not match; the message begins with the path of the first bad field.
    """
    try:
        return read_typed(decoder, bytes(data))
    except Invalid as error:
        raise Invalid(_below(path, error.message)) from None


def _below(path: str, message: str) -> str:
    if message.startswith("body: "):
        return path + message.removeprefix("body")
    return f"{path}.{message}"


def _parse_text(data: Raw, path: str) -> TextBlock:
    block = read_at(_text, data, path)
    return TextBlock(block.text, cache=block.cache)


def _parse_image(data: Raw, path: str) -> ImageBlock:
    block = read_at(_image, data, path)
    return ImageBlock(_located(block.source, path), cache=block.cache)


def _parse_document(data: Raw, path: str) -> DocumentBlock:
    block = read_at(_document, data, path)
    source = block.source
    if isinstance(source, _Plain):
        return DocumentBlock(text=source.data, name=block.title, cache=block.cache)
    if isinstance(source, _Nested):
        text = _flattened(source.content, f"{path}.source.content")
        return DocumentBlock(text=text, name=block.title, cache=block.cache)
    return DocumentBlock(url=_located(source, path), name=block.title, cache=block.cache)


def _parse_search_result(data: Raw, path: str) -> DocumentBlock:
    block = read_at(_search_result, data, path)
    text = "\n".join(part.text for part in block.content)
    return DocumentBlock(text=text, name=block.title, cache=block.cache)


def _parse_tool_use(data: Raw, path: str) -> ToolCall:
    block = read_at(_tool_use, data, path)
    arguments = encoder.encode(block.input).decode()
    return ToolCall(block.id, block.name, arguments, cache=block.cache)


def _parse_tool_result(data: Raw, path: str) -> ToolResult:
    block = read_at(_tool_result, data, path)
    content: list[TextBlock | ImageBlock | DocumentBlock] = []
    for each in parse_content(block.content or (), f"{path}.content"):
        if not isinstance(each, (TextBlock, ImageBlock, DocumentBlock)):
            message = f"{path}.content: must be of text, images and documents."
            raise Invalid(message)
        content.append(each)
    return ToolResult(block.tool_use_id, tuple(content), bool(block.is_error), cache=block.cache)


def _parse_thinking(data: Raw, path: str) -> Block:
    block = read_at(_thinking, data, path)
    return parse_thinking(block.thinking, block.signature or "")


def _parse_redacted(data: Raw, path: str) -> Block:
    return parse_redacted(read_at(_redacted, data, path).data)


def _located(source: _Base64 | _Url | _File, path: str) -> str:
    if isinstance(source, _File):
        message = f"{path}.source.type: a file that lies with a provider cannot be put to another."
        raise Invalid(message)
    if isinstance(source, _Url):
        return source.url
    return f"data:{source.media_type};base64,{source.data}"


def _flattened(content: str | list[Raw], path: str) -> str:
    texts: list[str] = []
    for position, block in enumerate(parse_content(content, path)):
        if not isinstance(block, TextBlock):
            message = f"{path}[{position}].type: only text can be put to this model here."
            raise Invalid(message)
        texts.append(block.text)
    return "\n".join(texts)


_PARSERS: Final[Mapping[str, Callable[[Raw, str], Block]]] = {
    "text": _parse_text,
    "image": _parse_image,
    "document": _parse_document,
    "search_result": _parse_search_result,
    "tool_use": _parse_tool_use,
    "tool_result": _parse_tool_result,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_redacted,
}
