"""Answers, as the agent and the rest of the session get them."""

from __future__ import annotations

import json

import pytest

from tollhouse.sandbox.daemon.sessions.approvals import (
    InvalidAnswer,
    read_answer,
)

OPTIONS = ["allow_once", "allow_always", "reject_once"]
PERMISSION = {
    "call": "c",
    "permission": {"scope": "shell", "operation": "curl", "options": OPTIONS},
}
FIELDS = [
    {"name": "flag", "type": "boolean", "required": True},
    {"name": "count", "type": "integer", "required": False},
    {"name": "size", "type": "number", "required": False},
    {"name": "kind", "type": "string", "required": False, "options": ["a", "b"]},
]
ELICITATION = {"call": "c", "elicitation": {"message": "Which?", "fields": FIELDS}}


def accepted(**content: object) -> str:
    return json.dumps({"action": "accept", "content": content})


@pytest.mark.parametrize(
    ("option", "verdict"),
    [
        ("allow_once", None),
        (" allow_once\n", None),
        ("allow_always", ("shell", "allow")),
        ("reject_once", None),
        ("cancel", None),
    ],
)
def test_a_permission_is_given_or_not(option: str, verdict: tuple[str, str] | None) -> None:
    answer = read_answer(PERMISSION, option)
    assert answer.order == {"permission": "allow" in option}
    assert answer.verdict == verdict
    assert answer.outcome == option.strip()


@pytest.mark.parametrize(
    "option", ["reject_always", "allow", "accept", "", "{}", "Allow_once", "allow_once reject_once"]
)
def test_an_option_that_was_not_offered_is_refused(option: str) -> None:
    with pytest.raises(InvalidAnswer, match="allow_once"):
        read_answer(PERMISSION, option)


@pytest.mark.parametrize(
    "content",
    [
        {"flag": True},
        {"flag": False, "count": 1, "size": 1.5, "kind": "a"},
        {"flag": True, "size": 1, "kind": None},
    ],
    ids=str,
)
def test_content_that_fits_is_taken(content: dict[str, object]) -> None:
    assert read_answer(ELICITATION, accepted(**content)).order == {"content": content}


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"flag": None},
        {"flag": 1},
        {"flag": "true"},
        {"flag": True, "count": 1.5},
        {"flag": True, "count": True},
        {"flag": True, "size": "1"},
        {"flag": True, "kind": "c"},
        {"flag": True, "more": 1},
    ],
    ids=str,
)
def test_content_that_does_not_fit_is_refused(content: dict[str, object]) -> None:
    with pytest.raises(InvalidAnswer):
        read_answer(ELICITATION, accepted(**content))


@pytest.mark.parametrize(
    "answer", ["blue", "[]", "{}", '{"action": "maybe"}', '{"action": "accept"}']
)
def test_what_is_no_answer_to_a_form_is_refused(answer: str) -> None:
    with pytest.raises(InvalidAnswer):
        read_answer(ELICITATION, answer)


@pytest.mark.parametrize(
    "answer",
    [
        r'{"action": "accept", "content": {"flag": true, "kind": "\ud83d"}}',
        r'{"action": "accept", "content": {"flag": true, "\ud83d": 1}}',
        r'{"action": "decline", "content": ["\ud83d"]}',
    ],
)
def test_half_a_character_is_refused(answer: str) -> None:
    with pytest.raises(InvalidAnswer, match="half a character"):
        read_answer(ELICITATION, answer)
