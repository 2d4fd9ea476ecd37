"""The reasoning model reasons first, and verifies its reasoning when it is sent back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.inference.providers.simulations import (
    added_up,
    asked,
    called,
    deltas,
    message,
    named,
    opened,
    said,
    tool,
    whole,
)
from tollhouse.kernel.errors import ProviderRefused, status_of


def followed(details: object, model: str = "m") -> dict[str, Any]:
    """Return a conversation in which reasoning is sent back."""
    thought = {"role": "assistant", "content": "hi", "reasoning_details": details}
    turns = [{"role": "user", "content": "hi"}, thought, {"role": "user", "content": "and now?"}]
    return {"model": model, "messages": turns}


async def details_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    details: list[dict[str, Any]] = (await message(body, "reasoning"))["reasoning_details"]
    return details


async def test_the_reasoning_model_reasons_before_its_echo() -> None:
    reply = await message(asked("hello there"), "reasoning")
    assert reply["content"] == "hello there"
    assert reply["reasoning"].startswith("Simulated reasoning: 2 words ")
    [detail] = reply["reasoning_details"]
    assert detail["type"] == "reasoning.text"
    assert detail["text"] == reply["reasoning"]
    assert detail["format"] == "simulated-v1"


async def test_reasoning_tokens_are_part_of_the_output() -> None:
    reply = await whole(asked("hello there"), "reasoning")
    thoughts = len(reply["choices"][0]["message"]["reasoning"].split())
    assert reply["usage"]["completion_tokens_details"] == {"reasoning_tokens": thoughts}
    assert reply["usage"]["completion_tokens"] == thoughts + 2


async def test_reasoning_is_streamed_before_the_answer_and_signed_at_its_end() -> None:
    told = await deltas(asked("hello"), "reasoning")
    thoughts = [index for index, delta in enumerate(told) if "reasoning" in delta]
    text = [index for index, delta in enumerate(told) if delta.get("content")]
    signed = [
        index
        for index, delta in enumerate(told)
        if any(each["signature"] for each in delta.get("reasoning_details", ()))
    ]
    assert len(thoughts) > 2
    assert signed == [thoughts[-1] + 1]
    assert max(signed) < min(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"enabled": False}},
        {"reasoning": {"enabled": False, "effort": "high"}},
        {"reasoning_effort": "none"},
    ],
)
async def test_reasoning_can_be_disabled(fields: dict[str, Any]) -> None:
    reply = await whole(asked("hello", **fields), "reasoning")
    assert "reasoning" not in reply["choices"][0]["message"]
    assert reply["usage"]["completion_tokens"] == 1
    assert "completion_tokens_details" not in reply["usage"]


@pytest.mark.parametrize(
    "fields",
    [{"reasoning": {"effort": "low"}}, {"reasoning": {"enabled": True}}, {"reasoning": None}],
)
async def test_reasoning_is_enabled_by_default(fields: dict[str, Any]) -> None:
    assert "reasoning" in await message(asked("hello", **fields), "reasoning")


async def test_excluded_reasoning_is_still_counted() -> None:
    body = asked("hello", reasoning={"exclude": True})
    reply = await whole(body, "reasoning")
    assert "reasoning" not in reply["choices"][0]["message"]
    assert reply["usage"]["completion_tokens_details"]["reasoning_tokens"] > 2
    assert await added_up(body, "reasoning") == reply


async def test_reasoning_precedes_a_forced_call() -> None:
    body = asked("hi", tools=[tool("time")], tool_choice=named("time"))
    assert await called(body, "reasoning") == [["time", {}]]
    assert "reasoning" in await message(body, "reasoning")


async def test_no_other_model_reasons() -> None:
    assert "reasoning" not in await message(asked("hi", reasoning_effort="high"))


async def test_a_token_limit_may_leave_only_signed_reasoning() -> None:
    body = asked("hello", max_tokens=3)
    reply = await whole(body, "reasoning")
    [choice] = reply["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["content"] == ""
    assert len(choice["message"]["reasoning"].split()) == 3
    assert await said(followed(choice["message"]["reasoning_details"]), "reasoning") == "and now?"


async def test_unchanged_reasoning_is_accepted() -> None:
    details = await details_of(asked("hi"))
    assert await said(followed(details), "reasoning") == "and now?"


async def test_reasoning_in_streamed_pieces_is_accepted() -> None:
    told = await deltas(asked("hi"), "reasoning")
    pieces = [each for delta in told for each in delta.get("reasoning_details", ())]
    assert len(pieces) > 2
    assert await said(followed(pieces), "reasoning") == "and now?"


async def test_the_reasoning_format_is_streamed_once() -> None:
    told = await deltas(asked("hi"), "reasoning")
    formats = [each["format"] for delta in told for each in delta.get("reasoning_details", ())]
    assert [each for each in formats if each is not None] == ["simulated-v1"]


async def test_changed_reasoning_pieces_are_rejected() -> None:
    told = await deltas(asked("hi"), "reasoning")
    pieces = [each for delta in told for each in delta.get("reasoning_details", ())]
    with pytest.raises(ProviderRefused):
        await opened(followed(pieces[1:]), "reasoning")


async def test_several_signed_reasoning_details_are_accepted_in_one_message() -> None:
    details = [*await details_of(asked("hi")), *await details_of(asked("one two"))]
    assert await said(followed(details), "reasoning") == "and now?"


@pytest.mark.parametrize(
    "changed",
    [
        {"text": "I thought of something else."},
        {"text": None},
        {"signature": "something else"},
        {"signature": ""},
        {"signature": None},
    ],
)
async def test_changed_reasoning_is_rejected(changed: dict[str, Any]) -> None:
    [detail] = await details_of(asked("hi"))
    with pytest.raises(ProviderRefused) as caught:
        await opened(followed([detail | changed]), "reasoning")
    assert status_of(caught.value) == 400
    assert caught.value.message.startswith("messages[1].reasoning_details: ")


async def test_reasoning_of_another_provider_is_ignored() -> None:
    foreign = {"type": "reasoning.text", "text": "x", "signature": "y"}
    for format_ in ("anthropic-claude-v1", None):
        body = followed([foreign | {"format": format_}])
        assert await said(body, "reasoning") == "and now?"


async def test_a_model_without_reasoning_accepts_any_reasoning() -> None:
    [detail] = await details_of(asked("hi"))
    assert await said(followed([detail | {"text": "changed"}])) == "and now?"
