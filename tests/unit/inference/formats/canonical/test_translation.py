"""A request in one format, sent in another dialect."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tollhouse.accounting.types import FREE, Charge, CostState, Usage
from tollhouse.inference.formats.adapter import FormatAdapter
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.types import Dialect, Endpoint, Profile, ReplyIdentity

ENDPOINT = Endpoint("acme", "large-2026", FREE)
IDENTITY = ReplyIdentity("gen-1", "m", "Acme", 1)
CHARGE = Charge(CostState.UNKNOWN, Usage(), 0, None, None)
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "s"}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [THOUGHT, {"type": "text", "text": "so"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 2},
}
STREAM = (
    {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
    {"type": "content_block_start", "index": 0, "content_block": {**THOUGHT, "thinking": ""}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "thinking_delta", "thinking": "hm"},
    },
    {"type": "content_block_stop", "index": 0},
)


def chat_on(dialect: Dialect, **fields: Any) -> FormatAdapter:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]} | fields
    return FORMATS["/chat/completions"].parse(json.dumps(body).encode(), {}, b"")[dialect]


@pytest.mark.parametrize(
    "hides", [{"reasoning": {"effort": "low", "exclude": True}}, {"include_reasoning": False}]
)
def test_excluded_reasoning_is_left_out(hides: dict[str, Any]) -> None:
    adapter = chat_on(Dialect.MESSAGES, **hides)
    whole = adapter.parse_response(json.dumps(MESSAGE).encode()).render(IDENTITY, CHARGE)
    assert json.loads(whole)["choices"][0]["message"]["content"] == "so"
    stream = adapter.open_stream(IDENTITY)
    streamed = b"".join(stream.feed(json.dumps(each).encode()) for each in STREAM)
    assert b"hm" not in whole + streamed
    assert stream.seen.output_tokens == 1, "they were thought all the same"


def test_reasoning_is_kept_by_default() -> None:
    adapter = chat_on(Dialect.MESSAGES)
    assert b"hm" in adapter.parse_response(json.dumps(MESSAGE).encode()).render(IDENTITY, CHARGE)


def test_a_parameter_that_the_dialect_lacks_is_unsupported() -> None:
    assert set(chat_on(Dialect.MESSAGES, seed=1, top_k=2).unsupported_parameters(ENDPOINT)) == {
        "seed"
    }


def test_a_parameter_that_the_server_rejects_is_unsupported() -> None:
    picky = replace(ENDPOINT, profile=Profile(refuses=frozenset({"reasoning", "text"})))
    adapter = chat_on(Dialect.RESPONSES, reasoning_effort="low", max_tokens=20, seed=1)
    assert set(adapter.unsupported_parameters(picky)) == {"thinking", "seed"}


def test_the_output_limit_is_always_supported() -> None:
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    adapters = FORMATS["/messages"].parse(json.dumps(body).encode(), {}, b"")
    chat = adapters[Dialect.CHAT]
    openai = Profile(
        refuses_in_chat=frozenset({"max_tokens"}), output_limit="max_completion_tokens"
    )
    endpoint = replace(ENDPOINT, profile=openai)
    assert not chat.unsupported_parameters(endpoint)
    assert json.loads(chat.render_request(endpoint))["max_completion_tokens"] == 9
