"""No item, tool or block vanishes: it reaches the model, or the client is told which it is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.acceptance.wire import calling, events, said
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

DATA: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "wire_items.yaml").read_bytes())
HI = {"role": "user", "content": "hi"}
CALLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (call["name"], call["arguments"], call["shown"]) for call in DATA["calls"]
]
"""A call by the name that the provider gets, its arguments, and what the client's item has."""


def called(dialect: str) -> dict[str, Any]:
    """Return a reply that calls every tool."""
    calls = [(f"c{at}", name, arguments) for at, (name, arguments, _) in enumerate(CALLS)]
    return calling(dialect, *calls)


def names(asked: dict[str, Any]) -> list[str]:
    return [(tool.get("function") or tool)["name"] for tool in asked["tools"]]


def sent_calls(dialect: str, asked: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return the calls of a provider's history, with their arguments."""
    if dialect == "chat":
        return [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for message in asked["messages"]
            for call in message.get("tool_calls", ())
        ]
    blocks = [each for message in asked["messages"] for each in message["content"]]
    return [(each["name"], each["input"]) for each in blocks if each["type"] == "tool_use"]


@pytest.mark.parametrize(
    ("dialect", "way"), [("chat", "whole"), ("chat", "streamed"), ("messages", "whole")]
)
def test_a_coding_agents_tools_are_called_by_its_own_names(
    wire: Wire, dialect: str, way: str
) -> None:
    """They come as a tree in `additional_tools`, some with the name of another namespace's."""
    streams = way == "streamed"
    first = {"type": "additional_tools", "role": "developer", "tools": DATA["tree"]}
    whole = called(dialect)
    answer = stream(*streamed(dialect, whole)) if streams else reply(whole)
    wire.providers.say(dialect, answer, reply(said(dialect, "done")))
    fields = {"tools": DATA["beside"], "input": [first, HI]}
    shown = wire.ask(f"t/{dialect}", "/responses", stream=streams, **fields)
    assert shown.status_code == 200, shown.text
    response = events(shown)[-1]["response"] if streams else shown.json()
    assert [item["call_id"] for item in response["output"]] == [
        f"c{at}" for at in range(len(CALLS))
    ]
    for item, (_, _, wanted) in zip(response["output"], CALLS, strict=True):
        assert item | wanted == item
        assert ("namespace" in item) == ("namespace" in wanted)

    outputs = [
        {"type": f"{item['type']}_output", "call_id": item["call_id"], "output": f"of {at}"}
        for at, item in enumerate(response["output"])
    ]
    outputs[6] = {
        "type": "tool_search_output",
        "call_id": "c6",
        "tools": [DATA["tree"][1] | {"name": "late"}],
    }
    again = wire.ask(
        f"t/{dialect}",
        "/responses",
        tools=DATA["beside"],
        input=[first, HI, *response["output"], *outputs],
    )
    assert again.status_code == 200, again.text
    before, after = wire.providers.asked(dialect)[-2:]
    assert sorted(names(before)) == sorted(name for name, _, _ in CALLS)
    assert sorted(names(after)) == sorted([*names(before), "late__read"])
    assert sent_calls(dialect, after) == [(name, arguments) for name, arguments, _ in CALLS]
    history = json.dumps(after)
    assert all(f"of {at}" in history for at in range(len(CALLS)) if at != 6)
    assert "Found: late__read" in history


@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
@pytest.mark.parametrize("case", DATA["reach"])
def test_what_other_formats_have_no_field_for_reaches_the_model(
    wire: Wire, dialect: str, case: dict[str, Any]
) -> None:
    wire.providers.say(dialect, reply(said(dialect, "yes")))
    answer = wire.ask(f"t/{dialect}", case["form"], **case["fields"])
    assert answer.status_code == 200, answer.text
    [asked] = wire.providers.asked(dialect)
    assert case["words"] in json.dumps(asked) or case["form"] == f"/{dialect}"


@pytest.mark.parametrize("case", DATA["refused"])
def test_what_cannot_reach_the_model_is_named_by_its_place(
    wire: Wire, case: dict[str, Any]
) -> None:
    dialect, words = case["dialect"], case["words"]
    wire.providers.say(dialect, reply(said(dialect, "yes")))
    answer = wire.ask(f"t/{dialect}", case["form"], **case["fields"])
    assert (answer.status_code, answer.json()["error"]["message"][: len(words)]) == (400, words)
    assert wire.providers.asked(dialect) == []


@pytest.mark.parametrize(
    ("message", "status"),
    [
        ("Item with id 'rs_1' not found. Items are not persisted when `store` is false.", 400),
        ("No such File object: file-1", 400),
        ("File not found: file_1", 400),
        ("The model `m` does not exist or you do not have access to it.", 502),
        ("File not found", 502),
    ],
)
def test_what_a_request_refers_to_and_a_provider_has_not_is_the_clients(
    wire: Wire, message: str, status: int
) -> None:
    wire.providers.say("responses", reply({"error": {"message": message}}, 404))
    answer = wire.ask("t/responses", "/responses", input="hi")
    assert answer.status_code == status
    assert (message in answer.text) == (status == 400)
