"""A minimal request of each format, and builders of requests."""

from __future__ import annotations

from typing import Any

from tests.unit.inference.formats.features.feature import MARK, Body

ALL = ("chat", "responses", "messages")
HELLO = {"role": "user", "content": "hello"}
PLAIN: dict[str, Body] = {
    "chat": {"model": "acme/large", "messages": [HELLO]},
    "responses": {"model": "acme/large", "input": [HELLO]},
    "messages": {"model": "acme/large", "max_tokens": 100, "messages": [HELLO]},
    "completions": {"model": "acme/large", "prompt": "hello"},
}
PNG, PDF = "data:image/png;base64,bWFyaw==", "data:application/pdf;base64,bWFyaw=="
TXT = "data:text/plain;base64,bWFyaw=="
LONG = MARK * 11
URL = "https://files.example/marker"
CACHE = {"type": "ephemeral"}
SCHEMA = {"type": "object", "properties": {MARK: {"type": "string"}}}
FREEFORM = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


def turns(
    chat: list[Any] | None = None,
    responses: list[Any] | None = None,
    messages: list[Any] | None = None,
) -> dict[str, Body]:
    """Return a conversation in the formats that support it."""
    given = {
        "chat": {"messages": chat},
        "responses": {"input": responses},
        "messages": {"messages": messages},
    }
    return {name: body for name, body in given.items() if None not in body.values()}


def user(
    chat: Any = None,
    responses: Any = None,
    messages: Any = None,
) -> dict[str, Body]:
    """Return a user message with one part, in the formats that support it."""
    given = {"chat": chat, "responses": responses, "messages": messages}
    return turns(
        **{
            name: [{"role": "user", "content": [part]}]
            for name, part in given.items()
            if part is not None
        }
    )


def model(chat: Any = None, responses: Any = None, messages: Any = None) -> dict[str, Body]:
    """Return a conversation with an assistant message.

    Args:
        chat: Fields of its message.
        responses: An item.
        messages: A block.
    """
    return turns(
        chat and [HELLO, {"role": "assistant", **chat}, HELLO],
        responses and [HELLO, responses, HELLO],
        messages and [HELLO, {"role": "assistant", "content": [messages, SAID]}, HELLO],
    )


def result(chat: Any = None, responses: Any = None, messages: Any = None) -> dict[str, Body]:
    """Return a conversation with a tool result.

    Args:
        chat: The content of its message.
        responses: The output.
        messages: Fields of its block.
    """
    block: Body = {"type": "tool_result", "tool_use_id": "call_1", **(messages or {})}
    return turns(
        chat and [HELLO, CHAT_CALL, {"role": "tool", "tool_call_id": "call_1", "content": chat}],
        responses and [HELLO, CALL, {**OUTPUT, "output": responses}],
        messages
        and [HELLO, {"role": "assistant", "content": [USE]}, {**HELLO, "content": [block]}],
    )


SAID = {"type": "text", "text": "said"}
SAID_ITEM: Body = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "said"}],
}
CALL = {
    "type": "function_call",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at":"marker"}',
}
OUTPUT = {"type": "function_call_output", "call_id": "call_1"}
USE = {"type": "tool_use", "id": "call_1", "name": "look", "input": {"at": "marker"}}
CHAT_CALL: Body = {
    "role": "assistant",
    "tool_calls": [
        {
            "id": "call_1",
            "type": "function",
            "function": {"name": "look", "arguments": '{"at":"marker"}'},
        }
    ],
}
RESULTS = result("seen", "seen", {"content": "seen"})


def tool(name: str = "look", **fields: Any) -> dict[str, Body]:
    """Return a function in each format."""
    own = {key: value for key, value in fields.items() if key != "parameters"}
    schema = fields.get("parameters", {"type": "object", "properties": {}})
    function = {"name": name, "parameters": schema, **own}
    return {
        "chat": {"tools": [{"type": "function", "function": function}]},
        "responses": {"tools": [{"type": "function", **function}]},
        "messages": {"tools": [{"name": name, "input_schema": schema, **own}]},
    }


TOOL = tool()
PATCH: dict[str, Body] = {
    "chat": {"tools": [{"type": "custom", "custom": {"name": "patch"}}]},
    "responses": {"tools": [{"type": "custom", "name": "patch"}]},
}
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": MARK}
GRAMMAR_TEXT = f"The input must follow this lark grammar:\n{MARK}"


def fields(names: tuple[str, ...], **given: Any) -> dict[str, Body]:
    """Return the same fields for several formats."""
    return dict.fromkeys(names, given)
