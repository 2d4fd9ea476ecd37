"""What is remembered of questions and answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tollhouse.sandbox.daemon.sessions.approvals import Approvals, read_answer
from tollhouse.sandbox.daemon.sessions.log import PendingQuestion, SessionEvent, SessionRun

OPTIONS = ["allow_once", "allow_always", "reject_once", "reject_always"]
ASKED = {
    "call": "c",
    "permission": {"scope": "shell", "operation": "ls", "options": OPTIONS, "digest": "of ls"},
}
FORGED = {"call": "c", "permission": {**ASKED["permission"], "operation": "rm"}}  # type: ignore[dict-item]


@pytest.fixture
def approvals() -> Approvals:
    approvals = Approvals()
    approvals.wait(SessionRun("r", "s", "self-drive", {}), {"q": ASKED})
    return approvals


def row(run: str = "r", question: str = "q") -> PendingQuestion:
    """Return what the log says of a question."""
    return PendingQuestion(question, run, "asked", FORGED, None)


def answered(approvals: Approvals, option: str, question: PendingQuestion) -> list[dict[str, Any]]:
    """Return what the agent gets once a question is answered."""
    approvals.answer("s", question, read_answer(ASKED, option))
    return approvals.with_digests(
        question.run, [{"call": "c", "permission": True, "digest": "forged"}]
    )


def told(approvals: Approvals, data: str) -> Any:
    return json.loads(approvals.restore_question(SessionEvent(1, "question", data)).data)


def test_a_question_asks_what_it_asked(approvals: Approvals) -> None:
    assert approvals.body(row()) == ASKED
    assert approvals.mode(row()) == "self-drive"


@pytest.mark.parametrize("question", [row(run="other"), row(question="other")], ids=["run", "id"])
def test_of_a_question_that_nobody_has_asked_the_log_is_believed_and_not_its_mode(
    approvals: Approvals, question: PendingQuestion
) -> None:
    assert approvals.body(question) == FORGED
    assert approvals.mode(question) == "manual"
    assert answered(approvals, "allow_always", question)[0]["digest"] == ""
    assert approvals.verdicts("s") == {}


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
    approvals: Approvals, option: str, digest: str, verdicts: dict[str, str]
) -> None:
    assert answered(approvals, option, row())[0]["digest"] == digest
    assert approvals.verdicts("s") == verdicts
    assert approvals.verdicts("another session") == {}


def test_what_a_run_was_allowed_is_forgotten_with_it(approvals: Approvals) -> None:
    answered(approvals, "allow_once", row())
    approvals.forget("r")
    assert approvals.with_digests("r", [{"call": "c"}]) == [{"call": "c", "digest": ""}]


def test_an_event_shows_what_was_asked(approvals: Approvals) -> None:
    frame = {"run": "r", "interaction": "q", "expires_at": "then"}
    forged = {**frame, "elicitation": {}, "permission": {"kind": "permission", "operation": "rm"}}
    shown = {"kind": "permission", "operation": "ls", "options": OPTIONS}
    assert told(approvals, json.dumps(forged)) == {**frame, "permission": shown}


@pytest.mark.parametrize(
    "data",
    ["{}", "[]", "1", '{"run": "r", "interaction": "other", "expires_at": ""}'],
)
def test_an_event_of_no_question_that_waits_stays(approvals: Approvals, data: str) -> None:
    assert told(approvals, data) == json.loads(data)
