"""Simulated models call tools with sample arguments, and echo tool results."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.inference.providers.simulations import (
    CITY,
    added_up,
    asked,
    called,
    deltas,
    message,
    named,
    said,
    tool,
    whole,
)

WEATHER, TIME, DAY = tool("weather", CITY), tool("time"), tool("day")
SAMPLE = {"city": "text", "days": 1}


def answered(*contents: object, after: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    """Return a conversation that ends with tool results."""
    numbered = list(enumerate(contents))
    calls = [{"id": f"c{number}", **named("weather")} for number, _ in numbered]
    results = [
        {"role": "tool", "tool_call_id": f"c{number}", "content": content}
        for number, content in numbered
    ]
    before = [{"role": "user", "content": "Weather?"}, {"role": "assistant", "tool_calls": calls}]
    return {"model": "m", "messages": [*before, *results, *after], "tools": [WEATHER, TIME]}


async def test_echo_calls_no_tool_unless_it_must() -> None:
    body = asked("hello", tools=[WEATHER])
    assert await called(body) == []
    assert await said(body) == "hello"


@pytest.mark.parametrize(
    ("choice", "calls"),
    [
        ("required", [["weather", SAMPLE]]),
        (named("time"), [["time", {}]]),
        (named("weather"), [["weather", SAMPLE]]),
        ("auto", []),
        ("none", []),
        (None, []),
    ],
)
async def test_echo_calls_the_tool_that_is_forced(choice: object, calls: list[Any]) -> None:
    assert await called(asked("hi", tools=[WEATHER, TIME], tool_choice=choice)) == calls


@pytest.mark.parametrize(
    ("fields", "calls"),
    [
        ({}, [["weather", SAMPLE], ["time", {}]]),
        ({"parallel_tool_calls": True}, [["weather", SAMPLE], ["time", {}]]),
        ({"parallel_tool_calls": False}, [["weather", SAMPLE]]),
        ({"tool_choice": "required"}, [["weather", SAMPLE], ["time", {}]]),
        ({"tool_choice": named("day")}, [["day", {}]]),
        ({"tool_choice": "none"}, []),
        ({"tools": [TIME]}, [["time", {}]]),
    ],
)
async def test_the_tools_model_calls_whenever_it_may(
    fields: dict[str, Any], calls: list[Any]
) -> None:
    assert await called(asked("hi", **{"tools": [WEATHER, TIME, DAY]} | fields), "tools") == calls


async def test_without_tools_the_tools_model_says_so() -> None:
    assert "no function" in await said(asked("hello"), "tools")


@pytest.mark.parametrize("model", ["echo", "tools"])
@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_tool_results_are_echoed_whatever_tool_is_forced(model: str, choice: str) -> None:
    body = answered("cold", [{"type": "text", "text": "noon"}]) | {"tool_choice": choice}
    assert await said(body, model) == "cold\nnoon"


@pytest.mark.parametrize("model", ["echo", "tools"])
async def test_user_text_after_tool_results_is_echoed_after_them(model: str) -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:"}}]
    body = answered("cold", after=({"role": "user", "content": picture},))
    assert await said(body, model) == "cold\n[image]"


async def test_a_new_user_message_starts_anew() -> None:
    after = ({"role": "assistant", "content": "cold"}, {"role": "user", "content": "And now?"})
    assert await said(answered("cold", after=after)) == "And now?"
    assert len(await called(answered("cold", after=after), "tools")) == 2


async def test_a_call_is_a_message_without_text_that_ends_with_tool_calls() -> None:
    reply = await whole(asked("hi", tools=[TIME]), "tools")
    [choice] = reply["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    assert choice["message"]["tool_calls"][0]["type"] == "function"


async def test_calls_have_ids_of_their_own_and_the_same_ones_for_the_same_request() -> None:
    bodies = [asked("a", tools=[WEATHER, TIME], n=2), asked("b", tools=[WEATHER, TIME], n=2)]
    ids = [
        call["id"]
        for body in bodies
        for choice in (await whole(body, "tools"))["choices"]
        for call in choice["message"]["tool_calls"]
    ]
    assert len(set(ids)) == 8
    assert await message(bodies[0], "tools") == await message(bodies[0], "tools")


@pytest.mark.parametrize("schema", [None, {}, CITY, {"type": "object", "required": []}])
async def test_arguments_are_streamed_in_two_pieces_at_least(schema: object) -> None:
    body = asked("hi", tools=[tool("one", schema), tool("two", schema)])
    calls = [call for delta in await deltas(body, "tools") for call in delta.get("tool_calls", ())]
    for number in (0, 1):
        begun, *pieces = [call["function"] for call in calls if call["index"] == number]
        assert begun["arguments"] == ""
        assert len([each for each in pieces if each["arguments"]]) >= 2
    assert await added_up(body, "tools") == await whole(body, "tools")


@pytest.mark.parametrize(
    ("limit", "arguments"),
    [(1, ["{"]), (2, ["{}"]), (3, ["{}", "{"]), (4, ["{}", "{}"])],
)
async def test_a_limit_cuts_calls_too(limit: int, arguments: list[str]) -> None:
    body = asked("hi", tools=[TIME, DAY], max_tokens=limit)
    reply = await whole(body, "tools")
    [choice] = reply["choices"]
    said_ = [each["function"]["arguments"] for each in choice["message"]["tool_calls"]]
    assert said_ == arguments
    assert choice["finish_reason"] == ("tool_calls" if limit == 4 else "length")
    assert reply["usage"]["completion_tokens"] == limit
    assert await added_up(body, "tools") == reply
