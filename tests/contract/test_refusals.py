"""The stubs refuse what the providers would, so that a wrong translation fails its test."""

from collections.abc import Generator
from typing import Any

import httpx2
import pytest

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


def ask(upstream: UpstreamProcess, path: str, fields: dict[str, Any]) -> int:
    headers = {"x-api-key": "k", "anthropic-version": "2023-06-01"}
    body = {"model": "echo"} | RIGHT[path] | fields
    return httpx2.post(f"{upstream.origin}/v1/{path}", json=body, headers=headers).status_code


@pytest.mark.parametrize("path", RIGHT)
def test_a_right_request_is_answered(upstream: UpstreamProcess, path: str) -> None:
    assert ask(upstream, path, {}) == 200


@pytest.mark.parametrize(("path", "fields"), WRONG)
def test_a_wrong_request_is_refused(
    upstream: UpstreamProcess, path: str, fields: dict[str, Any]
) -> None:
    assert ask(upstream, path, fields) == 400
