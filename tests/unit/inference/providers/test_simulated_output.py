"""Simulated responses have the output format that the request specifies."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.inference.providers.simulations import (
    CITY,
    added_up,
    asked,
    deltas,
    message,
    named,
    opened,
    said,
    tool,
    whole,
)
from tollhouse.kernel.errors import ProviderRefused

JSON_OBJECT = {"type": "json_object"}
JSON_SCHEMA = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}


# JSON


async def test_a_json_schema_gets_a_matching_object() -> None:
    content = await said(asked("hello", response_format=JSON_SCHEMA))
    assert json.loads(content) == {"city": "text", "days": 1}


async def test_a_missing_json_schema_gets_an_empty_object() -> None:
    for given_ in ({"type": "json_schema"}, {"type": "json_schema", "json_schema": {"name": "a"}}):
        assert await said(asked("hello", response_format=given_)) == "{}"


async def test_a_json_object_holds_the_text() -> None:
    content = await said(asked('say "hi"', response_format=JSON_OBJECT))
    assert json.loads(content) == {"echo": 'say "hi"'}


@pytest.mark.parametrize("form", [{"type": "text"}, None, {"type": "grammar"}])
async def test_an_unknown_format_is_text(form: object) -> None:
    assert await said(asked("hello", response_format=form)) == "hello"


# Several choices


async def test_the_requested_choices_are_sent_and_counted() -> None:
    reply = await whole(asked("a b", n=3))
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert {choice["message"]["content"] for choice in reply["choices"]} == {"a b"}
    assert reply["usage"] == {"prompt_tokens": 2, "completion_tokens": 6, "total_tokens": 8}


@pytest.mark.parametrize("fields", [{"n": 128}, {"logprobs": True, "top_logprobs": 20}])
async def test_a_short_request_cannot_request_an_unbounded_response(fields: dict[str, Any]) -> None:
    long = "word " * 20_000
    assert await said(asked(long)) == long
    with pytest.raises(ProviderRefused, match="too long"):
        await opened(asked(long, **fields))


# Stop sequences


@pytest.mark.parametrize(
    ("stop", "content"),
    [
        (" three", "one two"),
        (["three", "two"], "one "),
        (["one"], ""),
        (["nine"], "one two three"),
        ([], "one two three"),
        (["", "three"], "one two "),
        (None, "one two three"),
    ],
)
async def test_a_text_ends_before_a_stop_sequence(stop: object, content: str) -> None:
    reply = await whole(asked("one two three", stop=stop))
    assert reply["choices"][0]["message"]["content"] == content
    assert reply["choices"][0]["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] == len(content.split())


async def test_a_token_limit_before_a_stop_sequence_wins() -> None:
    reply = await whole(asked("one two three", stop="three", max_tokens=1))
    assert reply["choices"][0]["message"]["content"] == "one "
    assert reply["choices"][0]["finish_reason"] == "length"


# Log-probabilities


async def test_every_word_has_probability_one() -> None:
    reply = await whole(asked("one två", logprobs=True))
    logprobs = reply["choices"][0]["logprobs"]
    assert logprobs["refusal"] is None
    assert logprobs["content"] == [
        {"token": word, "logprob": 0.0, "bytes": list(word.encode()), "top_logprobs": []}
        for word in ("one ", "två")
    ]


@pytest.mark.parametrize("top", [0, 1, 3])
async def test_the_requested_number_of_alternatives_is_listed(top: int) -> None:
    reply = await whole(asked("one", logprobs=True, top_logprobs=top))
    [token] = reply["choices"][0]["logprobs"]["content"]
    assert len({each["token"] for each in token["top_logprobs"]}) == top
    assert [each["logprob"] for each in token["top_logprobs"]] == [0.0, -9999.0, -9999.0][:top]


@pytest.mark.parametrize("fields", [{}, {"logprobs": False}, {"top_logprobs": 3}])
async def test_log_probabilities_are_sent_only_on_request(fields: dict[str, Any]) -> None:
    assert (await whole(asked("one", **fields)))["choices"][0]["logprobs"] is None


# Refusals


async def test_a_refusal_replaces_the_text() -> None:
    reply = await whole(asked("hello"), "refusal")
    [choice] = reply["choices"]
    assert choice["message"]["content"] is None
    assert choice["message"]["refusal"].startswith("Simulated: ")
    assert choice["finish_reason"] == "stop"
    assert reply["usage"]["completion_tokens"] == len(choice["message"]["refusal"].split())


async def test_a_refusal_is_streamed_in_pieces() -> None:
    told = await deltas(asked("hello"), "refusal")
    assert len([delta for delta in told if delta.get("refusal")]) > 2
    assert not any(delta.get("content") for delta in told)


async def test_a_refusal_has_no_other_output() -> None:
    body = asked("hi", tools=[tool("time")], tool_choice=named("time"), response_format=JSON_OBJECT)
    assert set(await message(body, "refusal")) == {"role", "content", "refusal"}


# Both ways


BODIES = st.builds(
    asked,
    st.text(alphabet=st.sampled_from("ab \n漢"), max_size=12),
    max_tokens=st.none() | st.integers(1, 20),
    n=st.integers(1, 2),
    stop=st.sampled_from([None, "b", ["a", "漢"]]),
    tools=st.sampled_from([None, [tool("a", CITY)], [tool("a"), tool("b", CITY)]]),
    tool_choice=st.sampled_from(["auto", "none"]),
    logprobs=st.booleans(),
    response_format=st.sampled_from([None, JSON_OBJECT, JSON_SCHEMA]),
    reasoning=st.sampled_from([None, {"effort": "none"}, {"exclude": True}]),
)
MODELS = ["echo", "tools", "reasoning", "refusal"]


@given(body=BODIES, model=st.sampled_from(MODELS))
@settings(max_examples=80, deadline=None)
async def test_a_stream_joins_to_the_complete_response(body: dict[str, Any], model: str) -> None:
    assert await added_up(body, model) == await whole(body, model)
