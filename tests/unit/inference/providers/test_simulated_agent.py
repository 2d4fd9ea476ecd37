"""The simulated agent runs the script in a prompt, without state between requests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.inference.providers.simulations import (
    added_up,
    asked,
    called,
    message,
    named,
    said,
    tool,
    whole,
)

AGENT = "agent"
TOOLS = [
    tool(name)
    for name in ("shell", "write_file", "read_file", "http_request", "ask_user", "look_up")
]
PROGRAM = "write: hello.py\n  print(6 * 7)\nrun: python3 hello.py\n"
WRITE = ["write_file", {"path": "hello.py", "content": "print(6 * 7)\n"}]
RUN = ["shell", {"command": "python3 hello.py"}]


def turn(prompt: str, *results: str, before: tuple[Any, ...] = ()) -> dict[str, Any]:
    """Return a request after some of a script's calls."""
    messages: list[Any] = [*before, {"role": "user", "content": prompt}]
    for number, result in enumerate(results):
        calls = [{"id": f"c{number}", **named("shell")}]
        messages.append({"role": "assistant", "content": None, "tool_calls": calls})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return asked("", messages=messages, tools=TOOLS)


async def calls(body: dict[str, Any]) -> list[Any]:
    return await called(body, AGENT)


async def test_each_result_of_a_tool_leads_to_the_next_step() -> None:
    assert await calls(turn(PROGRAM)) == [WRITE]
    assert await calls(turn(PROGRAM, "written")) == [RUN]
    assert await calls(turn(PROGRAM, "written", "42")) == []


async def test_the_report_lists_each_tool_result() -> None:
    report = await said(turn(PROGRAM, "written", "42\n"), AGENT)
    assert report == (
        "I am a simulated agent: no model was asked, I followed your script.\n"
        "\n1. write: hello.py\nwritten\n"
        "\n2. run: python3 hello.py\n42\n"
    )


async def test_a_long_result_is_cut_in_the_report() -> None:
    report = await said(turn("run: yes", "y" * 5_000), AGENT)
    assert "y" * 2_000 + " [...]" in report
    assert "y" * 2_001 not in report


@pytest.mark.parametrize(
    ("step", "call"),
    [
        ("run: ls -l | wc", ["shell", {"command": "ls -l | wc"}]),
        ("RUN: ls", ["shell", {"command": "ls"}]),
        ("run:\n  cd src\n  ls", ["shell", {"command": "cd src\nls\n"}]),
        ("run with network: id", ["shell", {"command": "id", "network": True}]),
        ("write: a b.txt", ["write_file", {"path": "a b.txt", "content": ""}]),
        (
            "write: a\n\n  if x:\n\n    y\n\n",
            ["write_file", {"path": "a", "content": "\nif x:\n\n  y\n"}],
        ),
        ("write: a\n\tx\nnot of it", ["write_file", {"path": "a", "content": "x\n"}]),
        ("read: a.txt", ["read_file", {"path": "a.txt"}]),
        (
            "fetch: https://a.example/b",
            ["http_request", {"method": "GET", "url": "https://a.example/b", "headers": {}}],
        ),
        (
            "fetch: POST https://a.example/b\n  Authorization: Bearer {{secret:token}}\n  X-A: b:c",
            [
                "http_request",
                {
                    "method": "POST",
                    "url": "https://a.example/b",
                    "headers": {"Authorization": "Bearer {{secret:token}}", "X-A": "b:c"},
                },
            ],
        ),
        (
            "ask: Which one?",
            [
                "ask_user",
                {
                    "message": "Which one?",
                    "fields": [{"name": "answer", "type": "string", "required": True}],
                },
            ],
        ),
        (
            "ask: Which one? (red | dark blue)",
            [
                "ask_user",
                {
                    "message": "Which one?",
                    "fields": [
                        {
                            "name": "answer",
                            "type": "string",
                            "required": True,
                            "options": ["red", "dark blue"],
                        }
                    ],
                },
            ],
        ),
        ('call: look_up {"a": [1, 2]}', ["look_up", {"a": [1, 2]}]),
        ("call: look_up", ["look_up", {}]),
    ],
)
async def test_each_step_calls_its_tool(step: str, call: list[Any]) -> None:
    assert await calls(turn(f"Please:\n{step}")) == [call]


async def test_invalid_json_arguments_are_sent_unchanged() -> None:
    sent = (await message(turn("call: look_up {oops"), AGENT))["tool_calls"][0]
    assert sent["function"]["arguments"] == "{oops"


async def test_text_and_reasoning_precede_the_next_call() -> None:
    body = turn("think: Hm.\nsay: I look.\nread: a.txt")
    told = await message(body, AGENT)
    assert told["content"] == "I look.\n"
    assert told["reasoning"] == "Hm.\n"
    assert await calls(body) == [["read_file", {"path": "a.txt"}]]
    assert (await whole(body, AGENT))["choices"][0]["finish_reason"] == "tool_calls"


async def test_text_after_the_last_call_replaces_the_report() -> None:
    assert await said(turn("run: ls\nsay: Done.", "a"), AGENT) == "Done.\n"


async def test_a_repeating_script_never_ends() -> None:
    script = "run: a\nread: b\nagain:\nrun: never"
    for done in range(9):
        assert await calls(turn(script, *["x"] * done)) == [
            [["shell", {"command": "a"}], ["read_file", {"path": "b"}]][done % 2]
        ]


async def test_a_prompt_without_a_step_gets_help() -> None:
    answer = await said(turn("Please run the tests: they are in /tests."), AGENT)
    assert "simulated" in answer
    assert PROGRAM.strip() in answer


async def test_a_missing_tool_is_named() -> None:
    body = turn("run: ls") | {"tools": []}
    assert "no tool 'shell'" in await said(body, AGENT)
    assert "no tool 'shell'" in await said(turn("run: ls") | {"tool_choice": "none"}, AGENT)


async def test_an_earlier_script_is_not_run_again() -> None:
    before = (
        {"role": "user", "content": "run: a"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c", **named("shell")}]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "content": "Done."},
    )
    assert await calls(turn("run: b", before=before)) == [["shell", {"command": "b"}]]
    assert "simulated" in await said(turn("Thanks!", before=before), AGENT)


async def test_a_message_within_a_turn_may_replace_the_script() -> None:
    begun = turn("run: a\nrun: b", "x")
    hurry = {"role": "user", "content": "Hurry up!"}
    other = {"role": "user", "content": "run: c"}
    after = [*begun["messages"], hurry]
    assert await calls(begun | {"messages": after}) == [["shell", {"command": "b"}]]
    after = [*begun["messages"], other]
    assert await calls(begun | {"messages": after}) == [["shell", {"command": "c"}]]


async def test_a_stream_has_the_content_of_the_complete_response() -> None:
    body = turn("think: Hm.\nsay: I look.\nrun: a")
    assert await added_up(body, AGENT) == await whole(body, AGENT)


async def test_streamed_arguments_join_to_the_complete_ones() -> None:
    code = 'print({"a": [1, 2]}, "ü")\n'
    sent = (await message(turn(f"write: a.py\n  {code}"), AGENT))["tool_calls"][0]
    assert json.loads(sent["function"]["arguments"]) == {"path": "a.py", "content": code}
