"""Tool calls of every server's streams, passed through and translated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.format_clients import Chat, Messages, Responses
from tests.support.seams.formats import IDENTITY, adapter, charge

CASES: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "calls.yaml").read_text())
CLIENTS: dict[str, Any] = {"chat": Chat(), "messages": Messages(), "responses": Responses()}
CALLS = {"function", "function_call", "tool_use"}
TWO = [["alpha", "1"], ["beta", "2"]]
ASKS: dict[str, dict[str, Any]] = {
    "chat": {"messages": [{"role": "user", "content": "a"}]},
    "messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 9},
    "responses": {"input": "a"},
}


def tool(client: str, name: str) -> dict[str, Any]:
    match client:
        case "chat":
            return {"type": "function", "function": {"name": name, "parameters": {}}}
        case "messages":
            return {"name": name, "input_schema": {"type": "object"}}
    return {"type": "function", "name": name, "parameters": {}}


def item(short: dict[str, Any]) -> dict[str, Any]:
    """Return an item of `tool_calls` without what its short form leaves out."""
    names = {"n": "name", "a": "arguments"}
    function = {names[name]: short[name] for name in names if name in short}
    own = {long: short[name] for name, long in (("i", "index"), ("id", "id")) if name in short}
    kind = {"type": "function"} if short.get("id") and "n" in short else {}
    return own | kind | ({"function": function} if function else {})


def events(deltas: list[Any], end: str | None = "tool_calls") -> list[bytes]:
    choice = {"index": 0, "logprobs": None, "finish_reason": None}
    said = [
        each if isinstance(each, dict) else {"delta": {"tool_calls": list(map(item, each))}}
        for each in deltas
    ]
    choices = [choice | each for each in [*said, {"delta": {}, "finish_reason": end}]]
    return [json.dumps({"id": "c", "choices": [each]}).encode() for each in choices]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("name", CASES)
def test_the_calls_are_told_apart(name: str, client: str) -> None:
    *deltas, last = CASES[name]
    ends = last if "meant" in last else {"meant": TWO}
    meant, end = ends["meant"], ends.get("end", "tool_calls")
    deltas = deltas if "meant" in last else [*deltas, last]
    ask = {
        "model": "acme/large",
        "stream": True,
        **ASKS[client],
        "tools": [tool(client, each) for each in ("alpha", "beta")],
    }
    stream = adapter(client, "chat", json.dumps(ask).encode()).open_stream(IDENTITY)
    shown = b"".join(map(stream.feed, [*events(deltas, end), b"[DONE]"]))
    shown += stream.end(charge(stream))
    told = CLIENTS[client].streamed(shown)
    assert [[called, arguments.get("x")] for called, arguments in told.calls] == meant
    items = told.raw["tool_calls"] if client == "chat" else told.raw
    ids = {each.get("call_id", each["id"]) for each in items if each["type"] in CALLS}
    assert len(ids) == len(meant)
    assert stream.finish_reason == "tool_calls"


def test_a_stream_that_is_right_is_passed_on_unchanged() -> None:
    ask = {"model": "acme/large", "stream": True, **ASKS["chat"], "tools": [tool("chat", "alpha")]}
    stream = adapter("chat", "chat", json.dumps(ask).encode()).open_stream(IDENTITY)
    calls = CASES["as OpenAI writes them"][:3]
    for delta, data in zip(calls, events(calls), strict=False):
        shown = json.loads(stream.feed(data).removeprefix(b"data: "))
        assert shown["choices"][0]["delta"]["tool_calls"] == list(map(item, delta))
