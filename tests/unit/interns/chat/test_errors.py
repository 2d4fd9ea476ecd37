"""What a daemon's refusals are to callers, as published."""

from __future__ import annotations

import pytest

from tollhouse.interns.chat.errors import FAULTS, fault_of_refusal

# status, reason, retryable, Retry-After; of a turn's failure the intern decides
PUBLISHED = {
    (400, "bad_request", False, None),
    (404, "interaction_unknown", False, None),
    (409, "intern_not_ready", True, None),
    (409, "busy", True, 5),
    (409, "interaction_not_pending", False, None),
    (409, "attachment_failed", False, None),
    (410, "attachment_failed", False, None),
    (410, "run_ended", False, None),
    (499, "client_closed_request", False, None),
    (502, "intern_unreachable", True, None),
    (502, "stream_severed", True, None),
    (502, "intern_rejected", False, None),
    (502, "turn_failed", False, None),
    (503, "busy", True, 5),
    (504, "timeout", True, None),
}


def test_the_table_is_the_published_one() -> None:
    assert {(f.status, f.reason, f.retryable, f.retry_after) for f in FAULTS} == PUBLISHED


@pytest.mark.parametrize("answering", [False, True])
@pytest.mark.parametrize(
    ("status", "reason", "seen"),
    [
        (409, "busy", (409, "busy")),
        (409, "attachment_failed", (409, "attachment_failed")),
        (502, "turn_failed", (502, "turn_failed")),
        (503, "busy", (503, "busy")),
        (404, None, (409, "intern_not_ready")),
        (401, None, (502, "intern_unreachable")),
        (401, "anything", (502, "intern_unreachable")),
        (400, None, (502, "intern_rejected")),
        (403, None, (502, "intern_rejected")),
        (404, "not_found", (502, "intern_rejected")),
        (409, None, (502, "intern_rejected")),
        (409, "made up", (502, "intern_rejected")),
        (429, "rate_limited", (502, "intern_rejected")),
        (500, None, (502, "intern_rejected")),
        (503, None, (502, "intern_rejected")),
        (200, None, (502, "intern_rejected")),
        (302, None, (502, "intern_rejected")),
    ],
)
def test_a_daemons_refusal_is_seen_as(
    status: int, reason: str | None, seen: tuple[int, str], *, answering: bool
) -> None:
    assert fault_of_refusal(status, reason, answering=answering)[:2] == seen


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, "bad_request"),
        (404, "interaction_unknown"),
        (409, "interaction_not_pending"),
        (410, "attachment_failed"),
    ],
)
def test_only_an_answer_can_be_wrong_for_the_daemon(status: int, reason: str) -> None:
    assert fault_of_refusal(status, reason, answering=True)[:2] == (status, reason)
    assert fault_of_refusal(status, reason, answering=False)[:2] == (502, "intern_rejected")


@pytest.mark.parametrize("retryable", [True, False])
def test_a_turns_failure_is_retryable_as_the_intern_says(*, retryable: bool) -> None:
    assert fault_of_refusal(502, "turn_failed", retryable=retryable).retryable is retryable
    assert fault_of_refusal(409, "busy", retryable=retryable).retryable is True


def test_an_answer_that_is_too_large_for_the_daemon_is_wrong() -> None:
    assert fault_of_refusal(413, "bad_request", answering=True)[:2] == (400, "bad_request")
    assert fault_of_refusal(413, "bad_request", answering=False)[:2] == (502, "intern_rejected")
