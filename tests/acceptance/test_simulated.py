"""Every simulated model in every format of text, over HTTP, whole and streamed."""

import json
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import httpx2
import pytest

from tests.support.format_clients import (
    Chat,
    Completions,
    FormatClient,
    Messages,
    ParsedReply,
    Responses,
    TextRequest,
)
from tests.support.server_process import ServerProcess, start_server
from tests.support.stream_checks import completions as completions_stream_checks
from tests.support.stream_checks import messages as messages_stream_checks
from tests.support.stream_checks import responses as responses_stream_checks
from tests.support.stream_checks.chat import check_stream as checked_chat

CHAT, RESPONSES, MESSAGES, COMPLETIONS = Chat(), Responses(), Messages(), Completions()
SAMPLE = {"city": "text"}


def name(value: object) -> str:
    return type(value).__name__.lower()


every_format = pytest.mark.parametrize("form", [CHAT, RESPONSES, MESSAGES, COMPLETIONS], ids=name)
every_chat = pytest.mark.parametrize("form", [CHAT, RESPONSES, MESSAGES], ids=name)
both_ways = pytest.mark.parametrize("way", ["whole", "streamed"])


class Asking:
    """A client of a running server."""

    def __init__(self, http: httpx2.Client) -> None:
        self.http = http

    def post(self, form: FormatClient, way: str, body: dict[str, Any]) -> httpx2.Response:
        return self.http.post(form.path, json=body | {"stream": way == "streamed"})

    def __call__(self, form: FormatClient, way: str, body: dict[str, Any]) -> ParsedReply:
        response = self.post(form, way, body)
        assert response.status_code == 200, response.text
        return (form.whole if way == "whole" else form.streamed)(response.content)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[ServerProcess]:
    with start_server(tmp_path_factory.mktemp("simulated")) as running:
        yield running


@pytest.fixture(scope="module")
def ask(server: ServerProcess) -> Generator[Asking]:
    headers = server.authorization
    with httpx2.Client(base_url=server.base_url, headers=headers, timeout=20) as client:
        yield Asking(client)


@every_format
@both_ways
@pytest.mark.parametrize("model", ["echo", "echo:free"])
def test_the_echo_model_repeats_the_prompt(
    ask: Asking, form: FormatClient, way: str, model: str
) -> None:
    reply = ask(form, way, form.fields(f"simulated/{model}", TextRequest()))
    assert reply == ParsedReply("one two three", end=form.ends["stop"], tokens=3)


@every_format
@both_ways
def test_the_slow_model_repeats_the_prompt_in_the_end(
    ask: Asking, form: FormatClient, way: str
) -> None:
    assert ask(form, way, form.fields("simulated/slow", TextRequest("one"))).text == "one"


@every_format
@both_ways
def test_a_limit_cuts_the_answer(ask: Asking, form: FormatClient, way: str) -> None:
    long = TextRequest(" ".join(["word"] * 20), limit=16)  # the least that OpenAI's responses take
    reply = ask(form, way, form.fields("simulated/echo", long))
    assert reply == ParsedReply("word " * 16, end=form.ends["length"], tokens=16)


@pytest.mark.parametrize("form", [CHAT, MESSAGES, COMPLETIONS], ids=name)
@both_ways
def test_an_answer_ends_before_a_stop_sequence(ask: Asking, form: FormatClient, way: str) -> None:
    reply = ask(form, way, form.fields("simulated/echo", TextRequest(stop=" three")))
    assert reply == ParsedReply("one two", end=form.ends["stop"], tokens=2)


@every_chat
@both_ways
def test_an_image_is_acknowledged(ask: Asking, form: FormatClient, way: str) -> None:
    reply = ask(form, way, form.fields("simulated/echo", TextRequest("look", image=True)))
    assert reply.text == "[image] look"


@every_chat
@both_ways
def test_an_answer_in_json_is_of_its_schema(ask: Asking, form: FormatClient, way: str) -> None:
    reply = ask(form, way, form.fields("simulated/echo", TextRequest(json=True)))
    assert json.loads(reply.text) == SAMPLE


@pytest.mark.parametrize("form", [CHAT, COMPLETIONS], ids=name)
def test_several_answers_come_where_the_format_can_ask_for_them(
    ask: Asking, form: FormatClient
) -> None:
    body = form.fields("simulated/echo", TextRequest("one")) | {"n": 3}
    reply = ask.post(form, "whole", body).json()
    assert [choice["index"] for choice in reply["choices"]] == [0, 1, 2]
    assert reply["usage"]["completion_tokens"] == 3


def test_words_have_log_probabilities_in_chat_and_in_responses(ask: Asking) -> None:
    wanted = {"logprobs": True, "top_logprobs": 2}
    chat = ask.post(CHAT, "whole", CHAT.fields("simulated/echo", TextRequest()) | wanted).json()
    include = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    fields = RESPONSES.fields("simulated/echo", TextRequest())
    response = ask.post(RESPONSES, "whole", fields | include).json()
    for tokens in (
        chat["choices"][0]["logprobs"]["content"],
        response["output"][0]["content"][0]["logprobs"],
    ):
        assert [token["token"] for token in tokens] == ["one ", "two ", "three"]
        assert [len(token["top_logprobs"]) for token in tokens] == [2, 2, 2]


# Tools


@every_chat
@both_ways
def test_a_forced_tool_is_called_and_its_result_repeated(
    ask: Asking, form: FormatClient, way: str
) -> None:
    body = form.fields("simulated/echo", TextRequest(tools=("weather", "time"), forced="time"))
    reply = ask(form, way, body)
    assert reply.calls == (("time", SAMPLE),)
    assert reply.end == form.ends["calls"]
    assert reply.text == ""
    assert ask(form, way, form.follow_up(body, reply, ["noon"])).text == "noon"


@every_chat
@both_ways
def test_the_tools_model_calls_two_tools_and_repeats_both_results(
    ask: Asking, form: FormatClient, way: str
) -> None:
    body = form.fields("simulated/tools", TextRequest(tools=("weather", "time", "day")))
    reply = ask(form, way, body)
    assert reply.calls == (("weather", SAMPLE), ("time", SAMPLE))
    assert reply.end == form.ends["calls"]
    assert ask(form, way, form.follow_up(body, reply, ["cold", "noon"])).text == "cold\nnoon"


@every_chat
@both_ways
def test_the_tools_model_calls_one_tool_where_it_may_not_call_two(
    ask: Asking, form: FormatClient, way: str
) -> None:
    request = TextRequest(tools=("weather", "time"), one_call=True)
    assert ask(form, way, form.fields("simulated/tools", request)).calls == (("weather", SAMPLE),)


@every_format
@both_ways
def test_the_tools_model_says_that_there_are_none(
    ask: Asking, form: FormatClient, way: str
) -> None:
    assert "no function" in ask(form, way, form.fields("simulated/tools", TextRequest())).text


# Reasoning


@every_chat
@both_ways
def test_the_reasoning_model_thinks_and_takes_its_thoughts_back(
    ask: Asking, form: FormatClient, way: str
) -> None:
    body = form.fields("simulated/reasoning", TextRequest(thinks=True))
    reply = ask(form, way, body)
    assert reply.thought.startswith("Simulated reasoning: 3 words ")
    assert reply.text == "one two three"
    assert reply.tokens == len(reply.thought.split()) + 3
    assert ask(form, way, form.follow_up(body, reply, [])).text == "and then?"


@every_chat
@both_ways
def test_thoughts_before_a_call_come_back_with_its_result(
    ask: Asking, form: FormatClient, way: str
) -> None:
    body = form.fields("simulated/reasoning", TextRequest(tools=("time",), forced="time"))
    reply = ask(form, way, body)
    assert reply.thought
    assert reply.calls == (("time", SAMPLE),)
    assert ask(form, way, form.follow_up(body, reply, ["noon"])).text == "noon"


@both_ways
def test_thoughts_that_a_client_changed_are_refused(ask: Asking, way: str) -> None:
    body = CHAT.fields("simulated/reasoning", TextRequest())
    reply = ask(CHAT, way, body)
    [detail] = reply.raw["reasoning_details"]
    raw = reply.raw | {"reasoning_details": [detail | {"text": "something else"}]}
    refused = ask.post(CHAT, way, CHAT.follow_up(body, replace(reply, raw=raw), []))
    assert refused.status_code == 400
    assert "messages[1].reasoning_details" in refused.json()["error"]["message"]


@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=name)
@both_ways
def test_the_reasoning_model_does_not_think_if_told_not_to(
    ask: Asking, form: FormatClient, way: str
) -> None:
    reply = ask(form, way, form.fields("simulated/reasoning", TextRequest(thinks=False)))
    assert reply == ParsedReply("one two three", end=form.ends["stop"], tokens=3)


@both_ways
def test_a_text_completion_shows_no_thoughts(ask: Asking, way: str) -> None:
    reply = ask(COMPLETIONS, way, COMPLETIONS.fields("simulated/reasoning", TextRequest()))
    assert reply.text == "one two three"
    assert reply.tokens > 3


# Refusals and failures


@every_chat
@both_ways
def test_a_refusal_is_one_in_every_format(ask: Asking, form: FormatClient, way: str) -> None:
    reply = ask(form, way, form.fields("simulated/refusal", TextRequest()))
    assert reply.text == ""
    assert reply.refusal is not None
    assert reply.refusal.startswith("Simulated: ")
    assert reply.end == form.ends["refusal"]


@both_ways
def test_a_text_completion_says_a_refusal_as_text(ask: Asking, way: str) -> None:
    reply = ask(COMPLETIONS, way, COMPLETIONS.fields("simulated/refusal", TextRequest()))
    assert reply.text.startswith("Simulated: ")


@every_format
@both_ways
def test_a_flaky_model_fails_every_other_time(ask: Asking, form: FormatClient, way: str) -> None:
    body = form.fields("simulated/flaky", TextRequest())
    assert [ask.post(form, way, body).status_code for _ in range(4)] == [502, 200, 502, 200]


@every_format
@both_ways
@pytest.mark.parametrize(("model", "status"), [("limited", 429), ("overloaded", 503)])
def test_a_failing_model_has_its_status(
    ask: Asking, form: FormatClient, way: str, model: str, status: int
) -> None:
    response = ask.post(form, way, form.fields(f"simulated/{model}", TextRequest()))
    assert response.status_code == status
    assert "Simulated" in response.json()["error"]["message"]


@every_format
def test_a_broken_model_fails_before_a_whole_reply(ask: Asking, form: FormatClient) -> None:
    body = form.fields("simulated/broken", TextRequest())
    assert ask.post(form, "whole", body).status_code == 502


def test_a_broken_model_fails_in_the_middle_of_a_legal_stream(ask: Asking) -> None:
    def streamed(form: FormatClient) -> bytes:
        response = ask.post(form, "streamed", form.fields("simulated/broken", TextRequest()))
        assert response.status_code == 200
        return response.content

    assert checked_chat(streamed(CHAT)).failed
    assert responses_stream_checks.check_stream(streamed(RESPONSES)).failed
    assert messages_stream_checks.check_stream(streamed(MESSAGES)).error is not None
    assert completions_stream_checks.check_stream(streamed(COMPLETIONS)).failed
