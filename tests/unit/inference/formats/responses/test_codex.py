"""A coding agent's request: large, with tools of every type, and stateless."""

import json
from typing import Any

from tests.unit.inference.formats.responses.response_fixtures import ENDPOINT
from tollhouse.inference.formats.canonical.types import (
    ReasoningBlock,
    TextBlock,
    ThinkingOptions,
    ToolCall,
    ToolResult,
)
from tollhouse.inference.formats.responses.client_stream import RESPONSES_CLIENT
from tollhouse.inference.formats.responses.passthrough import ResponsesPassthroughAdapter
from tollhouse.inference.formats.responses.provider_request import RESPONSES_PROVIDER
from tollhouse.inference.formats.responses.wire import parse_request

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch" hunk+'}
FUNCTIONS: list[dict[str, Any]] = [
    {
        "type": "function",
        "name": name,
        "description": f"Use {name}. " * 40,
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "array", "items": {"type": "string"}}},
            "required": ["command"],
            "additionalProperties": False,
        },
    }
    for name in ("shell", "plan", "view", "list", "find", "stdin", "ask")
]
HISTORY: list[dict[str, Any]] = [
    {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "<permissions>" + "p" * 2000}],
    },
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Fix it."}]},
    {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "**Looking**"}],
        "content": None,
        "encrypted_content": "gAAAAA" + "x" * 1500,
    },
    {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "I look."}],
        "phase": "commentary",
    },
    {
        "type": "function_call",
        "name": "shell",
        "arguments": '{"command":["ls"]}',
        "call_id": "call_1",
    },
    {"type": "function_call_output", "call_id": "call_1", "output": "a.py\n" * 500},
    {
        "type": "custom_tool_call",
        "status": "completed",
        "call_id": "call_2",
        "name": "apply_patch",
        "input": "*** Begin Patch\n*** End Patch",
    },
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": "Done."},
]
FIELDS: dict[str, Any] = {
    "model": "acme/large",
    "instructions": "You are a coding agent. " * 1100,
    "input": HISTORY,
    "tools": [
        *FUNCTIONS,
        {"type": "custom", "name": "apply_patch", "description": "Patch.", "format": GRAMMAR},
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "prompt_cache_key": "019a0000-0000-7000-8000-000000000000",
    "text": {"verbosity": "medium"},
}
REQUEST = parse_request(json.dumps(FIELDS).encode())


def test_the_codex_request_has_a_realistic_size() -> None:
    assert REQUEST.size > 35_000
    assert len(FIELDS["tools"]) == 9


def test_only_the_model_of_a_codex_request_changes() -> None:
    assert json.loads(ResponsesPassthroughAdapter(REQUEST).render_request(ENDPOINT)) == FIELDS | {
        "model": "large-2026"
    }


def test_a_codex_request_is_translated_to_other_formats() -> None:
    prompt = RESPONSES_CLIENT.parse_request(REQUEST)
    assert [turn.role for turn in prompt.turns] == [
        "system",
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert [type(block) for block in prompt.turns[3].blocks] == [
        ReasoningBlock,
        TextBlock,
        ToolCall,
    ]
    assert [type(block) for block in prompt.turns[4].blocks] == [ToolResult]
    assert [tool.freeform for tool in prompt.tools] == [False] * 7 + [True]
    assert prompt.thinking == ThinkingOptions("medium", summary="auto")
    assert prompt.sampling.keys() == {"prompt_cache_key"}


def test_a_translated_codex_request_survives_a_round_trip() -> None:
    prompt = RESPONSES_CLIENT.parse_request(REQUEST)
    body = json.loads(RESPONSES_PROVIDER.render_request(prompt, ENDPOINT))
    said = ("store", "stream", "include", "prompt_cache_key", "text", "reasoning", "tool_choice")
    assert {name: body[name] for name in said} == {name: FIELDS[name] for name in said}
    assert [item["type"] for item in body["input"]] == [
        item["type"] for item in HISTORY if item.get("role") != "developer"
    ]
    assert [item.get("call_id") for item in body["input"]][3:] == [
        "call_1",
        "call_1",
        "call_2",
        "call_2",
    ]
    assert body["input"][1]["encrypted_content"] == HISTORY[2]["encrypted_content"]
    assert body["instructions"].startswith(FIELDS["instructions"])
