"""Converts a messages request to a canonical request. Pure.

An error names the path of the invalid block. What becomes of each type of block says
`formats.kinds`; unknown types are refused, as nothing may be lost silently.
Anthropic's models know the schemas of its own tools; other models have to be told. The client gets
the calls as it does Anthropic's: as `tool_use` of the tool's name.

Source: https://docs.anthropic.com/en/api/messages and, below
https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/, bash-tool, text-editor-tool and
memory-tool for the schemas, tool-search-tool for `defer_loading`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec
from msgspec import Raw, Struct

from tollhouse.inference.formats.canonical.types import (
    Block,
    CanonicalRequest,
    CanonicalToolChoice,
    DocumentBlock,
    ImageBlock,
    JsonOutput,
    Role,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Turn,
)
from tollhouse.inference.formats.kinds import BLOCKS, MESSAGE_TOOLS, marked, refused
from tollhouse.inference.formats.media_types import data_url
from tollhouse.inference.formats.messages import parse_redacted, parse_thinking
from tollhouse.inference.formats.wire import NULL, Fields, encoder, given, raw, read_at, read_typed
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tollhouse.inference.formats.messages import MessagesRequest


class Tool(Struct):
    """A tool of a request; one without a type is the client's own."""

    name: str | None = None
    type: str | None = None
    description: str | None = None
    input_schema: Fields | None = None
    strict: bool | None = None
    cache_control: Raw = NULL


def _object(required: str, **properties: object) -> Mapping[str, object]:
    return {"type": "object", "properties": properties, "required": required.split()}


_TEXT: Final = {"type": "string"}
_NUMBER: Final = {"type": "integer"}
_RANGE: Final = {"type": "array", "items": _NUMBER}
_EDIT: Final = {
    "path": _TEXT,
    "view_range": _RANGE,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "file_text": _TEXT,
    "insert_line": _NUMBER,
    "insert_text": _TEXT,
}
_BUILT_IN: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = {
    "bash": (
        "Run a command in a lasting bash session, or restart the session.",
        _object("", command=_TEXT, restart={"type": "boolean"}),
    ),
    "text": (
        "View, create and edit text files.",
        _object(
            "command path",
            command={"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
            **_EDIT,
        ),
    ),
    "memory": (
        "View, create, edit, delete and rename files below /memories, which outlast this talk.",
        _object(
            "command",
            command={
                "type": "string",
                "enum": ["view", "create", "str_replace", "insert", "delete", "rename"],
            },
            **_EDIT,
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}
"""By the first word of the types: `text_editor_20250728`."""


def definitions(tools: Iterable[Tool]) -> tuple[ToolDefinition, ...]:
    """Return the client's tools; raises `Invalid` for one that only Anthropic runs."""
    read = (_definition(tool, f"tools[{index}]") for index, tool in enumerate(tools))
    return tuple(tool for tool in read if tool is not None)


def _definition(tool: Tool, path: str) -> ToolDefinition | None:
    kind = tool.type or "custom"
    if kind not in MESSAGE_TOOLS or MESSAGE_TOOLS[kind].rule == "refused":
        raise refused(MESSAGE_TOOLS, kind, path)
    if kind.startswith("tool_search_tool"):
        # All tools are given at once, whether they are deferred or not.
        return None
    if not tool.name:
        raise Invalid(f"{path}.name: this field is required.")
    description, schema = _BUILT_IN.get(kind.partition("_")[0], (None, tool.input_schema))
    if schema is None:
        raise Invalid(f"{path}.input_schema: this field is required.")
    return ToolDefinition(
        name=tool.name,
        description=tool.description or description,
        parameters=raw(schema),
        strict=tool.strict,
        cache=given(tool.cache_control),
    )


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


_kind: Final = msgspec.json.Decoder(_Kind)
_text: Final = msgspec.json.Decoder(_Text)
_image: Final = msgspec.json.Decoder(_Image)
_document: Final = msgspec.json.Decoder(_Document)
_search_result: Final = msgspec.json.Decoder(_SearchResult)
_tool_use: Final = msgspec.json.Decoder(_ToolUse)
_tool_result: Final = msgspec.json.Decoder(_ToolResult)
_thinking: Final = msgspec.json.Decoder(_Thinking)
_redacted: Final = msgspec.json.Decoder(_Redacted)


def _parse_content(content: str | Sequence[Raw], path: str) -> tuple[Block, ...]:
    """Parse a message's content; a block that cannot be passed on is `Invalid`."""
    if isinstance(content, str):
        return (TextBlock(content),) if content else ()
    blocks: list[Block] = []
    for position, data in enumerate(content):
        at = f"{path}[{position}]"
        kind = read_at(_kind, data, at).type
        parse = _PARSERS.get(kind)
        if kind == "document":
            blocks += _parse_document(data, at)
        elif parse is not None:
            blocks.append(parse(data, at))
        elif kind in BLOCKS and BLOCKS[kind].rule == "text":
            blocks.append(TextBlock(marked(kind, data)))
        else:
            raise refused(BLOCKS, kind, at)
    return tuple(blocks)


def _parse_text(data: Raw, path: str) -> TextBlock:
    block = read_at(_text, data, path)
    return TextBlock(block.text, cache=block.cache)


def _parse_image(data: Raw, path: str) -> ImageBlock:
    block = read_at(_image, data, path)
    return ImageBlock(_located(block.source, path), cache=block.cache)


def _parse_document(data: Raw, path: str) -> Sequence[Block]:
    """Return a document; of one in parts a document of its text, and its images."""
    block = read_at(_document, data, path)
    source = block.source
    if isinstance(source, _Plain):
        return (DocumentBlock(text=source.data, name=block.title, cache=block.cache),)
    if isinstance(source, _Nested):
        text, images = _flattened(source.content, f"{path}.source.content")
        return (DocumentBlock(text=text, name=block.title, cache=block.cache), *images)
    return (DocumentBlock(url=_located(source, path), name=block.title, cache=block.cache),)


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
    for each in _parse_content(block.content or (), f"{path}.content"):
        if not isinstance(each, (TextBlock, ImageBlock, DocumentBlock)):
            raise Invalid(f"{path}.content: must be of text, images and documents.")
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
    return data_url(source.data, source.media_type, otherwise="application/octet-stream")


def _flattened(content: str | list[Raw], path: str) -> tuple[str, Sequence[ImageBlock]]:
    """Return the text of a document's parts, in which each image has its number, and the images."""
    texts: list[str] = []
    images: list[ImageBlock] = []
    for position, block in enumerate(_parse_content(content, path)):
        if isinstance(block, ImageBlock):
            images.append(block)
            texts.append(f"[image {len(images)}]")
        elif isinstance(block, TextBlock):
            texts.append(block.text)
        else:
            raise Invalid(f"{path}[{position}].type: only text and images can stand here.")
    return "\n".join(texts), images


_PARSERS: Final[Mapping[str, Callable[[Raw, str], Block]]] = {
    "text": _parse_text,
    "image": _parse_image,
    "search_result": _parse_search_result,
    "tool_use": _parse_tool_use,
    "tool_result": _parse_tool_result,
    "thinking": _parse_thinking,
    "redacted_thinking": _parse_redacted,
}

# The request


class _Message(Struct):
    role: Literal["user", "assistant", "system"]
    content: str | list[Raw]


class _ToolChoice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class _ThinkingConfig(Struct):
    type: str
    budget_tokens: int | None = None
    display: str | None = None


class _Format(Struct):
    type: str
    schema: Fields | None = None


class _OutputConfig(Struct):
    effort: str | None = None
    format: _Format | None = None


class _Metadata(Struct):
    user_id: str | None = None


class _Body(Struct):
    messages: list[_Message]
    mcp_servers: list[Raw] | None = None
    system: str | list[Raw] | None = None
    tools: list[Tool] | None = None
    tool_choice: _ToolChoice | None = None
    thinking: _ThinkingConfig | None = None
    output_config: _OutputConfig | None = None
    output_format: _Format | None = None
    stop_sequences: list[str] | None = None
    metadata: _Metadata | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    service_tier: str | None = None


_body = msgspec.json.Decoder(_Body)
_MODES: Final[Mapping[str, Literal["auto", "none", "required"]]] = {
    "auto": "auto",
    "none": "none",
    "any": "required",
}
_TIERS: Final = {"standard_only": "default"}
"""Anthropic's service tiers to the common names."""


def parse_canonical_request(request: MessagesRequest) -> CanonicalRequest:
    """Convert a messages request; raises `Invalid` with the path of a field of the wrong type."""
    body = read_typed(_body, request.body)
    if body.mcp_servers:
        raise Invalid("mcp_servers: only Anthropic asks them itself; give their tools as tools.")
    tools = definitions(body.tools or ())
    choice = body.tool_choice
    return CanonicalRequest(
        turns=(*_system(body.system), *_turns(body.messages)),
        stream=request.stream,
        tools=tools,
        tool_choice=_tool_choice(choice, tools),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        max_tokens=request.max_tokens,
        stop=tuple(body.stop_sequences or ()),
        output=_output(body),
        thinking=_thinking_options(body),
        user=body.metadata.user_id if body.metadata else None,
        sampling=_sampling(body, request.fields),
    )


def _system(system: str | list[Raw] | None) -> tuple[Turn, ...]:
    blocks = _parse_content(system or (), "system")
    return (Turn("system", blocks),) if blocks else ()


def _turns(messages: list[_Message]) -> list[Turn]:
    turns: list[Turn] = []
    for position, message in enumerate(messages):
        role: Role = message.role
        path = f"messages[{position}].content"
        blocks = _parse_content(message.content, path)
        if blocks:
            # Tool results come first; the rest keeps its order.
            ordered = sorted(blocks, key=lambda block: not isinstance(block, ToolResult))
            turns.append(Turn(role, tuple(ordered)))
    return turns


def _tool_choice(
    choice: _ToolChoice | None, tools: tuple[ToolDefinition, ...]
) -> CanonicalToolChoice | None:
    """Return the tool choice; None if the tool that it names is not there."""
    if choice is None or not tools:
        return None
    if choice.type != "tool":
        return CanonicalToolChoice(_MODES[choice.type])
    if not choice.name:
        raise Invalid("tool_choice.name: this field is required.")
    known = any(tool.name == choice.name for tool in tools)
    return CanonicalToolChoice("named", choice.name) if known else None


def _thinking_options(body: _Body) -> ThinkingOptions | None:
    effort = body.output_config.effort if body.output_config else None
    config = body.thinking
    if config is None:
        return None if effort is None else ThinkingOptions(effort=effort)
    return ThinkingOptions(
        effort=effort,
        budget_tokens=config.budget_tokens,
        enabled=config.type != "disabled",
        summary="auto" if config.display == "summarized" else None,
    )


def _output(body: _Body) -> JsonOutput | None:
    wanted = (body.output_config and body.output_config.format) or body.output_format
    if wanted is None or wanted.type != "json_schema" or wanted.schema is None:
        return None
    return JsonOutput(schema=raw(wanted.schema))


def _sampling(body: _Body, fields: Fields) -> Mapping[str, Raw]:
    names = ("temperature", "top_p", "top_k")
    sampling = {name: fields[name] for name in names if getattr(body, name) is not None}
    if body.service_tier is not None:
        sampling["service_tier"] = raw(_TIERS.get(body.service_tier, body.service_tier))
    return sampling
