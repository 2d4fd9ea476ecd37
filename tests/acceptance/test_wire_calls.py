"""Tool calls as chat servers stream them, for clients of each format; `calls.yaml` has more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.wire import DIALECTS, FORMATS, calling, calls_of, said, told
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

TWO = (("alpha", {"x": "1"}), ("beta", {"x": "2"}))
A, B = {"id": "a1", "type": "function"}, {"id": "b1", "type": "function"}
EMPTY = {"id": "", "type": "function"}


def function(name: str | None, arguments: str) -> dict[str, Any]:
    return {"function": {"arguments": arguments} | ({} if name is None else {"name": name})}


STREAMS = {
    "fragments without an index": [
        A | function("alpha", '{"x":'),
        function(None, '"1"}'),
        B | function("beta", '{"x":'),
        function(None, '"2"}'),
    ],
    "ids repeated": [
        A | function("alpha", '{"x":'),
        A | function(None, '"1"}'),
        B | function("beta", '{"x":'),
        B | function(None, '"2"}'),
    ],
    "empty ids and names later": [
        {"index": 0} | A | function("alpha", '{"x":'),
        {"index": 0} | EMPTY | function("", '"1"}'),
        {"index": 1} | B | function("beta", '{"x":'),
        {"index": 1} | EMPTY | function("", '"2"}'),
    ],
    "all at index 0": [
        {"index": 0} | A | function("alpha", '{"x":"1"}'),
        {"index": 0} | B | function("beta", '{"x":"2"}'),
    ],
    "index -1": [
        {"index": -1} | A | function("alpha", '{"x":"1"}'),
        {"index": -1} | B | function("beta", '{"x":"2"}'),
    ],
    "names in pieces": [
        {"index": 0} | A | function("al", ""),
        {"index": 0} | function("pha", '{"x":"1"}'),
        {"index": 1} | B | function("be", ""),
        {"index": 1} | function("ta", '{"x":"2"}'),
    ],
    "a new id with every piece": [
        {"index": 0} | A | function("alpha", '{"x":'),
        {"index": 0, "id": "a2"} | function(None, '"1"}'),
        {"index": 1} | B | function("beta", '{"x":'),
        {"index": 1, "id": "b2"} | function("", '"2"}'),
    ],
    "numbers as ids, texts as indexes": [
        {"index": "0", "id": 1} | function("alpha", '{"x":"1"}'),
        {"index": 1.0, "id": 2} | function("beta", '{"x":"2"}'),
    ],
    "the name last": [
        {"index": 0} | A | function(None, '{"x":"1"}'),
        {"index": 0, "function": {"name": "alpha"}},
        {"index": 1} | B | function("beta", '{"x":"2"}'),
    ],
    "no ids": [function("alpha", '{"x":"1"}'), function("beta", '{"x":"2"}')],
}


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", STREAMS)
def test_two_calls_are_two_whole_calls(wire: Wire, name: str, form: str) -> None:
    first, last, usage = told("chat", "")
    deltas = [
        first | {"choices": [first["choices"][0] | {"delta": {"tool_calls": [each]}}]}
        for each in STREAMS[name]
    ]
    last["choices"][0]["finish_reason"] = "tool_calls"
    wire.providers.say("chat", stream(*deltas, last, usage))
    before = wire.usage()
    assert calls_of(wire.ask("t/chat", form, stream=True), form) == TWO
    assert wire.usage() - before == pytest.approx(0.037)


@pytest.mark.parametrize("form", FORMATS[1:])
def test_a_call_in_the_first_way_of_the_format_is_a_call(wire: Wire, form: str) -> None:
    first, last, usage = told("chat", "")
    whole = said("chat", "", finish_reason="function_call")
    pieces = function("alpha", ""), function(None, '{"x":'), function(None, '"1"}')
    deltas = [
        first | {"choices": [{"index": 0, "delta": {"function_call": each["function"]}}]}
        for each in pieces
    ]
    last["choices"][0]["finish_reason"] = "function_call"
    whole["choices"][0]["message"]["function_call"] = function("alpha", '{"x":"1"}')["function"]
    wire.providers.say("chat", stream(*deltas, last, usage), reply(whole))
    for streams in (True, False):
        assert calls_of(wire.ask("t/chat", form, stream=streams), form) == TWO[:1]


@pytest.mark.parametrize("form", FORMATS)
def test_the_calls_of_a_whole_reply_have_ids_of_their_own(wire: Wire, form: str) -> None:
    whole = said("chat", "", finish_reason="stop")
    whole["choices"][0]["message"]["tool_calls"] = [
        {"id": ""} | function("alpha", '{"x":"1"}'),
        {"function": {"name": "beta", "arguments": {"x": "2"}}},
    ]
    wire.providers.say("chat", reply(whole))
    assert calls_of(wire.ask("t/chat", form), form) == TWO


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS[1:])
def test_calls_that_share_an_id_get_one_of_their_own(wire: Wire, dialect: str, form: str) -> None:
    whole = calling(dialect, ("same", "alpha", {"x": "1"}), ("same", "beta", {"x": "2"}))
    if dialect == "responses":
        whole["output"][1]["id"] = "fc_other"
    wire.providers.say(dialect, stream(*streamed(dialect, whole)), reply(whole))
    for streams in (True, False):
        answer = wire.ask(f"t/{dialect}", form, stream=streams)
        assert calls_of(answer, form) == TWO
        assert "same_1" in answer.text
