"""Odd bytes that are valid: halves of characters, line ends and marks of other servers."""

from __future__ import annotations

import json
import re
from itertools import product
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.acceptance.wire import DIALECTS, FORMATS, JSON, said, text_of, told
from tests.support.scripted_providers import reply, stream

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

HALVES = "hi \ud83d there \ude42."
MENDED = "hi \ufffd there \ufffd."


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_half_of_a_character_in_a_reply_costs_no_more_than_itself(
    wire: Wire, dialect: str, form: str
) -> None:
    wire.providers.say(dialect, stream(*told(dialect, HALVES)), reply(said(dialect, HALVES)))
    for streams in (True, False):
        before = wire.usage()
        answer = wire.ask(f"t/{dialect}", form, stream=streams)
        assert answer.status_code == 200, answer.text
        assert text_of(answer, form).encode("utf-8", "replace").decode() in {
            MENDED,
            HALVES.encode("utf-8", "replace").decode(),
        }
        assert wire.usage() > before


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_half_of_a_character_in_a_request_is_replaced(wire: Wire, dialect: str, form: str) -> None:
    wire.providers.say(dialect, reply(said(dialect, "yes")))
    field = "input" if form == "/responses" else "messages"
    content = HALVES if form == "/responses" else [{"role": "user", "content": HALVES}]
    answer = wire.ask(f"t/{dialect}", form, **{field: content})
    assert answer.status_code == 200, answer.text
    [asked] = wire.providers.asked(dialect)
    assert MENDED in str(asked)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("done", ["[DONE]", " [DONE] ", "[DONE]\t"])
def test_a_stream_ends_whatever_its_line_ends_and_spaces(wire: Wire, end: str, done: str) -> None:
    body = stream(*told("chat", "yes"), done, done=False).partition(b"\r\n\r\n")[2]
    sent = body.replace(b"\n", end.encode())
    for form, cut in product(FORMATS, (0, len(end))):
        headers = {"content-type": "text/event-stream"}
        wire.providers.say("chat", reply(sent[: len(sent) - cut], headers=headers))
        answer = wire.ask("t/chat", form, stream=True)
        assert text_of(answer, form) == "yes"
        assert '"error":{' not in answer.text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_odd_bytes_around_a_reply_cost_nothing_of_it(wire: Wire, dialect: str, form: str) -> None:
    events = stream(*told(dialect, "yes"), done=False).partition(b"\r\n\r\n")[2]
    whole = json.dumps(said(dialect, "yes")).encode()
    named = (b'"model":', b'"a": NaN, "b": -Infinity, "c": "NaN", "model":')
    number = (b'"id": "', b'"id": 7, "was": "', 1)
    noise = (b'"model":', b'"e": "a\tb\x01", "model":')
    nothing = b"data: null\n\n"
    streams = (
        *(events[:-2], events[:-1], b"\xef\xbb\xbf" + events, events.replace(*named)),
        *(events.replace(*number), events.replace(*noise), events.replace(b"}\n\n", b"}\0\n\n")),
        *(nothing + events + nothing + b'data: "[DONE]"\n\n', whole, b"data: " + whole + b"\n\n"),
        *(events.replace(b"}\n\n", b"}\n"), re.sub(rb"event: .*\n|data: ", b"", events)),
    )
    replies = (
        *(b"\xef\xbb\xbf" + whole, whole.replace(*named), whole.replace(*number)),
        *(whole.replace(*noise), whole + b"\0", whole + b"\n<html>", whole + whole, events),
    )
    for body, streamed in (*product(streams, [True]), *product(replies, [False])):
        wire.providers.say(dialect, reply(body, raw=streamed))
        answer = wire.ask(f"t/{dialect}", form, stream=streamed)
        assert text_of(answer, form) == "yes"
        assert '"cost":0.037' in answer.text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_reply_whose_end_and_usage_have_come_is_complete_whatever_follows(
    wire: Wire, dialect: str, form: str
) -> None:
    sent = stream(*told(dialect, "yes"), "<html>", done=False).partition(b"\r\n\r\n")[2]
    for more in (b"", b"data: {"):
        # It promises more than it sends, and the connection closes.
        headers = {"content-length": str(len(sent) + 99), "connection": "close"}
        wire.providers.say(dialect, reply(sent + more, headers=headers, raw=True))
        answer = wire.ask(f"t/{dialect}", form, stream=True)
        assert text_of(answer, form) == "yes"
        assert '"cost":0.037' in answer.text


def test_a_stream_in_place_of_a_whole_completion_is_read_or_goes_to_the_next_endpoint(
    wire: Wire,
) -> None:
    def chunk(text: str, end: str | None, **more: Any) -> dict[str, Any]:
        logprobs = {"tokens": [text], "top_logprobs": None}
        choice = {"index": 0, "text": text, "finish_reason": end, "logprobs": logprobs}
        return {"id": "c", "object": "text_completion", "choices": [choice]} | more

    usage = {"prompt_tokens": 7, "completion_tokens": 3}
    pieces = [chunk("y", None), chunk("es", "eos", usage=None)]
    wire.providers.say("chat", stream(*pieces, {"choices": [], "usage": usage}))
    answer = wire.ask("t/chat", "/completions").json()
    [choice] = answer["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("yes", "stop")
    assert choice["logprobs"] == {"tokens": ["y", "es"], "top_logprobs": []}
    assert (answer["usage"]["cost"], answer["object"]) == (0.037, "text_completion")
    wire.providers.say("chat", stream(pieces[0], {"error": {"message": "busy", "code": 503}}))
    wire.providers.say("chat-b", stream(*pieces))
    assert wire.ask("t/chat-two", "/completions").json()["choices"][0]["text"] == "yes"


def test_a_batch_takes_half_of_a_character_in_a_body_and_names_one_in_a_custom_id(
    wire: Wire,
) -> None:
    def submit(custom_id: str) -> httpx2.Response:
        message = {"role": "user", "content": HALVES}
        item = {"custom_id": custom_id, "body": {"messages": [message]}}
        batch = {"model": "t/chat", "endpoint": "/v1/chat/completions", "requests": [item]}
        return httpx2.post(
            f"{wire.server.base_url}/batches",
            content=json.dumps(batch),
            headers=wire.server.authorization | JSON,
        )

    wire.providers.say("chat", reply(said("chat", "yes")))
    assert submit("a").status_code < 300
    refused = submit("\ud83d")
    assert refused.status_code == 400
    assert "requests[0].custom_id: holds half of a character" in refused.text
