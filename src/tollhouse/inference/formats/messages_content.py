"""The blocks of messages: clients' to canonical ones, these to providers' and clients'. Pure.

An error names the path of the invalid block. What becomes of each type of block says
`formats.kinds`; unknown types are refused, as nothing may be lost silently.

    reasoning:  Anthropic's         <->  thinking{thinking, signature} or redacted_thinking{data}
                another provider's  <->  thinking{thinking, signature: the packed block}

Anthropic rejects empty text, trailing space in a prefilled answer, tool results that do not come
first, and call ids with characters other than its own.

Source: https://docs.anthropic.com/en/api/messages and, below https://docs.anthropic.com/en/docs/,
build-with-claude/tool-use and build-with-claude/extended-thinking
"""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.canonical import (
    ANTHROPIC,
    AudioBlock,
    Block,
    DocumentBlock,
    ImageBlock,
    NotCarriedError,
    ReasoningBlock,
    RefusalBlock,
    TextBlock,
    ToolCall,
    ToolResult,
    Turn,
    pack,
    unpack,
)
from tollhouse.inference.formats.kinds import BLOCKS, marked, refused
from tollhouse.inference.formats.media_types import data_url
from tollhouse.inference.formats.proofs import is_marked, unsigned, unwrapped, wrapped
from tollhouse.inference.formats.sequencing import arguments_object
from tollhouse.inference.formats.wire import (
    NULL,
    Fields,
    encoder,
    fields_decoder,
    given,
    present,
    raw,
    read_at,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tollhouse.inference.formats.canonical import Role

    Content = dict[str, object]

# A client's blocks


class _Base64(Struct, tag="base64", kw_only=True):
    media_type: str = ""
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
        return given(self.cache_control)


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


_Part = _Text | _Image | _Document | _SearchResult | _ToolUse | _ToolResult | _Thinking | _Redacted
_PARTS: Final[Mapping[str, type[_Part]]] = {
    "text": _Text,
    "image": _Image,
    "document": _Document,
    "search_result": _SearchResult,
    "tool_use": _ToolUse,
    "tool_result": _ToolResult,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
}
_decoders: Final = {kind: msgspec.json.Decoder(part) for kind, part in _PARTS.items()}
_kind: Final = msgspec.json.Decoder(_Kind)


def parse_content(content: str | Sequence[Raw], path: str) -> tuple[Block, ...]:
    """Parse a message's content; a block that cannot be passed on is `Invalid`."""
    if isinstance(content, str):
        return (TextBlock(content),) if content else ()
    blocks: list[Block] = []
    for position, data in enumerate(content):
        at = f"{path}[{position}]"
        kind = read_at(_kind, data, at).type
        decoder = _decoders.get(kind)
        if decoder is not None:
            blocks += _blocks(read_at(decoder, data, at), at)
        elif kind in BLOCKS and BLOCKS[kind].rule == "text":
            blocks.append(TextBlock(marked(kind, data)))
        else:
            raise refused(BLOCKS, kind, at)
    return tuple(blocks)


def _blocks(part: _Part, path: str) -> Sequence[Block]:
    block: Block
    if isinstance(part, _Text):
        block = TextBlock(part.text, part.cache)
    elif isinstance(part, _ToolUse):
        arguments = encoder.encode(part.input).decode()
        block = ToolCall(part.id, part.name, arguments, part.cache)
    elif isinstance(part, _ToolResult):
        content = _of_result(part.content or (), f"{path}.content")
        block = ToolResult(part.tool_use_id, content, bool(part.is_error), part.cache)
    elif isinstance(part, _Thinking):
        block = _parse_thinking(part.thinking, part.signature or "")
    elif isinstance(part, _Redacted):
        block = _parse_redacted(part.data)
    elif isinstance(part, _Image):
        block = ImageBlock(_located(part.source, path), cache=part.cache)
    elif isinstance(part, _SearchResult):
        text = "\n".join(each.text for each in part.content)
        block = DocumentBlock(None, text, part.title, part.cache)
    else:
        return _document(part, path)
    return (block,)


def _document(part: _Document, path: str) -> Sequence[Block]:
    """Return a document; of one in parts a document of its text, and its images."""
    source = part.source
    if isinstance(source, _Plain):
        return (DocumentBlock(None, source.data, part.title, part.cache),)
    if isinstance(source, _Nested):
        text, images = _flattened(source.content, f"{path}.source.content")
        return (DocumentBlock(None, text, part.title, part.cache), *images)
    return (DocumentBlock(_located(source, path), None, part.title, part.cache),)


def _of_result(
    given: str | Sequence[Raw], path: str
) -> tuple[TextBlock | ImageBlock | DocumentBlock, ...]:
    content: list[TextBlock | ImageBlock | DocumentBlock] = []
    for block in parse_content(given, path):
        if not isinstance(block, (TextBlock, ImageBlock, DocumentBlock)):
            raise Invalid(f"{path}: must be of text, images and documents.")
        content.append(block)
    return tuple(content)


def _located(source: _Base64 | _Url | _File, path: str) -> str:
    if isinstance(source, _File):
        message = f"{path}.source.type: a file that lies with a provider cannot be put to another."
        raise Invalid(message)
    if isinstance(source, _Url):
        return source.url
    return data_url(source.data, source.media_type, otherwise="application/octet-stream")


def _flattened(content: str | list[Raw], path: str) -> tuple[str, Sequence[ImageBlock]]:
    """Return the text of a document's parts, in which each image has its number, and the images."""
    texts: list[str] = []
    images: list[ImageBlock] = []
    for position, block in enumerate(parse_content(content, path)):
        if isinstance(block, ImageBlock):
            images.append(block)
            texts.append(f"[image {len(images)}]")
        elif isinstance(block, TextBlock):
            texts.append(block.text)
        else:
            raise Invalid(f"{path}[{position}].type: only text and images can stand here.")
    return "\n".join(texts), images


# A provider's blocks

_SAID_BY_MODEL: Final = TextBlock | RefusalBlock | ReasoningBlock | ToolCall
"""The block types of a model's turn; images that another model generated are left out."""
_DATA_URL: Final = re.compile(r"data:(?P<type>[^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_TEXTS: Final = ("text/", "application/json", "application/xml", "application/yaml")
_FOREIGN_IN_ID: Final = re.compile(r"[^a-zA-Z0-9_-]")


def render_turns(turns: Sequence[Turn], provider: str) -> tuple[list[Content], list[Content]]:
    """Return `system` and `messages`."""
    system = [part for turn in turns if turn.role == "system" for part in _system(turn.blocks)]
    spoken = _merged([turn for turn in turns if turn.role != "system"], provider)
    if spoken and spoken[-1][0] == "assistant" and (last := spoken[-1][1][-1])["type"] == "text":
        # A prefilled answer.
        last["text"] = str(last["text"]).rstrip()
    if spoken and spoken[0][0] == "assistant":
        # Anthropic requires the user to begin.
        spoken.insert(0, ("user", [{"type": "text", "text": "."}]))
    if not spoken and system:
        # At least one message is required: a system prompt alone becomes the user's.
        return [], [{"role": "user", "content": system}]
    return system, [{"role": role, "content": content} for role, content in spoken]


def _merged(turns: Sequence[Turn], provider: str) -> list[tuple[Role, list[Content]]]:
    """Return messages with alternating roles, tool results first."""
    merged: list[tuple[Role, list[Content]]] = []
    for turn in turns:
        own = _SAID_BY_MODEL if turn.role == "assistant" else Block
        parts = [
            part
            for block in turn.blocks
            if isinstance(block, own)
            for part in _parts(block, provider)
        ]
        if merged and merged[-1][0] == turn.role:
            merged[-1][1].extend(parts)
        elif parts:
            merged.append((turn.role, parts))
    for _, content in merged:
        content.sort(key=lambda part: part["type"] != "tool_result")
    return merged


def _system(blocks: Iterable[Block]) -> Iterator[Content]:
    for block in blocks:
        if not isinstance(block, (TextBlock, RefusalBlock)):
            raise NotCarriedError(block, "a system message is made of text alone.")
        yield from _parts(block)


def _parts(block: Block, provider: str = "") -> list[Content]:
    """Return a block as a provider gets it; nothing of empty text, or of another's reasoning."""
    part: Content | None
    if isinstance(block, (TextBlock, RefusalBlock)):
        part = {"type": "text", "text": block.text} if block.text.strip() else None
    elif isinstance(block, ReasoningBlock):
        part = render_provider_reasoning(block, provider)
    else:
        part = _part(block)
    if part is None:
        return []
    if (
        not isinstance(block, (RefusalBlock, ReasoningBlock, AudioBlock))
        and block.cache is not None
    ):
        part["cache_control"] = block.cache
    return [part]


def _part(block: ToolCall | ToolResult | ImageBlock | DocumentBlock | AudioBlock) -> Content:
    if isinstance(block, ToolCall):
        call, arguments = _FOREIGN_IN_ID.sub("_", block.id), arguments_object(block.arguments)
        return {"type": "tool_use", "id": call, "name": block.name, "input": arguments}
    if isinstance(block, ToolResult):
        call = _FOREIGN_IN_ID.sub("_", block.call_id)
        result: Content = {"type": "tool_result", "tool_use_id": call}
        if content := [part for each in block.content for part in _parts(each)]:
            result["content"] = content
        if block.is_error:
            result["is_error"] = True
        return result
    if isinstance(block, ImageBlock):
        return {"type": "image", "source": _source(block, block.url)}
    if isinstance(block, DocumentBlock):
        source = _document_source(block)
        return present({"type": "document", "source": source, "title": block.name})
    raise NotCarriedError(block, "a recording cannot be sent to this model's provider.")


def _document_source(block: DocumentBlock) -> Content:
    text = block.text or ""
    if block.url is not None:
        source = _source(block, block.url)
        if not str(source.get("media_type", "")).startswith(_TEXTS):
            return source
        try:
            text = b64decode(str(source["data"])).decode()
        except ValueError:
            raise NotCarriedError(block, "a text document must be UTF-8 in base64.") from None
    return {"type": "text", "media_type": "text/plain", "data": text}


def _source(block: Block, url: str) -> Content:
    if url[:5].lower() != "data:":
        return {"type": "url", "url": url}
    match = _DATA_URL.match(url)
    if match is None:
        raise NotCarriedError(block, "a data: URL must hold base64.")
    return {"type": "base64", "media_type": match["type"], "data": url[match.end() :]}


# Reasoning


class _SignedBlock(msgspec.Struct):
    type: str
    signature: str | None = None
    data: str | None = None


_signed_block = msgspec.json.Decoder(_SignedBlock)
_fields_list = msgspec.json.Decoder(list[Fields])
_content = msgspec.json.Decoder(list[Raw] | str)


def _parse_thinking(text: str, signature: str) -> ReasoningBlock:
    maker, own = unwrapped(signature)
    native = ReasoningBlock(text=text, signature=own or None, format=ANTHROPIC, maker=maker)
    return unpack(signature) or native


def _parse_redacted(data: str) -> ReasoningBlock:
    maker, own = unwrapped(data)
    return unpack(data) or ReasoningBlock(encrypted=own, format=ANTHROPIC, maker=maker)


def render_reasoning(block: ReasoningBlock, maker: str) -> dict[str, object]:
    """Render a block for a client, whichever provider made it."""
    if block.format != ANTHROPIC:
        return {"type": "thinking", "thinking": block.text, "signature": pack(block, maker)}
    if block.encrypted and not block.text:
        return {"type": "redacted_thinking", "data": wrapped(block.encrypted, maker)}
    signature = wrapped(block.signature or "", maker) or unsigned(maker)
    return {"type": "thinking", "thinking": block.text, "signature": signature}


def render_provider_reasoning(block: ReasoningBlock, provider: str) -> dict[str, object] | None:
    """Render a block for a provider; None if the provider could not verify it."""
    if block.format != ANTHROPIC or not block.may_go_to(provider):
        return None
    if block.encrypted and not (block.signature or block.text):
        return render_reasoning(block, "")
    if block.signature or (block.text and block.maker is not None and not block.encrypted):
        return {"type": "thinking", "thinking": block.text, "signature": block.signature or ""}
    return None


def own_reasoning(messages: Raw, provider: str) -> Raw:
    """Return a client's messages with the reasoning that a provider made, and no other.

    A client that changes the model within a conversation sends it back; Anthropic rejects a request
    with a signature that is not its own.
    """
    if not is_marked(bytes(messages)):
        return messages
    try:
        cleaned = (_cleaned(message, provider) for message in _fields_list.decode(messages))
        return raw([message for message in cleaned if message is not None])
    except (msgspec.DecodeError, RecursionError):
        # Not a conversation: the provider reports the error.
        return messages


def _cleaned(message: Fields, provider: str) -> Fields | None:
    """Return a message for a provider; None if nothing is left of it."""
    content = _content.decode(message.get("content", Raw(b'""')))
    if isinstance(content, str) or not is_marked(bytes(message["content"])):
        return message
    own = [found for block in content if (found := _own_block(block, provider)) is not None]
    return {**message, "content": raw(own)} if own else None


def _own_block(block: Raw, provider: str) -> Raw | None:
    signed = try_decode(_signed_block, block)
    field = None if signed is None else _PROOFS.get(signed.type)
    proof = None if field is None else getattr(signed, field)
    if field is None or proof is None:
        return block
    packed, (maker, own) = unpack(proof), unwrapped(proof)
    if packed is not None:
        shown = render_provider_reasoning(packed, provider) if packed.maker else None
        return None if shown is None else raw(shown)
    if maker is None:
        return block
    return raw({**fields_decoder.decode(block), field: own}) if maker == provider else None


def mark_block(block: Fields, maker: str) -> Fields:
    """Return a provider's block as a client gets it: with a mark in what only its maker reads."""
    field = _PROOFS.get(try_decode(text_decoder, block.get("type", NULL)) or "")
    proof = None if field is None else try_decode(text_decoder, block.get(field, NULL))
    marked = wrapped(proof, maker) if proof else unsigned(maker) if field == "signature" else ""
    return {**block, field: raw(marked)} if field and marked and maker else block


_PROOFS: Final[Mapping[str, str]] = {"thinking": "signature", "redacted_thinking": "data"}
"""The field of a block that only its maker can read."""


def without_nulls(block: Fields) -> Fields:
    """Return a provider's block without null in fields in which clients reject it."""
    return without(block, {name for name in _NEVER_NULL if block.get(name) == NULL})


def shown_content(content: Raw, maker: str) -> Raw:
    """Return the blocks of a provider's reply as a client gets them."""
    if b"null" in bytes(content):
        content = raw([without_nulls(block) for block in _fields_list.decode(content)])
    if b"thinking" in bytes(content):
        content = raw([mark_block(block, maker) for block in _fields_list.decode(content)])
    return content


_NEVER_NULL: Final = frozenset({"citations", "caller", "toolset_name"})
"""Optional fields of a block: Anthropic never sends null in them, some servers do, and published
clients reject it.

Source: the response schema of @ai-sdk/anthropic 4, where these are optional and not nullable.
"""
