"""How providers say that a reply has ended, in the words of each server."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.wire import DIALECTS, FORMATS, events, said, text_of, told
from tests.support.scripted_providers import reply, stream
from tests.support.stream_folding import streamed

if TYPE_CHECKING:
    import httpx2

    from tests.acceptance.wire import Wire

# DeepSeek, Zhipu, SGLang and vLLM, Google, Cohere
BROKEN_OFF = [
    "insufficient_system_resource",
    "network_error",
    "abort",
    "MALFORMED_FUNCTION_CALL",
    "ERROR",
]
MEANT = {
    "STOP": "stop",
    "eos_token": "stop",
    "COMPLETE": "stop",
    "MAX_TOKENS": "length",
    "model_length": "length",
    "SAFETY": "content_filter",
    "sensitive": "content_filter",
    "guardrail_intervened": "content_filter",
    "TOOL_CALL": "tool_calls",
    "toolUse": "tool_calls",
    "content-filter": "content_filter",
    "FINISH_REASON_MAX_TOKENS": "length",
    "EndTurn": "stop",
    "a word of tomorrow": "length",
}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def ended(native: str, dialect: str = "chat") -> list[Any]:
    """Return a stream with a provider's finish reason."""
    events_ = told(dialect, "half a sent")
    match dialect:
        case "chat":
            events_[1]["choices"][0]["finish_reason"] = native
        case "messages":
            events_[-2]["delta"]["stop_reason"] = native
        case _:
            broken = {"status": "incomplete", "incomplete_details": {"reason": native}}
            events_[-1]["response"] |= broken
            events_[-1]["type"] = "response.incomplete"
    return events_


def finish_of(answer: httpx2.Response) -> Any:
    """Return the finish reason of a chat reply, whole or streamed."""
    if "event-stream" not in answer.headers["content-type"]:
        return answer.json()["choices"][0]["finish_reason"]
    choices = [each for event in events(answer) for each in event.get("choices", ())]
    [found] = [each["finish_reason"] for each in choices if each.get("finish_reason")]
    return found


@pytest.mark.parametrize("native", BROKEN_OFF)
def test_a_reply_that_the_provider_broke_off_is_no_clean_end_and_costs_nothing(
    wire: Wire, native: str
) -> None:
    for dialect, form in product(DIALECTS, (*FORMATS, "/completions")):
        wire.providers.say(dialect, stream(*ended(native, dialect)))
        if (dialect, form) == ("chat", "/completions"):  # passed through
            choice = {"index": 0, "text": "half a sent", "finish_reason": native}
            wire.providers.say("chat", stream({"choices": [choice]}))
        before = wire.usage()
        answer = wire.ask(f"t/{dialect}", form, stream=True)
        assert "half a sent" in answer.text
        for clean in ('"stop"', "message_stop", "response.completed", "response.incomplete"):
            assert clean not in answer.text
        assert wire.usage() == before
    whole = said("messages", "half a sent", stop_reason=native)
    wire.providers.say("messages", reply(whole))
    assert wire.ask("t/messages", "/messages").json()["stop_reason"] is None
    whole = said("responses", "half a sent") | ended(native, "responses")[-1]["response"]
    wire.providers.say("responses", reply(whole))
    assert wire.ask("t/responses", "/responses").json()["status"] == "failed"
    wire.providers.say("chat", reply(said("chat", "half a sent", finish_reason=native)))
    assert finish_of(wire.ask("t/chat")) == "error"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_that_says_nothing_but_that_it_failed_goes_to_the_next_endpoint(
    wire: Wire, dialect: str, form: str
) -> None:
    silent = json.loads(json.dumps(ended("abort", dialect)).replace("half a sent", ""))
    whole = said(dialect, "", finish_reason="abort", stop_reason="abort", content=[], output=[])
    whole |= {"status": "incomplete", "incomplete_details": {"reason": "abort"}}
    whole["usage"] = dict.fromkeys(whole["usage"], 0)
    for broken, good in (
        (stream(*silent), stream(*told(dialect, "from b"))),
        (reply(whole), reply(said(dialect, "from b"))),
    ):
        wire.providers.say(dialect, broken)
        wire.providers.say(f"{dialect}-b", good)
        streams = b"event-stream" in good
        answer = wire.ask(f"t/{dialect}-two", form, stream=streams)
        assert text_of(answer, form) == "from b"
    assert wire.ask(f"t/{dialect}", form).status_code == 502


@pytest.mark.parametrize(("native", "meant"), MEANT.items())
def test_a_finish_reason_has_one_meaning_and_keeps_the_providers_word(
    wire: Wire, native: str, meant: str
) -> None:
    wire.providers.say(
        "chat", stream(*ended(native)), reply(said("chat", "a", finish_reason=native))
    )
    for whole in (False, True):
        answer = wire.ask("t/chat", stream=not whole)
        assert finish_of(answer) == meant
        assert f'"native_finish_reason":"{native}"' in answer.text


def test_a_stop_with_tool_calls_is_the_end_of_a_turn_with_tool_calls(wire: Wire) -> None:
    first, last, usage = told("chat", "")
    first["choices"][0]["delta"] = {"tool_calls": [{"index": 0, **CALL}]}
    whole = said("chat", "")
    whole["choices"][0]["message"]["tool_calls"] = [CALL]
    wire.providers.say("chat", stream(first, last, usage), reply(whole))
    for stream_too in (True, False):
        answer = wire.ask("t/chat", stream=stream_too)
        assert finish_of(answer) == "tool_calls"
        assert '"native_finish_reason":"stop"' in answer.text


@pytest.mark.parametrize("form", FORMATS)
def test_a_stream_that_ends_without_a_reason_is_whole_unless_arguments_are_missing(
    wire: Wire, form: str
) -> None:
    first, last, usage = told("chat", "yes")
    last["choices"][0]["finish_reason"] = None
    calls = json.loads(json.dumps(first))
    for arguments, whole in (("{}", True), ('{"a":', False)):
        call = CALL | {"index": 0, "function": {"name": "f", "arguments": arguments}}
        calls["choices"][0]["delta"] = {"tool_calls": [call]}
        wire.providers.say("chat", stream(calls, last, usage))
        answer = wire.ask("t/chat", form, stream=True)
        assert ('"cost":0.037' in answer.text) == whole
    wire.providers.say("chat", stream(first, last, usage))
    assert text_of(wire.ask("t/chat", form, stream=True), form) == "yes"


def test_an_unknown_word_is_counted(wire: Wire) -> None:
    name = "tollhouse_upstream_unknown_finish_reasons_total"
    before = wire.metric(name)
    wire.providers.say("chat", reply(said("chat", "a", finish_reason="no such word")))
    wire.ask("t/chat")
    assert wire.metric(name) == before + 1


@pytest.mark.parametrize("form", FORMATS)
def test_the_end_of_a_turn_that_calls_tools_of_messages_is_one_with_calls(
    wire: Wire, form: str
) -> None:
    call = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
    whole = said("messages", "", content=[call])
    wire.providers.say("messages", stream(*streamed("messages", whole)), reply(whole))
    for streams in (True, False):
        shown = wire.ask("t/messages", form, stream=streams).text
        assert '"finish_reason":"stop"' not in shown
        assert '"stop_reason":"end_turn"' not in shown
