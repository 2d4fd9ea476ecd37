"""What a caller may say to an intern, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from tollhouse.interns.chat.errors import ChatFailed
from tollhouse.interns.chat.request import ChatAnswer, ChatBody, ChatPrompt

USER = {"role": "user", "content": "Hello"}
TOOL = {"role": "tool", "tool_call_id": "call-1", "content": "allow_once"}


def read(*messages: Any, **more: Any) -> ChatPrompt | ChatAnswer:
    return ChatBody.model_validate({"stream": True, "messages": list(messages), **more}).wanted()


def refused(*messages: Any, **more: Any) -> str:
    with pytest.raises(ChatFailed) as caught:
        read(*messages, **more)
    error = caught.value
    assert (error.kind, error.metadata) == (
        "invalid",
        {"reason": "bad_request", "retryable": False},
    )
    return error.message


def test_a_prompt_names_its_session_and_its_approval_mode() -> None:
    found = read(USER, session_id="s", approval_mode="manual")
    assert found == ChatPrompt("s", "Hello", "manual")


def test_a_tools_message_is_an_answer() -> None:
    assert read(TOOL, session_id="s") == ChatAnswer("s", "call-1", "allow_once")


def test_the_approval_mode_of_an_answer_does_not_matter() -> None:
    for mode in ("manual", "auto", None, 7):
        assert read(TOOL, session_id="s", approval_mode=mode) == read(TOOL, session_id="s")


@pytest.mark.parametrize(
    "earlier",
    [
        {"role": "system", "content": None},
        {"role": "developer", "content": "x"},
        {"role": "assistant", "tool_calls": [{"id": "x", "function": {}}]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "nobody"},
        "nonsense",
    ],
    ids=["system", "developer", "assistant", "picture", "unknown role", "no object"],
)
def test_only_the_last_message_is_read(earlier: Any) -> None:
    assert read(earlier, USER) == read(USER)


def test_parts_of_a_text_are_one() -> None:
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    assert read({"role": "user", "content": parts}) == read(USER)


def test_the_longest_prompt_passes_and_a_longer_one_does_not() -> None:
    assert read({"role": "user", "content": "x" * 32_000})
    assert "32000" in refused({"role": "user", "content": "x" * 32_001})


@pytest.mark.parametrize(
    "message",
    [
        "x",
        None,
        {},
        {"role": 1},
        {"role": "nobody", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": ""},
        {"role": "user", "content": []},
        {"role": "user", "content": 1},
        {"role": "user", "content": {}},
        {"role": "user", "content": ["x"]},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": [{"type": "text", "text": 1}]},
        {"role": "user", "content": "half a pair: \ud800"},
    ],
)
def test_a_last_message_without_a_text_is_refused(message: Any) -> None:
    assert refused(message).startswith("messages.0")


@pytest.mark.parametrize(
    "message",
    [
        {**TOOL, "tool_call_id": ""},
        {**TOOL, "tool_call_id": "x" * 129},
        {**TOOL, "tool_call_id": 1},
        {**TOOL, "tool_call_id": "a\nb"},
        {**TOOL, "tool_call_id": "\ud800"},
        {"role": "tool", "content": "allow_once"},
        {**TOOL, "content": None},
        {**TOOL, "content": ""},
    ],
)
def test_an_answer_that_is_none_is_refused(message: Any) -> None:
    refused(message, session_id="s")


def test_an_answer_needs_its_session() -> None:
    assert refused(TOOL).startswith("session_id:")


@pytest.mark.parametrize(
    "fields",
    [
        {"stream": False},
        {"stream": None},
        {"stream": 1},
        {"stream": "true"},
        {"messages": []},
        {"messages": None},
        {"messages": {}},
        {"session_id": ""},
        {"session_id": "x" * 257},
        {"session_id": None},
        {"session_id": 1},
        {"session_id": "a\0b"},
        {"session_id": "\ud800"},
        {"model": ""},
        {"model": "x" * 257},
        {"model": 1},
    ],
    ids=str,
)
def test_a_body_that_breaks_a_rule_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ChatBody.model_validate({"stream": True, "messages": [USER], **fields})


@pytest.mark.parametrize("mode", ["auto", "Manual", None, 7])
def test_a_prompt_has_one_of_two_approval_modes(mode: Any) -> None:
    assert refused(USER, approval_mode=mode) == "approval_mode: must be manual or self-drive."


@pytest.mark.parametrize("session", ["x", "x" * 256, "a/b?c#d", "..", "übung 🦉"])
def test_a_session_is_any_text_without_control_characters(session: str) -> None:
    assert read(USER, session_id=session).session == session
