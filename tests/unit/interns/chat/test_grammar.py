"""A run's events as a stream: legal whatever they are."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat_grammar import IN_STREAM, OWN_MODEL, ParsedChat, check_stream
from tollhouse.interns.chat.errors import (
    IN_STREAM as FAULTS,
)
from tollhouse.interns.chat.errors import (
    SEVERED,
    TIMED_OUT,
    ChatFault,
)
from tollhouse.interns.chat.events import (
    DaemonEvent,
    DaemonReasoningEvent,
    DaemonRunUsage,
    DaemonTextEvent,
    ElicitationField,
    ElicitationRequest,
    PermissionRequest,
    QuestionEvent,
    RunEnded,
    RunError,
    RunStarted,
    ToolStarted,
)
from tollhouse.interns.chat.transcript import KEEP_ALIVE, Transcript

ID = "chatcmpl-00000000-0000-4000-8000-000000000001"
USED = DaemonRunUsage(input_tokens=3, cached_tokens=1, output_tokens=2, cost="0.000005")
DONE = RunEnded(outcome="completed", usage=USED)
ASKED = QuestionEvent(
    interaction="i-1", permission=PermissionRequest(operation="ls", options=["allow_once"])
)


def begun(*, known: bool = True) -> Transcript:
    return Transcript(ID, 1_700_000_000, "session", known=known)


def told(*events: DaemonEvent, fault: ChatFault = SEVERED, known: bool = True) -> ParsedChat:
    """Return what a stream of some events tells; where none is its end, a fault is."""
    transcript = begun(known=known)
    stream = [transcript.begin(), *(transcript.tell(each) for each in events)]
    return check_stream(b"".join([*stream, transcript.fail(fault)]))


def test_a_run_that_completes() -> None:
    found = told(
        RunStarted(model="a/b"), DaemonTextEvent(text="Hel"), DaemonTextEvent(text="lo"), DONE
    )
    assert (found.content, found.finish, found.session_id) == ("Hello", "stop", "session")
    assert found.usage == {
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "total_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 1},
        "cost": 0.000005,
    }


def test_a_cost_that_nobody_told_is_left_out() -> None:
    used = DaemonRunUsage(input_tokens=1, output_tokens=1)
    assert "cost" not in (told(RunEnded(outcome="completed", usage=used)).usage or {"cost": 1})


def test_chunks_name_the_model_from_its_report_on() -> None:
    found = told(
        RunStarted(model="a/b"),
        DaemonTextEvent(text="x"),
        DaemonTextEvent(text="y", model="c/d"),
        DONE,
    )
    assert found.models == [OWN_MODEL, "a/b", "c/d", "c/d", "c/d"]


@pytest.mark.parametrize("fault", [SEVERED, TIMED_OUT])
def test_the_apis_own_chunks_name_no_model_of_the_intern(fault: ChatFault) -> None:
    found = told(RunStarted(model="a/b"), DaemonTextEvent(text="x"), fault=fault)
    assert found.models == [OWN_MODEL, "a/b", OWN_MODEL, OWN_MODEL]


def test_the_end_of_a_failed_turn_names_the_model_that_failed() -> None:
    assert told(RunStarted(model="a/b"), RunEnded(outcome="failed")).models[-2:] == ["a/b"] * 2


def test_a_permission_is_asked_for() -> None:
    found = told(DaemonTextEvent(text="x"), ASKED)
    assert found.finish == "tool_calls"
    assert found.call is not None
    assert found.call["id"] == "i-1"
    assert found.asked == {"kind": "permission", "operation": "ls", "options": ["allow_once"]}
    assert (found.usage, found.session_id) == (None, "session")


def test_something_is_asked_for() -> None:
    fields = [
        ElicitationField(name="a", type="string", required=True, options=["x"]),
        ElicitationField(name="b", type="number", required=False),
    ]
    asked = QuestionEvent(
        interaction="i", elicitation=ElicitationRequest(message="Which?", fields=fields)
    )
    assert told(asked).asked == {
        "kind": "elicitation",
        "message": "Which?",
        "fields": [
            {"name": "a", "type": "string", "required": True, "options": ["x"]},
            {"name": "b", "type": "number", "required": False},
        ],
    }


def test_tools_are_told_as_lines_of_reasoning() -> None:
    found = told(
        DaemonReasoningEvent(text="I look."),
        ToolStarted(title="ls\n  -l"),
        ToolStarted(title="cat x"),
        DaemonTextEvent(text="Done"),
        DONE,
    )
    assert found.reasoning == "I look.\n$ ls -l\n$ cat x\n"


def test_a_long_title_is_cut() -> None:
    assert len(told(ToolStarted(title="x" * 10_000), DONE).reasoning) == len("$ ") + 200 + 1


def test_nothing_said_is_no_chunk() -> None:
    assert len(told(DaemonTextEvent(text=""), DaemonReasoningEvent(text=""), DONE).models) == 3


@pytest.mark.parametrize("retryable", [True, False])
def test_a_failed_turn_is_retryable_as_the_intern_says(*, retryable: bool) -> None:
    error = RunError(reason="turn_failed", message="Overloaded.", retryable=retryable)
    found = told(RunEnded(outcome="failed", usage=USED, error=error))
    assert found.error == {
        "code": 502,
        "message": "Overloaded.",
        "metadata": {"reason": "turn_failed", "retryable": retryable},
    }
    assert found.usage is not None


@pytest.mark.parametrize("reason", [None, "made up", "bad_request", "intern_rejected", "not_found"])
def test_a_reason_that_no_stream_has_is_the_turns_failure(reason: str | None) -> None:
    found = told(RunEnded(outcome="failed", error=RunError(reason=reason, message="x")))
    assert found.reason == "turn_failed"


def test_a_run_that_a_kill_has_ended_is_severed() -> None:
    error = RunError(reason="stream_severed", message="x", retryable=False)
    found = told(RunEnded(outcome="failed", error=error))
    assert found.error is not None
    assert found.error["metadata"] == {"reason": "stream_severed", "retryable": True}


@pytest.mark.parametrize("error", [None, RunError(reason="anything", retryable=True)])
def test_a_run_that_was_cancelled_has_ended(error: RunError | None) -> None:
    found = told(RunEnded(outcome="cancelled", error=error))
    assert found.error is not None
    assert found.error["code"] == 410
    assert found.error["metadata"] == {"reason": "run_ended", "retryable": False}


def test_a_long_message_of_an_error_is_cut() -> None:
    error = RunError(message="x" * 100_000)
    found = told(RunEnded(outcome="failed", error=error))
    assert found.error is not None
    assert len(found.error["message"]) == 2_000


def test_a_session_of_ours_is_told_once_the_intern_has_begun_in_it() -> None:
    assert told(known=False).session_id is None
    assert told(RunStarted(), known=False).session_id == "session"


def test_a_session_that_the_caller_named_is_told_in_any_case() -> None:
    assert told(known=True).session_id == "session"


@pytest.mark.parametrize("end", [DONE, ASKED, RunEnded(outcome="cancelled")])
def test_what_follows_an_end_is_not_told(end: DaemonEvent) -> None:
    transcript = begun()
    stream = transcript.begin() + transcript.tell(end)
    check_stream(stream)
    assert transcript.tell(DaemonTextEvent(text="more")) == transcript.tell(DONE) == b""
    assert transcript.fail(SEVERED) == b""


@pytest.mark.parametrize("reason", FAULTS)
def test_every_fault_has_its_published_code(reason: str) -> None:
    codes, retryable = IN_STREAM[reason]
    assert FAULTS[reason].status in codes
    assert retryable is None or FAULTS[reason].retryable is retryable
    assert told(fault=FAULTS[reason]).reason == reason


def test_no_published_reason_is_missing() -> None:
    assert set(FAULTS) == set(IN_STREAM)


TEXTS = st.text(max_size=20)
MODELS = st.none() | st.text(min_size=1, max_size=10)
QUESTIONS = st.builds(
    QuestionEvent,
    model=MODELS,
    interaction=st.text(min_size=1, max_size=128),
    permission=st.builds(
        PermissionRequest,
        operation=st.none() | TEXTS,
        options=st.lists(
            st.sampled_from(["allow_once", "allow_always", "reject_once", "reject_always"]),
            unique=True,
        ),
    ),
) | st.builds(
    QuestionEvent,
    interaction=st.text(min_size=1, max_size=128),
    elicitation=st.builds(
        ElicitationRequest,
        message=TEXTS,
        fields=st.lists(
            st.builds(ElicitationField, name=TEXTS, type=TEXTS, required=st.booleans())
        ),
    ),
)
COUNTS = st.integers(0, 2**53)
USED_ANYTHING = st.builds(
    DaemonRunUsage,
    input_tokens=COUNTS,
    cached_tokens=COUNTS,
    output_tokens=COUNTS,
    cost=st.none() | st.from_regex(r"[0-9]{1,12}(\.[0-9]{1,18})?", fullmatch=True),
)
ENDS = st.builds(
    RunEnded,
    outcome=st.sampled_from(["completed", "failed", "cancelled"]),
    usage=st.none() | USED_ANYTHING,
    error=st.none()
    | st.builds(
        RunError,
        reason=st.none() | TEXTS | st.sampled_from(sorted(IN_STREAM)),
        message=st.none() | TEXTS,
        retryable=st.booleans(),
    ),
)
EVENTS = st.lists(
    st.builds(RunStarted, model=MODELS)
    | st.builds(DaemonTextEvent, text=TEXTS, model=MODELS)
    | st.builds(DaemonReasoningEvent, text=TEXTS)
    | st.builds(ToolStarted, title=TEXTS)
    | QUESTIONS
    | ENDS,
    max_size=12,
)


@given(EVENTS, st.sampled_from(sorted(FAULTS)), st.booleans(), st.integers(0, 12))
def test_any_events_make_a_legal_stream(
    events: list[DaemonEvent],
    reason: str,
    known: bool,  # noqa: FBT001 - drawn
    silence: int,
) -> None:
    transcript = begun(known=known)
    written = [transcript.begin(), *(transcript.tell(each) for each in events)]
    if transcript.outcome is None:
        written.insert(silence, KEEP_ALIVE)
    written.append(transcript.fail(FAULTS[reason]))
    found = check_stream(b"".join(written))
    if found.call is not None:
        json.loads(found.call["function"]["arguments"])
