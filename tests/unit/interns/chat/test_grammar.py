"""A run's events as a stream: legal whatever they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat_grammar import IN_STREAM, OWN_MODEL, ParsedChat, check_stream
from tollhouse.interns.chat.errors import IN_STREAM as FAULTS
from tollhouse.interns.chat.errors import SEVERED, TIMED_OUT, ChatFault
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


def begun(*, known: bool = True) -> Transcript:
    return Transcript(ID, 1_700_000_000, "session", known=known)


def told(*events: DaemonEvent, fault: ChatFault = SEVERED, known: bool = True) -> ParsedChat:
    """Return what a stream of some events tells; where none is its end, a fault is."""
    transcript = begun(known=known)
    stream = [transcript.begin(), *(transcript.tell(each) for each in events)]
    return check_stream(b"".join([*stream, transcript.fail(fault)]))


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


def test_a_long_title_is_cut() -> None:
    assert len(told(ToolStarted(title="x" * 10_000), DONE).reasoning) == len("$ ") + 200 + 1


def test_nothing_said_is_no_chunk() -> None:
    assert len(told(DaemonTextEvent(text=""), DaemonReasoningEvent(text=""), DONE).models) == 3


def test_a_long_message_of_an_error_is_cut() -> None:
    error = RunError(message="x" * 100_000)
    found = told(RunEnded(outcome="failed", error=error))
    assert found.error is not None
    assert len(found.error["message"]) == 2_000


def test_a_session_is_told_where_the_caller_named_it_or_the_intern_has_begun_in_it() -> None:
    assert told(known=False).session_id is None
    assert told(RunStarted(), known=False).session_id == "session"
    assert told(known=True).session_id == "session"


@pytest.mark.parametrize("reason", FAULTS)
def test_every_fault_has_its_published_code(reason: str) -> None:
    codes, retryable = IN_STREAM[reason]
    assert FAULTS[reason].status in codes
    assert retryable is None or FAULTS[reason].retryable is retryable
    assert told(fault=FAULTS[reason]).reason == reason


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
