"""Parsing messages requests, and passing them through."""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.inference.formats.messages.samples import ENDPOINT, request
from tollhouse.inference.formats.canonical.types import OPENAI, ReasoningBlock, pack
from tollhouse.inference.formats.messages.passthrough import MessagesPassthroughAdapter
from tollhouse.inference.formats.messages.wire import parse_request
from tollhouse.inference.formats.registry import FORMATS
from tollhouse.inference.types import Profile
from tollhouse.kernel.errors import Invalid

DEEP = b"[" * 100_000 + b"]" * 100_000


def refusal(**fields: Any) -> str:
    with pytest.raises(Invalid) as caught:
        request(**fields)
    return caught.value.message


def asked(endpoint: Any = ENDPOINT, **fields: Any) -> dict[str, Any]:
    return json.loads(MessagesPassthroughAdapter(request(**fields)).render_request(endpoint))


def agent_body() -> dict[str, Any]:
    """Return the request body of a coding agent."""
    tool = {"description": "d" * 2500, "input_schema": {"type": "object", "properties": {}}}
    return {
        "model": "acme/large",
        "max_tokens": 32000,
        "stream": True,
        "system": [{"type": "text", "text": "s" * 9000, "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "h" * 5000, "new_field": 1}]},
            {
                "role": "assistant",
                "content": [{"type": "thinking", "thinking": "", "signature": "x"}],
            },
            {"role": "user", "content": [{"type": "new_block", "big": 10**40}]},
        ],
        "tools": [tool | {"name": f"tool_{number}"} for number in range(24)],
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "medium"},
        "metadata": {"user_id": "someone"},
        "unheard_of": {"a": [1.50, None]},
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model": 5}, "model: must be a string."),
        ({"model": ""}, "model: must not be empty."),
        ({"messages": "hello"}, "messages: must be a list of messages."),
        ({"messages": []}, "messages: at least one message is required."),
        ({"stream": "yes"}, "stream: must be true or false."),
        ({"max_tokens": 0}, "max_tokens: must be a whole number of at least 1."),
        ({"max_tokens": "9"}, "max_tokens: must be a whole number of at least 1."),
        ({"fallbacks": [{"model": "a"}] * 4}, "fallbacks: at most 3 are allowed."),
        (
            {"fallbacks": [{"model": "a", "provider": {}}]},
            "fallbacks: must be a list of objects with a model alone.",
        ),
        (
            {"fallbacks": [{"model": "a"}], "models": ["b"]},
            "fallbacks: cannot be combined with models.",
        ),
    ],
)
def test_an_invalid_field_is_named(fields: dict[str, Any], message: str) -> None:
    assert refusal(**fields) == message


@pytest.mark.parametrize("name", ["model", "messages"])
def test_model_and_messages_are_required(name: str) -> None:
    body = {"model": "a", "messages": [{"role": "user", "content": "a"}]}
    del body[name]
    with pytest.raises(Invalid, match=f"^{name}: this field is required"):
        parse_request(json.dumps(body).encode())


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": "\xff"}', DEEP])
def test_a_body_that_is_not_an_object_is_rejected(body: bytes) -> None:
    with pytest.raises(Invalid, match="body"):
        parse_request(body)


def test_a_limit_may_be_missing_or_null() -> None:
    assert request().max_tokens is None
    assert request(max_tokens=None, stream=None, fallbacks=None).max_tokens is None
    assert request(max_tokens=7).max_tokens == 7


def test_the_repr_of_a_request_hides_its_body() -> None:
    assert "hello" not in repr(request())


# Pass-through


def test_only_the_model_of_a_coding_agents_request_changes() -> None:
    body = agent_body()
    sent = json.dumps(body).encode()
    assert len(sent) > 76_000
    got = json.loads(MessagesPassthroughAdapter(parse_request(sent)).render_request(ENDPOINT))
    assert got == body | {"model": "claude-sonnet-4-6"}


def test_the_query_and_headers_are_forwarded() -> None:
    headers = {b"anthropic-beta": b"a,b", b"x-other": b"c"}
    adapters = FORMATS["/messages"].parse(request().body, headers, b"beta=true")
    adapter = adapters.passthrough
    assert (adapter.query, adapter.headers) == ("beta=true", (("anthropic-beta", "a,b"),))


def test_gateway_fields_are_left_out() -> None:
    ours = {"models": ["a"], "provider": {}, "session_id": "s", "route": "fallback"}
    assert set(asked(**ours)) == {"model", "messages", "max_tokens"}
    assert "fallbacks" not in asked(fallbacks=[{"model": "b"}])


def test_rejected_parameters_are_left_out() -> None:
    endpoint = replace(ENDPOINT, profile=Profile(refuses=frozenset({"top_k"})))
    assert "top_k" not in asked(endpoint, top_k=5)


def test_unsupported_parameters_are_listed() -> None:
    adapter = MessagesPassthroughAdapter(request(top_k=5, top_p=1))
    assert set(
        adapter.unsupported_parameters(
            replace(ENDPOINT, profile=Profile(refuses=frozenset({"top_k"})))
        )
    ) == {"top_k"}


def test_a_missing_limit_is_the_models_or_the_default() -> None:
    assert asked()["max_tokens"] == 4096
    assert asked(max_tokens=None)["max_tokens"] == 4096
    assert asked(replace(ENDPOINT, max_completion_tokens=64000))["max_tokens"] == 64000
    assert asked(replace(ENDPOINT, max_completion_tokens=64000), max_tokens=5)["max_tokens"] == 5


def test_reasoning_of_other_providers_is_left_out() -> None:
    foreign = pack(ReasoningBlock(text="Hm.", encrypted="e", format=OPENAI))
    native = {"type": "thinking", "thinking": "Ah.", "signature": "c2ln"}
    text = {"type": "text", "text": "Yes. th1."}
    thoughts = [
        native,
        {"type": "thinking", "thinking": "Hm.", "signature": foreign},
        {"type": "redacted_thinking", "data": foreign},
        text,
    ]
    user = {"role": "user", "content": "hello"}
    got = asked(messages=[user, {"role": "assistant", "content": thoughts}])["messages"]
    assert got == [user, {"role": "assistant", "content": [native, text]}]


@pytest.mark.parametrize(
    "messages",
    [
        ["th1."],
        [{"role": "user", "content": {"th1.": 1}}],
        [{"role": "user", "content": [5, "th1.", {"type": 5}]}],
        [{"th1.": 1}],
    ],
)
def test_an_invalid_conversation_is_left_for_the_provider_to_reject(messages: list[Any]) -> None:
    assert asked(messages=messages)["messages"] == messages
