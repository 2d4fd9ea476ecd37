"""Tool calls of every server's streams, passed through and translated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.format_clients import Chat, Messages, Responses
from tests.support.seams.formats import IDENTITY, adapter, charge

HERE = Path(__file__).parent
CASES: dict[str, Any] = yaml.load((HERE / "calls.yaml").read_bytes(), yaml.CSafeLoader)
ORDERS: dict[str, Any] = yaml.load((HERE / "orders.yaml").read_bytes(), yaml.CSafeLoader)
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


def ordered(dialect: str, name: str) -> list[dict[str, Any]]:
    """Return the events of a row of `orders.yaml`, with the first and the last of its dialect."""
    rows = [(kind, fields) for each in ORDERS[dialect][name] for kind, fields in each.items()]
    if dialect == "messages":
        said = [{"type": f"content_block_{kind}", **fields} for kind, fields in rows]
        message = {"id": "m", "content": [], "usage": {"input_tokens": 1, "output_tokens": 1}}
        end = {"delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9}}
        ends = [{"type": "message_delta", **end}, {"type": "message_stop"}]
        return [{"type": "message_start", "message": message}, *said, *ends]
    *rows, (_, output) = rows
    said = [{"type": f"response.{kind}", **fields} for kind, fields in rows]
    response = {"id": "r", "status": "completed", "output": output}
    created = {"type": "response.created", "response": {"id": "r", "status": "in_progress"}}
    return [created, *said, {"type": "response.completed", "response": response}]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("dialect", "name"), [(dialect, name) for dialect in ORDERS for name in ORDERS[dialect]]
)
def test_events_are_put_in_order(dialect: str, name: str, client: str) -> None:
    ask = {"model": "acme/large", "stream": True, **ASKS[client]}
    stream = adapter(client, dialect, json.dumps(ask).encode()).open_stream(IDENTITY)
    events = [json.dumps(each).encode() for each in ordered(dialect, name)]
    shown = b"".join(map(stream.feed, events)) + stream.end(charge(stream))
    told = CLIENTS[client].streamed(shown)
    assert (told.text, [[called, given["x"]] for called, given in told.calls]) == ("so it", TWO)
    assert stream.finish_reason == "tool_calls"
