"""What a reply used, as providers of every kind tell it, and what it costs then."""

from __future__ import annotations

import json
import socket
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.acceptance.wire import FORMATS, events, said, told
from tests.support.accounts import body
from tests.support.scripted_providers import reply, stream
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.acceptance.wire import Wire

START = {"input_tokens": 1000, "cache_read_input_tokens": 500, "output_tokens": 1}
SEARCHED = {"input_tokens": 10, "output_tokens": 5, "server_tool_use": {"web_search_requests": 3}}
PLACES: dict[str, dict[str, Any]] = {
    "thoughts in the total alone": {
        "usage": {"prompt_tokens": 20, "completion_tokens": 198, "total_tokens": 623}
    },
    "no output but in the total": {"usage": {"prompt_tokens": 20, "total_tokens": 623}},
    "text": {"usage": {"prompt_tokens": "20", "completion_tokens": "603"}},
    "fractions": {"usage": {"prompt_tokens": 20.0, "completion_tokens": 603.0}},
    "names of messages": {"usage": {"input_tokens": 20, "output_tokens": 603}},
    "Groq's place": {"x_groq": {"usage": {"prompt_tokens": 20, "completion_tokens": 603}}},
    "llama.cpp's place": {"timings": {"prompt_n": 20, "predicted_n": 603}},
    "Ollama's place": {"prompt_eval_count": 20, "eval_count": 603},
    "Bedrock's place": {
        "amazon-bedrock-invocationMetrics": {"inputTokenCount": 20, "outputTokenCount": 603}
    },
    "what Cohere bills": {
        "usage": {
            "billed_units": {"input_tokens": 20, "output_tokens": 603},
            "tokens": {"input_tokens": 90, "output_tokens": 700},
        }
    },
}


def cost_of(wire: Wire, model: str, form: str = "/chat/completions", **fields: Any) -> Decimal:
    """Return what a request was charged."""
    before = Decimal(str(wire.usage()))
    assert wire.ask(model, form, **fields).status_code == 200
    return Decimal(str(wire.usage())) - before


def ended(dialect: str, usage: dict[str, Any], start: dict[str, Any] | None = None) -> list[Any]:
    """Return a stream of messages that tells its usage."""
    told_of = told(dialect, "ok")
    told_of[0]["message"]["usage"] = start or usage
    told_of[-2]["usage"] = usage
    return told_of


@pytest.mark.parametrize("form", FORMATS)
def test_zeros_at_the_end_of_messages_do_not_make_the_input_free(wire: Wire, form: str) -> None:
    zeros = dict.fromkeys(START, 0) | {"output_tokens": 50}
    wire.providers.say("messages", stream(*ended("messages", zeros, START)))
    assert cost_of(wire, "t/messages", form, stream=True) == Decimal("1.55")


@pytest.mark.parametrize("name", PLACES)
def test_usage_is_found_wherever_a_chat_provider_puts_it(wire: Wire, name: str) -> None:
    where = PLACES[name]
    first, last, usage = told("chat", "ok")
    own_chunk = {each: value for each, value in usage.items() if each != "usage"} | where
    whole = {each: value for each, value in said("chat", "ok").items() if each != "usage"}
    for events_ in ([first, last, own_chunk], [first, last, "[DONE]", own_chunk]):
        wire.providers.say("chat", stream(*events_))
        for form in FORMATS:
            assert cost_of(wire, "t/chat", form, stream=True) == Decimal("6.05")
    wire.providers.say("chat", reply(whole | where))
    for form in FORMATS:
        assert cost_of(wire, "t/chat", form) == Decimal("6.05")


@pytest.mark.parametrize("form", FORMATS)
def test_usage_in_the_choice_is_found(wire: Wire, form: str) -> None:
    first, last, _ = told("chat", "ok")
    for place in (last["choices"][0], last["choices"][0]["delta"]):
        place["usage"] = {"prompt_tokens": 20, "completion_tokens": 3}
        wire.providers.say("chat", stream(first, last))
        assert cost_of(wire, "t/chat", form, stream=True) == Decimal("0.05")
        del place["usage"]


@pytest.mark.parametrize("form", FORMATS)
def test_usage_of_messages_is_found_at_either_end(wire: Wire, form: str) -> None:
    used = {"input_tokens": 20, "output_tokens": 603}
    metrics = {"inputTokenCount": 20, "outputTokenCount": 603}
    for at, found in (
        (0, {"message": {"id": "m", "type": "message", "content": [], "usage": used}}),
        (-2, {"delta": {"stop_reason": "end_turn", "usage": used}}),
        (-1, {"usage": used}),
        (-1, {"amazon-bedrock-invocationMetrics": metrics}),
    ):
        events_ = told("messages", "ok")
        events_[0]["message"]["usage"] = events_[-2]["usage"] = None
        events_[at] |= found
        wire.providers.say("messages", stream(*events_, done=False))
        assert cost_of(wire, "t/messages", form, stream=True) == Decimal("6.05")


def test_what_a_compaction_used_is_charged_and_shown_as_it_came(wire: Wire) -> None:
    compaction = {"type": "compaction", "input_tokens": 180, "output_tokens": 30}
    used = {"input_tokens": 20, "output_tokens": 3, "iterations": [compaction]}
    whole = said("messages", "ok", usage=used)
    wire.providers.say("messages", stream(*ended("messages", used)), reply(whole))
    for streamed in (True, False):
        before = Decimal(str(wire.usage()))
        answer = wire.ask("t/messages", "/messages", stream=streamed)
        assert '"input_tokens":20,' in answer.text
        assert Decimal(str(wire.usage())) - before == Decimal("0.53")


@pytest.mark.parametrize("form", FORMATS)
def test_zero_beside_a_text_is_an_unknown_cost_and_not_a_free_reply(wire: Wire, form: str) -> None:
    first, last, usage = told("chat", "ok")
    usage["usage"] = {"prompt_tokens": 20, "completion_tokens": 0, "total_tokens": 20}
    whole = said("chat", "ok") | {"usage": usage["usage"]}
    wire.providers.say("chat", stream(first, last, usage), reply(whole))
    for streamed in (True, False):
        assert '"cost":null' in wire.ask("t/chat", form, stream=streamed).text


@pytest.mark.parametrize(("text", "cost"), [("ok", "0.037"), ("", "0")])
def test_a_whole_reply_without_a_finish_reason_costs_the_same_for_every_client(
    wire: Wire, text: str, cost: str
) -> None:
    whole = said("chat", text, finish_reason=None)
    whole["usage"]["completion_tokens"] = 3 if text else 0
    whole["usage"]["total_tokens"] = None
    wire.providers.say("chat", reply(whole))
    assert [cost_of(wire, "t/chat", form) for form in FORMATS] == [Decimal(cost)] * 3


@pytest.mark.parametrize("form", FORMATS)
def test_searches_have_a_price_of_their_own(wire: Wire, form: str) -> None:
    whole = said("messages", "Found.", usage=SEARCHED)
    wire.providers.say("messages", stream(*ended("messages", SEARCHED)), reply(whole))
    for streamed in (True, False):
        # 10 and 5 tokens, and three searches at Anthropic's cent
        assert cost_of(wire, "t/messages", form, stream=streamed) == Decimal("0.09")


def test_searches_that_a_request_allows_are_held_until_their_number_is_known(wire: Wire) -> None:
    def held(**tool: Any) -> Decimal:
        """Return what a request with such a tool holds of the balance."""
        found = {"type": "web_search_20250305", "name": "web_search"} | tool
        asked = body("/messages", "t/messages", max_tokens=1, tools=[found])
        url, headers = f"{wire.server.base_url}/estimate", wire.server.authorization
        reply = httpx2.post(url, json={"endpoint": "/v1/messages", "body": asked}, headers=headers)
        return Decimal(str(reply.json()["data"]["hold"]["balance"]))

    assert held(max_uses=500) - held(max_yses=500) == 5  # a cent each, at Anthropic
    for odd in ({"max_uses": None}, {"max_uses": -1}, {"max_uses": "x"}, {"type": "custom"}):
        assert held(**{"max_uses": 500} | odd) < 1


@pytest.mark.parametrize("of", ["web", "file"])
def test_items_of_a_response_are_searches_whose_price_nobody_knows_here(
    wire: Wire, of: str
) -> None:
    whole = said("responses", "Found.")
    search = {"type": f"{of}_search_call", "id": "w", "status": "completed"}
    search |= {"action": {"type": "search", "query": "q"}} if of == "web" else {"queries": ["q"]}
    pages = search | {"type": "web_search_call", "action": {"type": "open_page"}}
    wire.providers.say("responses", reply(whole | {"output": [search, *whole["output"]]}))
    before = wire.usage()
    answer = wire.ask("t/responses", "/responses").json()
    assert answer["usage"]["cost"] is None
    assert wire.usage() - before == pytest.approx(0.037)  # the tokens
    wire.providers.say("responses", reply(whole | {"output": [pages, *whole["output"]]}))
    assert wire.ask("t/responses", "/responses").json()["usage"]["cost"] == 0.037


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("dialect", ["chat", "messages", "responses"])
def test_a_client_that_leaves_before_the_first_token_pays_for_the_prompt(
    wire: Wire, dialect: str, *, streamed: bool
) -> None:
    wire.providers.say(dialect, b"")  # it never answers
    before = wire.usage()
    with asking(wire, f"t/{dialect}", stream=streamed):
        wait_until(lambda: wire.providers.asked(dialect))
    wait_until(lambda: wire.usage() > before)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_before_anything_is_sent_pays_nothing(
    wire: Wire, *, streamed: bool
) -> None:
    with asking(wire, "t/silent", stream=streamed):
        handshake, _ = wire.providers.silent.accept()
    with handshake:
        while handshake.recv(4096):  # until the gateway has given up
            pass
    wire.providers.say("chat", reply(said("chat", "ok")))
    assert cost_of(wire, "t/chat") == Decimal("0.037")


@contextmanager
def asking(wire: Wire, model: str, **fields: Any) -> Generator[None]:
    """Have a client ask, and leave after the block."""
    asked = json.dumps(body("/chat/completions", model, **fields)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(asked)}\r\n"
    told = "".join(f"{name}: {value}\r\n" for name, value in wire.server.authorization.items())
    address = wire.server.origin.removeprefix("http://").split(":")
    with socket.create_connection((address[0], int(address[1]))) as connection:
        told += "Content-Type: application/json\r\n\r\n"
        connection.sendall((head + told).encode() + asked)
        yield


def test_usage_that_the_client_sees_is_what_it_pays(wire: Wire) -> None:
    wire.providers.say("messages", stream(*ended("messages", SEARCHED)))
    answer = wire.ask("t/messages", "/messages", stream=True)
    [last] = [each["usage"] for each in events(answer) if each["type"] == "message_delta"]
    assert (last["cost"], last["server_tool_use"]["web_search_requests"]) == (0.09, 3)
