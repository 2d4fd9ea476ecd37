"""Tools and the tool choice of a request."""

from __future__ import annotations

from tests.unit.inference.formats.features.feature import MARK, Places, RequestFeature
from tests.unit.inference.formats.features.request_parts import (
    FREEFORM,
    GRAMMAR,
    GRAMMAR_TEXT,
    PATCH,
    SCHEMA,
    TOOL,
    fields,
    tool,
)


def _tools() -> dict[str, RequestFeature]:
    grammar = {"format": GRAMMAR}
    chat_grammar = {"format": {"type": "grammar", "grammar": GRAMMAR}}
    looks: dict[str, Places] = {
        "chat": {"tools.0.function.name": "look"},
        "responses": {"tools.0.type": "function", "tools.0.name": "look"},
        "messages": {"tools.0.name": "look"},
    }
    return {
        "tool": RequestFeature(
            says=TOOL,
            own=looks,
            covers=("ToolDefinition.name", "CanonicalRequest.tools"),
            parameter="tools",
        ),
        "tool's description": RequestFeature(
            says=tool(description=MARK),
            beside=TOOL,
            own={
                "chat": {"tools.0.function.description": MARK},
                "responses": {"tools.0.description": MARK},
                "messages": {"tools.0.description": MARK},
            },
            covers=("ToolDefinition.description",),
        ),
        "tool's schema": RequestFeature(
            says=tool(parameters=SCHEMA),
            beside=TOOL,
            own={
                "chat": {"tools.0.function.parameters": SCHEMA},
                "responses": {"tools.0.parameters": SCHEMA},
                "messages": {"tools.0.input_schema": SCHEMA},
            },
            covers=("ToolDefinition.parameters",),
        ),
        "tool's schema without a `type`": RequestFeature(
            says=tool(parameters={"properties": {MARK: {}}}),
            beside=TOOL,
            own={
                "chat": {"tools.0.function.parameters": {"properties": {MARK: {}}}},
                "responses": {"tools.0.parameters": {"properties": {MARK: {}}}},
            },
            other={
                "messages": {"tools.0.input_schema": {"type": "object", "properties": {MARK: {}}}}
            },
        ),
        "tool's `strict`": RequestFeature(
            says=tool(strict=True),
            beside=TOOL,
            own={
                "chat": {"tools.0.function.strict": True},
                "responses": {"tools.0.strict": True},
                "messages": {"tools.0.strict": True},
            },
            covers=("ToolDefinition.strict",),
        ),
        "custom (freeform) tool": RequestFeature(
            says=PATCH,
            own={"responses": {"tools.0": {"type": "custom", "name": "patch"}}},
            other={
                "chat": {"tools.0.function": {"name": "patch", "parameters": FREEFORM}},
                "messages": {"tools.0": {"name": "patch", "input_schema": FREEFORM}},
            },
            covers=("ToolDefinition.freeform",),
        ),
        "custom tool's grammar": RequestFeature(
            says={
                "chat": {
                    "tools": [{"type": "custom", "custom": {"name": "patch", **chat_grammar}}]
                },
                "responses": {"tools": [{"type": "custom", "name": "patch", **grammar}]},
            },
            beside=PATCH,
            other={
                "chat": {"tools.0.function.description": GRAMMAR_TEXT},
                "responses": {"tools.0.description": GRAMMAR_TEXT},
                "messages": {"tools.0.description": GRAMMAR_TEXT},
            },
        ),
        "provider's own (server) tool": RequestFeature(
            says={
                "chat": {"tools": [{"type": "web_search"}]},
                "responses": {"tools": [{"type": "web_search"}]},
                "messages": {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            }
        ),
        **_tool_choices(),
        "parallel tool calls disabled": RequestFeature(
            says={
                **fields(("chat", "responses"), parallel_tool_calls=False),
                "messages": {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            },
            beside={**TOOL, "messages": {**TOOL["messages"], "tool_choice": {"type": "auto"}}},
            own={
                "chat": {"parallel_tool_calls": False},
                "responses": {"parallel_tool_calls": False},
                "messages": {"tool_choice.disable_parallel_tool_use": True},
            },
            covers=("CanonicalRequest.parallel_tool_calls",),
            parameter="parallel_tool_calls",
        ),
        "maximum of tool calls (`max_tool_calls`)": RequestFeature(
            says={"responses": {"max_tool_calls": 3}}, beside=TOOL
        ),
    }


def _tool_choices() -> dict[str, RequestFeature]:
    words = {
        "auto": ("auto", "auto", "auto"),
        "none": ("none", "none", "none"),
        "required": ("required", "required", "any"),
    }
    simple = {
        f"tool choice `{word}`": RequestFeature(
            says={
                "chat": {"tool_choice": chat},
                "responses": {"tool_choice": responses},
                "messages": {"tool_choice": {"type": messages}},
            },
            beside=TOOL,
            own={
                "chat": {"tool_choice": chat},
                "responses": {"tool_choice": responses},
                "messages": {"tool_choice": {"type": messages}},
            },
            covers=("CanonicalToolChoice.mode", "CanonicalRequest.tool_choice"),
            parameter="tool_choice",
        )
        for word, (chat, responses, messages) in words.items()
    }
    named = {
        "chat": {"type": "function", "function": {"name": "look"}},
        "responses": {"type": "function", "name": "look"},
        "messages": {"type": "tool", "name": "look"},
    }
    allowed = {"mode": "required", "tools": [{"type": "function", "name": "look"}]}
    return {
        **simple,
        "tool choice by name": RequestFeature(
            says={name: {"tool_choice": choice} for name, choice in named.items()},
            beside=TOOL,
            own={name: {"tool_choice": choice} for name, choice in named.items()},
            covers=("CanonicalToolChoice.name",),
            parameter="tool_choice",
        ),
        "tool choice among several (`allowed_tools`)": RequestFeature(
            says={
                "chat": {"tool_choice": {"type": "allowed_tools", "allowed_tools": allowed}},
                "responses": {"tool_choice": {"type": "allowed_tools", **allowed}},
            },
            beside=TOOL,
            other={
                "chat": {"tool_choice": "required"},
                "responses": {"tool_choice": "required"},
                "messages": {"tool_choice": {"type": "any"}},
            },
        ),
    }


TOOLS: dict[str, RequestFeature] = {**_tools()}
