"""The stubs refuse what the providers would, so that a wrong translation fails its test.

And they say what the providers would: the gateway sees no other replies.
"""

import json
from collections.abc import Generator
from itertools import product
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.support.client_process import CLIENTS, run_client
from tests.support.upstream_process import UpstreamProcess, start_upstream

pytestmark = pytest.mark.contract

HI = {"role": "user", "content": "hi"}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
FORGED = {"type": "thinking", "thinking": "no", "signature": "sig-forged"}
RIGHT: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": [HI]},
    "responses": {"input": [HI]},
    "messages": {"messages": [HI], "max_tokens": 16},
}
MODELS = ("echo", "cached", "refusal", "two-tools", "json")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS: dict[str, dict[str, Any]] = {
    "chat/completions": {
        "tools": [
            {"type": "function", "function": {"name": name, "parameters": SCHEMA}}
            for name in ("weather", "time")
        ]
    },
    "responses": {
        "tools": [
            {"type": "function", "name": name, "parameters": SCHEMA, "strict": False}
            for name in ("weather", "time")
        ]
    },
    "messages": {"tools": [{"name": name, "input_schema": SCHEMA} for name in ("weather", "time")]},
}
WRONG: list[tuple[str, dict[str, Any]]] = [
    ("chat/completions", {"messages": [{"role": "user", "content": [{"type": "text"}]}]}),
    ("chat/completions", {"messages": [HI, {"role": "assistant", "tool_calls": [CALL]}]}),
    ("chat/completions", {"stream_options": {"include_usage": True}}),
    ("responses", {"unheard_of": 1}),
    ("responses", {"input": [HI | {"unheard_of": 1}]}),
    ("responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}),
    ("responses", {"store": True}),
    ("messages", {"unheard_of": 1}),
    ("messages", {"max_tokens": "16"}),
    ("messages", {"messages": [HI, {"role": "assistant", "content": [FORGED]}]}),
    ("messages", {"messages": [{"role": "assistant", "content": "hi"}]}),
]


@pytest.fixture(scope="module")
def upstream() -> Generator[UpstreamProcess]:
    with start_upstream() as running:
        yield running


def ask(upstream: UpstreamProcess, path: str, fields: dict[str, Any]) -> httpx2.Response:
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    body = {"model": "echo"} | RIGHT[path] | fields
    return httpx2.post(f"{upstream.origin}/v1/{path}", json=body, headers=headers)


@pytest.mark.parametrize("path", RIGHT)
def test_a_right_request_is_answered(upstream: UpstreamProcess, path: str) -> None:
    assert ask(upstream, path, {}).status_code == 200


@pytest.mark.parametrize(("path", "fields"), WRONG)
def test_a_wrong_request_is_refused(
    upstream: UpstreamProcess, path: str, fields: dict[str, Any]
) -> None:
    assert ask(upstream, path, fields).status_code == 400


@pytest.mark.parametrize(
    ("library", "path", "thinks"),
    [
        ("openai", "chat/completions", "reasoning"),
        ("openai", "responses", "reasoning"),
        ("anthropic", "messages", "thinking"),
    ],
)
def test_the_library_of_a_format_reads_every_reply(
    upstream: UpstreamProcess, tmp_path: Path, library: str, path: str, thinks: str
) -> None:
    file = tmp_path / "replies"
    with file.open("w") as lines:
        for model, streams in product([*MODELS, thinks], [False, True]):
            reply = ask(upstream, path, {"model": model, "stream": streams, **TOOLS[path]})
            assert reply.status_code == 200, reply.text
            kept = {"path": path, "streams": streams, "body": reply.text}
            lines.write(json.dumps(kept) + "\n")
    env = {"PYTHONPATH": str(CLIENTS), "FILES": json.dumps([str(file)])}
    assert run_client(library, "check_replies.py", env=env) == []
