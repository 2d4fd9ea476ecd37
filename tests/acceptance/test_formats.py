"""Requests of coding agents, and abusive ones, in every format on every dialect."""

import asyncio
import json
from collections.abc import Generator
from typing import Any

import httpx2
import pytest

from tests.support.server_process import ServerProcess, start_server
from tests.support.stream_checks.messages import check_stream as checked_messages
from tests.support.stream_checks.responses import check_stream as checked_response
from tests.support.upstream_process import start_upstream

DIALECTS = ("chat", "responses", "messages")
BEHAVIOURS = ("echo", "tools", "two-tools", "custom")
WORDS = "Be careful, read before you write, and say what you did. " * 12


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_upstream() as upstream:
        url = f"{upstream.origin}/v1"
        openai = {"kind": "openai_compatible", "base_url": url}
        anthropic = {"kind": "anthropic", "base_url": url, "api_key": "sk-ant-1"}
        config = {
            "providers": [
                {"slug": "chat", "dialects": ["chat", "embeddings"], **openai},
                {"slug": "responses", "dialects": ["responses"], **openai},
                {"slug": "messages", **anthropic},
            ],
            "models": [
                {
                    "id": f"{dialect}/{model}",
                    "context_length": 200_000,
                    "endpoints": [{"provider": dialect, "model": model, "pricing": "free"}],
                }
                for dialect in DIALECTS
                for model in (*BEHAVIOURS, "embedding-2026")
            ],
        }
        folder = tmp_path_factory.mktemp("formats")
        with start_server(folder, config=json.dumps(config)) as running:
            yield running


def post(server: ServerProcess, path: str, body: dict[str, Any], **headers: str) -> httpx2.Response:
    return httpx2.post(
        f"{server.base_url}/{path}", json=body, headers=server.authorization | headers, timeout=30
    )


# ---------------------------------------------------------------------------------- Claude Code


BETAS = [
    *("claude-code-20250219", "interleaved-thinking-2025-05-14"),
    *("context-management-2025-06-27", "prompt-caching-scope-2026-01-05"),
    *("effort-2025-11-24", "nobody-knows-this-one-2030-01-01"),
]
FILE_PATH = {"type": "string", "description": "The absolute path. " + WORDS}
CACHED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def code_tools() -> list[dict[str, Any]]:
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"file_path": FILE_PATH, "limit": {"type": "number"}},
        "required": ["file_path"],
        "additionalProperties": False,
    }
    return [
        {"name": f"Tool{number}", "description": WORDS * 2, "input_schema": schema}
        for number in range(24)
    ]


def claude_code(model: str, messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": model,
        "messages": messages,
        "system": [
            {"type": "text", "text": "You are a coding agent."},
            {"type": "text", "text": WORDS * 27, **CACHED},
        ],
        "tools": code_tools(),
        "metadata": {"user_id": "user_0123_account__session_4567"},
        "max_tokens": 32_000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "stream": True,
    }


FIRST_TURN = {
    "role": "user",
    "content": [
        {"type": "text", "text": f"<system-reminder>\n{WORDS}\n</system-reminder>"},
        {"type": "text", "text": "Read the file.", **CACHED},
    ],
}


def ask_as_claude_code(
    server: ServerProcess, model: str, messages: list[dict[str, Any]]
) -> httpx2.Response:
    body = claude_code(model, messages)
    assert len(json.dumps(body)) > 76_000
    headers = {"anthropic-version": "2023-06-01", "anthropic-beta": ",".join(BETAS)}
    reply = post(server, "messages?beta=true", body, **headers)
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_coding_agent_s_messages_become_a_tool_call(server: ServerProcess, dialect: str) -> None:
    reply = ask_as_claude_code(server, f"{dialect}/tools", [FIRST_TURN])
    seen = checked_messages(reply.content)
    assert seen.error is None
    assert seen.last is not None
    assert seen.last["delta"]["stop_reason"] == "tool_use"
    assert (seen.blocks[-1]["type"], seen.blocks[-1]["name"]) == ("tool_use", "Tool0")
    assert isinstance(json.loads(seen.texts[-1]["partial_json"]), dict)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_coding_agent_s_next_turn_carries_the_thought_and_the_result(
    server: ServerProcess, dialect: str
) -> None:
    seen = checked_messages(ask_as_claude_code(server, f"{dialect}/tools", [FIRST_TURN]).content)
    said = [
        block | ({"input": json.loads(text.pop("partial_json"))} if "input" in block else {}) | text
        for block, text in zip(seen.blocks, seen.texts, strict=True)
    ]
    result = {"type": "tool_result", "tool_use_id": seen.blocks[-1]["id"], "content": "42 lines"}
    messages = [
        FIRST_TURN,
        {"role": "assistant", "content": said},
        {"role": "user", "content": [result | CACHED]},
    ]
    after = checked_messages(ask_as_claude_code(server, f"{dialect}/tools", messages).content)
    assert after.error is None
    assert after.text == "42 lines"


# ---------------------------------------------------------------------------------------- Codex


PATCH_GRAMMAR = 'start: "*** Begin Patch" LF\n%import common.LF\n'


def codex_tools() -> list[dict[str, Any]]:
    parameters = {
        "type": "object",
        "properties": {"command": {"type": "string", "description": WORDS}},
        "required": ["command"],
        "additionalProperties": False,
    }
    functions = [
        {"type": "function", "name": f"tool_{number}", "description": WORDS, "strict": False}
        | {"parameters": parameters}
        for number in range(7)
    ]
    patch = {"type": "custom", "name": "apply_patch", "description": WORDS}
    grammar = {"type": "grammar", "syntax": "lark", "definition": PATCH_GRAMMAR}
    search = {"type": "web_search", "external_web_access": False}
    return [patch | {"format": grammar}, *functions, search]


def codex(model: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "model": model,
        "instructions": WORDS * 36,
        "input": items,
        "tools": codex_tools(),
        "tool_choice": "auto",
        "parallel_tool_calls": False,
        "reasoning": {"effort": "medium", "summary": "auto"},
        "store": False,
        "stream": True,
        "include": ["reasoning.encrypted_content"],
        "prompt_cache_key": "0190a3c4-session",
        "text": {"verbosity": "medium"},
    }


def item(role: str, text: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "message", "role": role, "content": content}


FIRST_ITEMS = [
    item("developer", WORDS * 4),
    item("user", f"<environment_context>{WORDS}</environment_context>"),
    item("user", "Fix the bug."),
]
CUSTOM = {"chat": "chat/two-tools", "responses": "responses/custom", "messages": "messages/tools"}
"""Dialect -> the model that uses the first tool, which takes a text."""


def ask_as_codex(server: ServerProcess, model: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    body = codex(model, items)
    assert len(json.dumps(body)) > 40_000
    reply = post(server, "responses", body)
    assert reply.status_code == 200, reply.text
    seen = checked_response(reply.content)
    assert seen.types[-1] == "completed"
    return seen.response


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_coding_agent_s_response_is_completed(server: ServerProcess, dialect: str) -> None:
    response = ask_as_codex(server, f"{dialect}/echo", FIRST_ITEMS)
    (message,) = [each for each in response["output"] if each["type"] == "message"]
    # A provider whose users and assistants take turns gets the user's messages as one.
    assert message["content"][0]["text"].endswith("Fix the bug.")


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_tool_that_takes_a_text_is_called_with_one(server: ServerProcess, dialect: str) -> None:
    response = ask_as_codex(server, CUSTOM[dialect], FIRST_ITEMS)
    calls = [each for each in response["output"] if each["type"] == "custom_tool_call"]
    assert [call["name"] for call in calls] == ["apply_patch"]
    assert calls[0]["input"] in {"input", "Fix the bug."}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_coding_agent_s_next_response_takes_what_the_tool_returned(
    server: ServerProcess, dialect: str
) -> None:
    output = ask_as_codex(server, CUSTOM[dialect], FIRST_ITEMS)["output"]
    results = [
        {"type": f"{call['type']}_output", "call_id": call["call_id"], "output": "patched"}
        for call in output
        if call["type"].endswith("_call")
    ]
    response = ask_as_codex(server, CUSTOM[dialect], [*FIRST_ITEMS, *output, *results])
    (message,) = [each for each in response["output"] if each["type"] == "message"]
    assert set(message["content"][0]["text"].split()) == {"patched"}


# ------------------------------------------------------------------------------- absurd bodies


DEPTH = 100_000
LONG = 10_000_000
PATHS = ("chat/completions", "responses", "messages", "completions", "embeddings")
FIELD = {
    "chat/completions": "messages",
    "responses": "input",
    "messages": "messages",
    "completions": "prompt",
    "embeddings": "input",
}
PLACES = [(path, dialect) for path in PATHS[:-1] for dialect in DIALECTS]
PLACES += [("embeddings", "chat")]


def request(path: str, dialect: str, text: str) -> dict[str, Any]:
    """Return a request with a text."""
    said = [{"role": "user", "content": text}]
    model = f"{dialect}/{'embedding-2026' if path == 'embeddings' else 'echo'}"
    limit = {"max_tokens": 1000} if path == "messages" else {}
    return {"model": model, FIELD[path]: said if FIELD[path] == "messages" else text} | limit


def nested_at(path: str, dialect: str, field: str) -> bytes:
    """Return a request with a value in it that is nested too deep for any reader."""
    deep = b"[" * DEPTH + b"]" * DEPTH
    marked = json.dumps(request(path, dialect, "hi") | {field: "@"}).encode()
    return marked.replace(b'"@"', deep)


async def beside_a_small_one(
    server: ServerProcess, path: str, dialect: str, body: bytes
) -> httpx2.Response:
    """Send a body, and small requests of another client while it is on its way."""

    async def send(client: httpx2.AsyncClient, content: bytes) -> httpx2.Response:
        return await client.post(f"{server.base_url}/{path}", content=content)

    small = json.dumps(request(path, dialect, "hi")).encode()
    options: Any = {"headers": server.authorization, "timeout": 60}
    async with httpx2.AsyncClient(**options) as one, httpx2.AsyncClient(**options) as other:
        absurd, *normal = await asyncio.gather(
            send(one, body), *(send(other, small) for _ in range(3))
        )
    assert [reply.status_code for reply in normal] == [200, 200, 200]
    return absurd


@pytest.mark.parametrize("field", ["the content", "tools", "unknown"])
@pytest.mark.parametrize(("path", "dialect"), PLACES)
async def test_a_body_that_is_nested_100_000_deep_is_refused_or_answered(
    server: ServerProcess, path: str, dialect: str, field: str
) -> None:
    body = nested_at(path, dialect, FIELD[path] if field == "the content" else field)
    reply = await beside_a_small_one(server, path, dialect, body)
    assert reply.status_code in {200, 400}
    if reply.status_code == 400:
        assert reply.json()["error"]["message"]


@pytest.mark.parametrize(("path", "dialect"), PLACES)
async def test_a_text_of_10_mb_is_refused_or_answered(
    server: ServerProcess, path: str, dialect: str
) -> None:
    body = json.dumps(request(path, dialect, "x" * LONG)).encode()
    reply = await beside_a_small_one(server, path, dialect, body)
    assert reply.status_code in {200, 400}
    if reply.status_code == 200 and path != "embeddings":
        assert "x" * LONG in reply.text
