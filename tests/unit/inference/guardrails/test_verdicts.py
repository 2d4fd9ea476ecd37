import json

import pytest

from tests.support.seams.identity import AccessPolicy
from tests.support.seams.inference import (
    ALLOWED,
    GuardrailVerdict,
    decide,
    named,
    parse_request,
    question,
    read_answer,
)
from tests.unit.inference.fakes import SUBJECT
from tollhouse.kernel.errors import Forbidden, Invalid, Unavailable, status_of

FAILED = GuardrailVerdict("failed", reason="HeadTimeout")


def refused(*patterns: str) -> GuardrailVerdict:
    return GuardrailVerdict("refused", patterns)


def asked(**fields: object) -> dict[str, object]:
    body = {"model": "acme/large", "messages": [{"role": "user", "content": "hi"}]} | fields
    data = json.dumps(body).encode()
    request = parse_request(data)
    return json.loads(question(SUBJECT, request, "/chat/completions", "gen-1", data))


# Who is asked, and what


def test_the_guardrails_of_all_policies_count_each_once() -> None:
    account, key = (
        AccessPolicy("account", guardrails=("a", "b")),
        AccessPolicy("key", guardrails=("c", "a")),
    )
    assert named([account, AccessPolicy("workspace"), key]) == ["a", "b", "c"]
    assert named([]) == []


def test_a_question_says_whose_request_it_is_and_what_is_asked() -> None:
    assert asked() == {
        "id": "gen-1",
        "account_id": SUBJECT.account_id,
        "workspace_id": SUBJECT.workspace_id,
        "endpoint": "/chat/completions",
        "model": "acme/large",
        "texts": ["model", "acme/large", "messages", "role", "user", "content", "hi"],
    }


def test_a_question_holds_each_text_once_wherever_it_stands() -> None:
    arguments = '{"name": "Ann"}'
    calls = [{"function": {"arguments": arguments}}]
    messages = [{"content": ["one", "two"]}, {"content": "one", "tool_calls": calls}]
    texts = asked(messages=messages)["texts"]
    assert isinstance(texts, list)
    said = [text for text in texts if text in {"one", "two", arguments, "name", "Ann"}]
    assert said == ["one", "two", arguments, "name", "Ann"]


def test_what_nobody_can_read_cannot_be_judged() -> None:
    body = b'{"model": "m", "messages": [{"role": "user", "content": "x"}], "x": [1e999]}'
    request = parse_request(body)
    with pytest.raises(Invalid):
        question(SUBJECT, request, "/chat/completions", None, body)


# Answers


def test_an_answer_that_allows_is_read() -> None:
    assert read_answer(b'{"allowed": true}') == ALLOWED
    assert read_answer(b'{"allowed": true, "patterns": ["x"], "score": 0.1}') == ALLOWED


@pytest.mark.parametrize(
    ("patterns", "read"),
    [
        ('["a", "b"]', ("a", "b")),
        ("[]", ()),
        ("null", ()),
        ("7", ()),
        ('["a", 7, "", null]', ("a",)),
        (json.dumps(["x" * 1000]), ("x" * 256,)),
        (json.dumps([str(number) for number in range(1000)]), tuple(map(str, range(64)))),
    ],
)
def test_an_answer_that_refuses_does_so_whatever_its_patterns_are(
    patterns: str, read: tuple[str, ...]
) -> None:
    body = f'{{"allowed": false, "patterns": {patterns}}}'
    assert read_answer(body.encode()) == GuardrailVerdict("refused", read)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"true",
        b"[]",
        b"{}",
        b"\xff",
        b'{"allowed": "true"}',
        b'{"allowed": 1}',
        b'{"allowed": null}',
        b'{"allowed": true} {"allowed": true}',
        b'{"allowed": true, "patterns": ["\xff"]}',
        b'{"allowed": true',
        b'{"allowed": true, "x": ' + b"[" * 60_000,
    ],
)
def test_anything_else_is_no_verdict(body: bytes) -> None:
    assert read_answer(body) == GuardrailVerdict("failed", reason="unreadable answer")


# What they mean together


@pytest.mark.parametrize("verdicts", [{}, {"a": ALLOWED}, {"a": ALLOWED, "b": ALLOWED}])
def test_a_request_passes_that_all_let_pass(verdicts: dict[str, GuardrailVerdict]) -> None:
    decide(verdicts, ())


@pytest.mark.parametrize(
    ("verdicts", "patterns"),
    [
        ({"a": refused("x")}, ["x"]),
        ({"a": refused()}, ["a"]),
        ({"a": refused("x", "y"), "b": refused("y", "z"), "c": ALLOWED}, ["x", "y", "z"]),
        ({"a": FAILED, "b": refused("x")}, ["x"]),
    ],
)
@pytest.mark.parametrize("lenient", [(), ("a", "b", "c")])
def test_a_request_that_one_refuses_is_forbidden_with_all_that_was_found(
    verdicts: dict[str, GuardrailVerdict], patterns: list[str], lenient: tuple[str, ...]
) -> None:
    with pytest.raises(Forbidden) as caught:
        decide(verdicts, lenient)
    assert caught.value.metadata == {"error_type": "permission_denied", "patterns": patterns}


def test_a_request_without_a_verdict_is_refused_as_unavailable() -> None:
    with pytest.raises(Unavailable) as caught:
        decide({"a": FAILED, "b": ALLOWED, "c": FAILED, "d": FAILED}, {"d"})
    assert status_of(caught.value) == 503
    assert caught.value.metadata["guardrails"] == ["a", "c"]
    assert "the guardrail a, c gave no verdict" in caught.value.message


def test_a_failure_that_may_be_passed_over_is() -> None:
    decide({"a": FAILED, "b": ALLOWED}, {"a"})
