"""What providers say of errors in the wild: in every shape, and under every status."""

from __future__ import annotations

import gzip
import zlib
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.acceptance.wire import DIALECTS, FORMATS, said, text_of, told
from tests.support.chat_chunks import choices_of
from tests.support.scripted_providers import reply, stream
from tests.support.stream_checks.chat import check_stream

if TYPE_CHECKING:
    from tests.acceptance.wire import Wire

FULL = "prompt is too long: 300000 tokens > 200000 maximum"
SAID: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("wire_errors.yaml").read_bytes())
SHAPES, INSTEAD, OVERLOADED = SAID["full_context"], SAID["in_place_of_a_reply"], SAID["events"]
LIMITED = {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "busy"}}


def sent(body: Any, status: int = 200) -> bytes:
    """Return a reply whose body is JSON, or words as they are."""
    return reply(body.encode() if isinstance(body, str) else body, status)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_full_context_is_told_in_the_providers_words_whatever_their_shape(
    wire: Wire, shape: str
) -> None:
    for dialect, form in product(DIALECTS, FORMATS):
        wire.providers.say(dialect, sent(SHAPES[shape], 400))
        refused = wire.ask(f"t/{dialect}", form)
        assert refused.status_code == 400, refused.text
        assert FULL in refused.json()["error"]["message"]
        assert "context_length_exceeded" in refused.text


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate", "GZIP"])
def test_the_words_of_a_compressed_refusal_are_told(wire: Wire, encoding: str) -> None:
    compress = zlib.compress if encoding == "deflate" else gzip.compress
    body = compress(b'{"error": {"message": "no such tool"}}')
    wire.providers.say("chat", reply(body, 400, {"content-encoding": encoding}))
    assert "no such tool" in wire.ask("t/chat").text


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("dialect", "event"), [(each, event) for each, said in OVERLOADED.items() for event in said]
)
def test_an_error_in_place_of_a_stream_goes_to_the_next_endpoint(
    wire: Wire, dialect: str, event: Any, form: str
) -> None:
    wire.providers.say(dialect, stream(event, done=False))
    wire.providers.say(f"{dialect}-b", stream(*told(dialect, "from b")))
    answer = wire.ask(f"t/{dialect}-two", form, stream=True)
    assert answer.status_code == 200, answer.text
    assert text_of(answer, form) == "from b"
    assert len(wire.providers.asked(dialect)) == len(wire.providers.asked(f"{dialect}-b")) == 1


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_behind_a_beginning_that_says_nothing_goes_to_the_next_endpoint(
    wire: Wire, dialect: str, form: str
) -> None:
    begun, *_ = told(dialect, "")
    within = begun | {"choices": [{"index": 0, "error": {"code": 503}, "finish_reason": "error"}]}
    for event in (*OVERLOADED[dialect][:2], *([within, LIMITED] if dialect == "chat" else [])):
        wire.providers.say(dialect, stream(begun, event, done=False))
        wire.providers.say(f"{dialect}-b", stream(*told(dialect, "from b")))
        assert text_of(wire.ask(f"t/{dialect}-two", form, stream=True), form) == "from b"


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_in_place_of_a_reply_goes_to_the_next_endpoint(
    wire: Wire, dialect: str, form: str
) -> None:
    good = {True: stream(*told(dialect, "from b")), False: reply(said(dialect, "from b"))}
    for body, streamed in product(INSTEAD, (True, False)):
        wire.providers.say(dialect, sent(body))
        wire.providers.say(f"{dialect}-b", good[streamed])
        answer = wire.ask(f"t/{dialect}-two", form, stream=streamed)
        assert answer.status_code == 200, answer.text
        assert text_of(answer, form) == "from b"


@pytest.mark.parametrize("status", [413, 422, 500])
def test_a_full_context_is_one_under_other_statuses(wire: Wire, status: int) -> None:
    wire.providers.say("chat", reply({"error": {"message": FULL}}, status))
    refused = wire.ask("t/chat")
    assert (refused.status_code, len(wire.providers.asked("chat"))) == (400, 1)
    assert "context_length_exceeded" in refused.text


def test_an_error_after_some_output_ends_the_stream(wire: Wire) -> None:
    first, *_ = told("chat", "some")
    wire.providers.say("chat", stream(first, OVERLOADED["chat"][0], done=False))
    wire.providers.say("chat-b", stream(*told("chat", "from b")))
    answer = wire.ask("t/chat-two", stream=True)
    seen = check_stream(answer.content)
    assert seen.failed
    assert choices_of(seen.chunks)[0]["message"]["content"] == "some"
    assert wire.providers.asked("chat-b") == []


def test_without_another_endpoint_the_error_has_the_status_that_it_means(wire: Wire) -> None:
    wire.providers.say("messages", stream(OVERLOADED["messages"][0], done=False))
    answer = wire.ask("t/messages", "/messages", stream=True)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "overloaded_error")
    wire.providers.say("chat", stream({"choices": []}, done=False))
    assert wire.ask("t/chat", "/completions", stream=True).status_code == 502


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ({"retry-after-ms": "2500"}, b"", "3"),
        ({"retry-after": "1.2"}, b"", "2"),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:00 GMT"}, b"", "1"),
        ({}, b'[{"error": {"code": 429, "message": "a", "d": [{"retryDelay": "17s"}]}}]', "17"),
        ({"retry-after": "Thu, 01 Jan 2126 00:00:00 GMT"}, b"", "86400"),
        ({"x-ratelimit-reset-requests": "1m30s"}, b"", "90"),
    ],
)
def test_a_hint_to_wait_is_passed_on_in_seconds(
    wire: Wire, headers: dict[str, str], body: bytes, seconds: str
) -> None:
    wire.providers.say("chat", reply(body, 200 if body else 429, headers))
    answer = wire.ask("t/chat")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, seconds)


def test_a_redirect_names_the_setting_to_mend(wire: Wire) -> None:
    wire.providers.say("chat", reply(b"", 308, {"location": "https://elsewhere.example/v1"}))
    answer = wire.ask("t/chat")
    assert answer.status_code == 502
    assert "providers[chat].base_url" in answer.json()["error"]["message"]
