"""Reads the items of a responses request that are neither messages nor functions' calls. Pure.

    calls of tools that the client runs      a call of the function that stands for the tool
    calls of a provider's own tools          text that begins with the item's type
    pictures of the two                      in a user message after it

Source: https://platform.openai.com/docs/api-reference/responses/create
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.canonical.types import (
    Block,
    ImageBlock,
    Role,
    TextBlock,
    ToolCall,
    ToolResult,
)
from tollhouse.inference.formats.kinds import ITEMS, marked, refused
from tollhouse.inference.formats.media_types import data_url
from tollhouse.inference.formats.responses_client_tools import CALLS_BY_CLIENT, RUN_BY_CLIENT
from tollhouse.inference.formats.responses_wire import ITEM_REFERENCE, item_decoder
from tollhouse.inference.formats.wire import (
    NULL,
    encoder,
    fields_decoder,
    read_at,
    text_decoder,
    try_decode,
    without,
)
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.inference.formats.responses_client_tools import RequestTools


class ParsedItem(NamedTuple):
    """The content of one item."""

    role: Role
    blocks: Sequence[Block]
    merges: bool = False
    """Whether it shares a turn with adjacent items of its role that merge as well."""


class _Untyped(msgspec.Struct):
    type: str | None = None
    role: Raw = NULL
    id: Raw = NULL


class _Call(msgspec.Struct):
    call_id: str | None = None
    id: str | None = None
    arguments: Raw = NULL
    action: Raw = NULL
    operation: Raw = NULL


class _Output(msgspec.Struct):
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
_call = msgspec.json.Decoder(_Call)
_output = msgspec.json.Decoder(_Output)
_tool_list = msgspec.json.Decoder(_ToolList)
_picture = msgspec.json.Decoder(_Picture)
_screen = msgspec.json.Decoder(_ScreenOutput)
_OUTPUT: Final = "_output"
OF_USERS: Final = frozenset(
    {"agent_message", "mcp_approval_response", "multi_agent_call_output", "program_output"}
)
"""The items that become text of the user, not of the model."""
_WITH_TOOLS: Final = frozenset({"additional_tools", "tool_search_output"})


def read_kind(data: Raw, path: str) -> str:
    """Return an item's type; one without is a message, or a reference if it has an id alone."""
    kind = read_at(item_decoder, data, path).type
    if kind is not None:
        return kind
    item = read_at(_untyped, data, path)
    return ITEM_REFERENCE if item.role == NULL and item.id != NULL else "message"


def tools_of(kind: str, data: Raw, path: str) -> tuple[Sequence[Raw], str] | None:
    """Return the tools that an item brings, and their path; None for other items."""
    if kind not in _WITH_TOOLS:
        return None
    return read_at(_tool_list, data, path).tools, f"{path}.tools"


def read_item(kind: str, data: Raw, path: str, tools: RequestTools) -> Sequence[ParsedItem]:
    """Return what an item says; raises `Invalid` if it cannot be passed on."""
    rule = ITEMS[kind].rule if kind in ITEMS else "refused"
    if rule == "refused":
        raise refused(ITEMS, kind, path)
    if kind == "additional_tools":
        return ()
    if kind in CALLS_BY_CLIENT:
        return (_read_call(kind, data, path, tools),)
    if kind.removesuffix(_OUTPUT) in (*CALLS_BY_CLIENT, "tool_search"):
        return (_read_output(kind, data, path, tools),)
    if kind == "image_generation_call":
        return _read_picture(kind, data, path)
    if kind == "computer_call_output":
        return (_read_screen(kind, data, path),)
    text = TextBlock(marked(kind, data))
    return (_users(text),) if kind in OF_USERS else (ParsedItem("assistant", [text], merges=True),)


def _users(*blocks: Block) -> ParsedItem:
    return ParsedItem("user", blocks)


def _read_call(kind: str, data: Raw, path: str, tools: RequestTools) -> ParsedItem:
    call = read_at(_call, data, path)
    if call.call_id is None:
        # A search that a server ran: nobody waits for its result.
        return ParsedItem("assistant", [TextBlock(marked(kind, data))], merges=True)
    if call.id is not None:
        tools.call_ids[call.id] = call.call_id
    name = CALLS_BY_CLIENT[kind]
    run = RUN_BY_CLIENT[name]
    field: Raw = getattr(call, run.field)
    arguments = try_decode(text_decoder, field)
    if arguments is None:
        given = read_at(fields_decoder, field, f"{path}.{run.field}")
        shown = {each: value for each, value in given.items() if value != NULL}
        fixed = {
            each for each, value in run.fixed.items() if value or given.get(each) == Raw(b"{}")
        }
        arguments = encoder.encode(without(shown, fixed)).decode()
    return ParsedItem(
        "assistant", [ToolCall(call.call_id, tools.name_of_type(name), arguments)], merges=True
    )


def _read_output(kind: str, data: Raw, path: str, tools: RequestTools) -> ParsedItem:
    output = read_at(_output, data, path)
    if kind == "tool_search_output":
        names = [tools.name(*each) for each in tools.found.get(f"{path}.tools", ())]
        text = f"Found: {', '.join(names)}" if names else "Found no tools."
    else:
        text = try_decode(text_decoder, output.output)
        text = (
            ("" if output.output == NULL else bytes(output.output).decode())
            if text is None
            else text
        )
    call_id = output.call_id or tools.call_ids.get(output.id or "", output.id)
    if output.call_id is None and kind == "tool_search_output":
        return ParsedItem("assistant", [TextBlock(f"[{kind}] {text}")], merges=True)
    if call_id is None:
        raise Invalid(f"{path}.call_id: this field is required.")
    failed = output.status == "failed"
    return ParsedItem("user", [ToolResult(call_id, (TextBlock(text),), failed)], merges=True)


def _read_picture(kind: str, data: Raw, path: str) -> Sequence[ParsedItem]:
    picture = read_at(_picture, data, path)
    text = ParsedItem("assistant", [TextBlock(marked(kind, data, {"result"}))], merges=True)
    if not picture.result:
        return (text,)
    return (text, _users(ImageBlock(data_url(picture.result, otherwise="image/png"))))


def _read_screen(kind: str, data: Raw, path: str) -> ParsedItem:
    url = read_at(_screen, data, path).output.image_url
    if url is None:
        raise Invalid(
            f"{path}.output.image_url: an image must come as a URL; file ids are not known here."
        )
    return _users(TextBlock(marked(kind, data, {"output"})), ImageBlock(data_url(url)))
