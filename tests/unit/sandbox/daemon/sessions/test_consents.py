"""What is remembered of questions and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tollhouse.sandbox.daemon.sessions.consents import Consents
from tollhouse.sandbox.daemon.sessions.questions import read_answer
from tollhouse.sandbox.daemon.sessions.values import Event, Question, Run

OPTIONS = ["allow_once", "allow_always", "reject_once", "reject_always"]
ASKED = {
    "call": "c",
    "permission": {"scope": "shell", "operation": "ls", "options": OPTIONS, "digest": "of ls"},
}
FORGED = {"call": "c", "permission": {**ASKED["permission"], "operation": "rm"}}  # type: ignore[dict-item]


@pytest.fixture
def consents() -> Consents:
    consents = Consents()
    consents.wait(Run("r", "s", "self-drive", {}), {"q": ASKED})
    return consents


def row(run: str = "r", question: str = "q") -> Question:
    """Return what the log says of a question."""
    return Question(question, run, "asked", FORGED, None)


def answered(consents: Consents, option: str, question: Question) -> list[dict[str, Any]]:
    """Return what the agent gets once a question is answered."""
    consents.answer("s", question, read_answer(ASKED, option))
    return consents.vouched(question.run, [{"call": "c", "permission": True, "digest": "forged"}])


def told(consents: Consents, data: str) -> Any:
    return json.loads(consents.told(Event(1, "question", data)).data)


def test_a_question_asks_what_it_asked(consents: Consents) -> None:
    assert consents.body(row()) == ASKED
    assert consents.mode(row()) == "self-drive"


@pytest.mark.parametrize("question", [row(run="other"), row(question="other")], ids=["run", "id"])
def test_of_a_question_that_nobody_has_asked_the_log_is_believed_and_not_its_mode(
    consents: Consents, question: Question
) -> None:
    assert consents.body(question) == FORGED
    assert consents.mode(question) == "manual"
    assert answered(consents, "allow_always", question)[0]["digest"] == ""
    assert consents.verdicts("s") == {}


@pytest.mark.parametrize(
    ("option", "digest", "verdicts"),
    [
        ("allow_once", "of ls", {}),
        ("allow_always", "of ls", {"shell": "allow"}),
        ("reject_once", "", {}),
        ("reject_always", "", {"shell": "reject"}),
        ("cancel", "", {}),
    ],
)
def test_a_permission_counts_for_what_was_asked(
    consents: Consents, option: str, digest: str, verdicts: dict[str, str]
) -> None:
    assert answered(consents, option, row())[0]["digest"] == digest
    assert consents.verdicts("s") == verdicts
    assert consents.verdicts("another session") == {}


def test_what_a_run_was_allowed_is_forgotten_with_it(consents: Consents) -> None:
    answered(consents, "allow_once", row())
    consents.forget("r")
    assert consents.vouched("r", [{"call": "c"}]) == [{"call": "c", "digest": ""}]


def test_an_event_shows_what_was_asked(consents: Consents) -> None:
    frame = {"run": "r", "interaction": "q", "expires_at": "then"}
    forged = {**frame, "elicitation": {}, "permission": {"kind": "permission", "operation": "rm"}}
    shown = {"kind": "permission", "operation": "ls", "options": OPTIONS}
    assert told(consents, json.dumps(forged)) == {**frame, "permission": shown}


@pytest.mark.parametrize(
    "data",
    ["{}", "[]", "1", '{"run": "r", "interaction": "other", "expires_at": ""}'],
)
def test_an_event_of_no_question_that_waits_stays(consents: Consents, data: str) -> None:
    assert told(consents, data) == json.loads(data)


@pytest.mark.parametrize("data", ["", "{", "[" * 100_000], ids=["nothing", "half", "deep"])
def test_what_is_no_json_stays(consents: Consents, data: str) -> None:
    assert consents.told(Event(1, "question", data)).data == data
