"""What becomes of each published kind of item, tool and block of a request in another format.

    carried   it is passed on as what the other format has for it
    text      it is passed on as text that begins with its kind in brackets
    refused   the request gets a 400 that names its place

A kind that is in no table is refused, too: what nobody knows is never left out. The tables hold for
translations alone; in its own format a request is passed through. docs/formats.md shows them, and
the unions of the official packages of Python say which kinds there are.

Source: https://platform.openai.com/docs/api-reference/responses/create,
https://platform.openai.com/docs/api-reference/chat/create, https://docs.anthropic.com/en/api/messages
and the packages `openai` and `anthropic`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec
from msgspec import Raw

from tollhouse.inference.formats.wire import NULL, encoder, fields_decoder, try_decode
from tollhouse.kernel.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

Rule = Literal["carried", "text", "refused"]
_LONGEST_KIND: Final = 60
_LONGEST_DATA: Final = 1000
_DEEPEST: Final = 8
_list = msgspec.json.Decoder(list[Raw])


class Kind(NamedTuple):
    """The rule of one kind."""

    rule: Rule
    how: str = ""
    """What it becomes; of a refused one the reason, in the words of the 400."""


Kinds = dict[str, Kind]


def _all(kinds: str, rule: Rule, how: str = "") -> Kinds:
    return dict.fromkeys(kinds.split(), Kind(rule, how))


_NOT_STORED: Final = (
    "nothing is stored here, so that a reference leads nowhere: send the whole item (a client that "
    "refers to items unless `store` is false needs `store: false`)"
)
_SEALED: Final = "only the provider that made it can read it: begin without it"
_PROVIDERS_OWN: Final = "a tool that only its own provider runs; leave it out, or give a function"
_ELSEWHERE: Final = "it lies with a provider that others cannot ask; send what it holds"

ITEMS: Final[Kinds] = {
    **_all("message reasoning", "carried"),
    **_all("function_call custom_tool_call", "carried", "a call, under its tool's name there"),
    **_all("function_call_output custom_tool_call_output", "carried", "the call's result"),
    **_all(
        "tool_search_call shell_call local_shell_call apply_patch_call",
        "carried",
        "a call of a function that the client runs",
    ),
    **_all(
        "shell_call_output local_shell_call_output apply_patch_call_output",
        "carried",
        "the call's result",
    ),
    "tool_search_output": Kind("carried", "the call's result; its tools are among the others"),
    "additional_tools": Kind("carried", "its tools are among the others"),
    "agent_message": Kind("text", "a user message that names author and recipient"),
    "image_generation_call": Kind("text", "its image follows in a user message"),
    **_all(
        "web_search_call file_search_call code_interpreter_call mcp_call mcp_list_tools "
        "mcp_approval_request multi_agent_call program computer_call",
        "text",
        "of the model",
    ),
    **_all(
        "mcp_approval_response multi_agent_call_output program_output", "text", "a user message"
    ),
    "computer_call_output": Kind("text", "its picture follows in the user message"),
    "item_reference": Kind("refused", _NOT_STORED),
    "compaction": Kind("refused", _SEALED),
    "compaction_trigger": Kind("refused", "only its own provider can shorten a conversation"),
    "configuration_update": Kind("refused", "settings cannot change within a conversation here"),
}
"""Of `input` of /responses."""

TOOLS: Final[Kinds] = {
    "function": Kind("carried"),
    "custom": Kind("carried", "a function with one text, `input`"),
    "namespace": Kind("carried", "its tools, under names that begin with its own"),
    "tool_search": Kind("carried", "a function; of a server's search the tools that it would find"),
    **_all("shell local_shell apply_patch", "carried", "a function that the client runs"),
    **_all(
        "web_search web_search_2025_08_26 web_search_preview web_search_preview_2025_03_11 "
        "image_generation",
        "text",
        "the model is told that it is not there",
    ),
    **_all(
        "file_search computer computer_use_preview mcp code_interpreter programmatic_tool_calling",
        "refused",
        _PROVIDERS_OWN,
    ),
}
"""Of `tools` of /responses, of namespaces and of items that hold tools."""

PARTS: Final[Kinds] = {
    **_all("input_text output_text text refusal input_image input_audio", "carried"),
    "input_file": Kind("carried", "with its bytes or its URL"),
    "encrypted_content": Kind("refused", _SEALED),
}
"""Of messages and results of /responses; `reasoning` has parts of its own."""

BLOCKS: Final[Kinds] = {
    **_all("text image document thinking redacted_thinking tool_use tool_result", "carried"),
    "search_result": Kind("carried", "a document of text"),
    "tool_reference": Kind("text", "the name of the tool that was found"),
    **_all(
        "server_tool_use mcp_tool_use web_search_tool_result web_fetch_tool_result "
        "code_execution_tool_result bash_code_execution_tool_result "
        "text_editor_code_execution_tool_result tool_search_tool_result advisor_tool_result "
        "mcp_tool_result mcp_tool_listing fallback",
        "text",
        "without what only its provider can read",
    ),
    "browser_state": Kind("text"),
    "container_upload": Kind("refused", _ELSEWHERE),
    "compaction": Kind("text", "its summary"),
    **_all(
        "tool_addition tool_removal",
        "refused",
        "the tools cannot change within a conversation here",
    ),
}
"""Of messages and tool results of /messages."""

MESSAGE_TOOLS: Final[Kinds] = {
    "custom": Kind("carried"),
    **_all(
        "bash_20241022 bash_20250124 memory_20250818 text_editor_20241022 text_editor_20250124 "
        "text_editor_20250429 text_editor_20250728",
        "carried",
        "a function with the tool's published schema",
    ),
    **_all(
        "tool_search_tool_bm25 tool_search_tool_bm25_20251119 tool_search_tool_regex "
        "tool_search_tool_regex_20251119",
        "carried",
        "all tools are there from the start, so that there is nothing to search",
    ),
    **_all(
        "web_search_20250305 web_search_20260209 web_search_20260318 web_fetch_20250910 "
        "web_fetch_20260209 web_fetch_20260309 web_fetch_20260318 code_execution_20250522 "
        "code_execution_20250825 code_execution_20260120 code_execution_20260521 "
        "advisor_20260301 mcp_toolset computer_20241022 computer_20250124 computer_20251124 "
        "computer_toolset_20260801 browser_toolset_20260801",
        "refused",
        _PROVIDERS_OWN,
    ),
}
"""Of `tools` of /messages."""

CHAT_PARTS: Final[Kinds] = {
    **_all("text refusal image_url input_audio file", "carried"),
    **_all("thinking redacted_thinking", "carried", "reasoning of the model's message"),
}
"""Of messages of /chat/completions."""

CHAT_TOOLS: Final[Kinds] = {
    "function": Kind("carried"),
    "custom": Kind("carried", "a function with one text, `input`, where there are no such tools"),
}
"""Of `tools` and of `tool_calls` of /chat/completions."""

TABLES: Final[Mapping[str, Kinds]] = {
    "item of `/responses`": ITEMS,
    "tool of `/responses`": TOOLS,
    "part of `/responses`": PARTS,
    "block of `/messages`": BLOCKS,
    "tool of `/messages`": MESSAGE_TOOLS,
    "part of `/chat/completions`": CHAT_PARTS,
    "tool of `/chat/completions`": CHAT_TOOLS,
}


def refused(kinds: Kinds, kind: str | None, path: str) -> Invalid:
    """Return the 400 of what cannot be passed on; `path` is its place in the client's body."""
    if kind is None:
        return Invalid(f"{path}.type: this field is required.")
    shown = repr(kind[:_LONGEST_KIND])
    known = kinds.get(kind)
    if known is None:
        return Invalid(
            f"{path}.type: {shown} is not known here, so that this model's provider cannot get it;"
            " nothing is left out silently."
        )
    reason = known.how if known.rule == "refused" else "cannot stand here"
    return Invalid(f"{path}.type: {shown}: {reason}.")


def marked(kind: str, data: Raw, without: Collection[str] = ()) -> str:
    """Return what an object says as text that begins with its kind: `[web_search_call] {...}`.

    Its id and status, what only its provider can read, and the bytes of files are left out.
    """
    fields = try_decode(fields_decoder, data) or {}
    hidden = {"type", "id", "status", "cache_control", "tool_use_id", *without}
    shown = {name: _readable(value) for name, value in fields.items() if name not in hidden}
    return f"[{kind}] {encoder.encode(_told(shown)).decode()}"


def _readable(value: Raw, depth: int = 0) -> object:
    """Return a value without what only its provider can read, as far as it looks."""
    if depth == _DEEPEST:
        return value
    fields = try_decode(fields_decoder, value)
    if fields is not None:
        return _told({name: _field(name, each, depth) for name, each in fields.items()})
    found = try_decode(_list, value)
    return value if found is None else [_readable(each, depth + 1) for each in found]


def _field(name: str, value: Raw, depth: int) -> object:
    if name == "data" and len(value) > _LONGEST_DATA:
        return f"({len(value)} bytes)"
    return _readable(value, depth + 1)


def _told(fields: Mapping[str, object]) -> dict[str, object]:
    return {
        name: value
        for name, value in fields.items()
        if value != NULL and not name.startswith("encrypted_")
    }
