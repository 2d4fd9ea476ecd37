"""What clients say, read."""

from __future__ import annotations

import json

import pytest

from tollhouse.sandbox.daemon.http import RequestError
from tollhouse.sandbox.daemon.sessions.endpoints import (
    MOST_INPUT,
    read_answer_request,
    read_run_request,
    read_session,
)


def test_a_prompt_drives_itself_unless_it_says_so() -> None:
    assert read_run_request(b'{"input": "a", "more": 1}').mode == "self-drive"
    assert read_run_request(b'{"input": "a", "approval_mode": "manual"}').mode == "manual"


def test_a_prompt_may_be_long() -> None:
    text = "é" * MOST_INPUT
    assert read_run_request(json.dumps({"input": text}).encode()).text == text


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[" * 100_000, b"null", b'{"input": null}', b'{"input": ["a"]}']
)
def test_a_prompt_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        read_run_request(body)
    assert (refused.value.status, refused.value.reason) == (400, "bad_request")


def test_what_was_said_is_not_repeated() -> None:
    shown = repr((read_run_request(b'{"input": "canary"}'), read_answer_request(REPLY)))
    assert "canary" not in shown


REPLY = b'{"interaction": "i", "answer": "canary"}'


@pytest.mark.parametrize(
    ("segment", "name"), [(b"a", "a"), (b"%C3%A9%2F%20", "é/ "), (b"..", ".."), (b"a+b", "a+b")]
)
def test_a_session_is_any_text(segment: bytes, name: str) -> None:
    assert read_session(segment) == name


@pytest.mark.parametrize("segment", [b"", b"a" * 257, b"%00", b"%0a", b"%7f", b"%C2%85", b"%ff"])
def test_a_session_has_a_name_that_can_be_printed(segment: bytes) -> None:
    with pytest.raises(RequestError) as refused:
        read_session(segment)
    assert refused.value.status == 400
