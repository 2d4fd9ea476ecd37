"""The stub of OpenAI's chat API: reasoning, choices, log-probabilities and validation."""

import json
from typing import Any

import pytest

from tests.component.fakes.conftest import Caller

CITY = {"type": "object", "properties": {"city": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": n, "parameters": CITY}} for n in ("a", "b")]
USER = {"role": "user", "content": "one two three"}
PNG = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def called(*ids: str) -> dict[str, Any]:
    function = {"name": "a", "arguments": "{}"}
    calls = [{"id": each, "type": "function", "function": function} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call: str, content: str = "sunny") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call, "content": content}


def deltas(events: list[Any]) -> list[dict[str, Any]]:
    return [choice["delta"] for event in events[:-1] for choice in event["choices"]]


async def test_attachments_are_acknowledged(caller: Caller) -> None:
    content = [PNG, {"type": "text", "text": "look"}]
    answer = await caller.ask("echo", messages=[{"role": "user", "content": content}])
    assert answer.json["choices"][0]["message"]["content"] == "[image/png 3 bytes] look"


async def test_a_stop_sequence_ends_the_reply(caller: Caller) -> None:
    answer = await caller.ask("echo", stop=[" three", " two"])
    assert answer.json["choices"][0]["message"]["content"] == "one"
    assert answer.json["choices"][0]["finish_reason"] == "stop"


async def test_reasoning_is_counted_and_precedes_the_text(caller: Caller) -> None:
    answer = (await caller.ask("reasoning")).json
    assert answer["choices"][0]["message"]["reasoning_content"] == "Let me think about it."
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 5
    assert answer["usage"]["completion_tokens"] == 8
    said = deltas((await caller.stream("reasoning")).events)
    thought = "".join(delta.get("reasoning_content", "") for delta in said)
    assert thought == "Let me think about it."
    assert "content" in said[6]


async def test_signed_reasoning_is_verified(caller: Caller) -> None:
    message = (await caller.ask("reasoning-details")).json["choices"][0]["message"]
    back = {"role": "assistant", "content": "hi", "reasoning_details": message["reasoning_details"]}
    assert (await caller.ask("echo", messages=[USER, back, USER])).status == 200
    back["reasoning_details"][0]["text"] = "Let me not."
    assert (await caller.ask("echo", messages=[USER, back, USER])).status == 400


async def test_streamed_reasoning_is_signed_at_its_end(caller: Caller) -> None:
    said = deltas((await caller.stream("reasoning-details")).events)
    details = [delta["reasoning_details"][0] for delta in said if "reasoning_details" in delta]
    whole = (await caller.ask("reasoning-details")).json["choices"][0]["message"]
    assert details[-1]["signature"] == whole["reasoning_details"][0]["signature"]
    assert "".join(detail.get("text", "") for detail in details) == whole["reasoning"]


async def test_a_refusal_is_not_content(caller: Caller) -> None:
    message = (await caller.ask("refusal")).json["choices"][0]["message"]
    assert (message["content"], message["refusal"]) == (None, "I cannot help with that.")


async def test_choices_are_interleaved(caller: Caller) -> None:
    events = (await caller.stream("echo", "one", n=2)).events[:-1]
    indexes = [choice["index"] for event in events for choice in event["choices"]]
    assert indexes == [0, 1, 0, 1, 0, 1, 1]


async def test_log_probabilities_are_sent_with_each_word(caller: Caller) -> None:
    events = (await caller.stream("echo", "one two", logprobs=True, top_logprobs=2)).events[:-1]
    told = [event["choices"][0]["logprobs"] for event in events]
    tokens = [each["content"][0]["token"] for each in told if each]
    assert tokens == ["one", " two"]
    assert len(told[1]["content"][0]["top_logprobs"]) == 2


async def test_parallel_calls_start_together_and_are_interleaved(caller: Caller) -> None:
    said = deltas((await caller.stream("two-tools", tools=TOOLS)).events)
    calls = [delta["tool_calls"][0] for delta in said if "tool_calls" in delta]
    assert [call["index"] for call in calls[:5]] == [0, 1, 0, 1, 0]
    assert [call.get("id") for call in calls[:3]] == ["call_1", "call_2", None]
    arguments = "".join(call["function"]["arguments"] for call in calls if call["index"] == 1)
    assert json.loads(arguments) == {"city": "city"}


async def test_parallel_results_are_echoed_together(caller: Caller) -> None:
    messages = [USER, called("x", "y"), result("x", "sun"), result("y", "rain")]
    answer = await caller.ask("two-tools", tools=TOOLS, messages=messages)
    assert answer.json["choices"][0]["message"]["content"] == "sun rain"


async def test_json_follows_the_schema(caller: Caller) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "city", "schema": CITY}}
    answer = await caller.ask("json", response_format=form)
    said = answer.json["choices"][0]["message"]["content"]
    assert json.loads(said) == {"city": "city"}


@pytest.mark.parametrize(
    "messages",
    [
        [USER, called("x"), USER],
        [USER, called("x")],
        [USER, called("x", "y"), result("x")],
        [USER, result("x")],
        [USER, called("x"), result("y"), result("x")],
        [USER, called("x"), {"role": "tool", "content": "sunny"}],
        [USER, called("")],
        [{"role": "bot", "content": "x"}],
        [{"role": "user", "content": [{"type": "image", "source": {}}]}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": "https://a.example"}]}],
    ],
)
async def test_invalid_messages_are_rejected(caller: Caller, messages: list[Any]) -> None:
    answer = await caller.ask("echo", messages=messages)
    assert (answer.status, answer.json["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize("fields", [{"n": 0.5}, {"n": 129}, {"top_logprobs": 2}])
async def test_invalid_options_are_rejected(caller: Caller, fields: dict[str, Any]) -> None:
    assert (await caller.ask("echo", **fields)).status == 400


async def test_developer_messages_are_accepted(caller: Caller) -> None:
    messages = [{"role": "developer", "content": "be kind"}, USER]
    assert (await caller.ask("echo", messages=messages)).json["usage"]["prompt_tokens"] == 5
