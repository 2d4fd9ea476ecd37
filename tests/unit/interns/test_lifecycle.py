"""The table of states and operations, as published; and where everything leads."""

from __future__ import annotations

import pytest

from tests.intern_operation_table import INTERN_STATES, OPERATION_CASES
from tollhouse.interns.lifecycle import (
    BEGUN,
    JOURNEYS,
    MOVES,
    NEXT,
    RUNS,
    STATES,
    STEPS,
    STOPPED,
    holds_already,
    movable,
    progress,
    refusal,
)
from tollhouse.interns.types import Desired, Operation, Progress, State, Status

STOPPING = State(Status.RUNNING, Desired.STOPPED)
QUEUED = State(Status.QUEUED, Desired.RUNNING)
DESTROYING = State(Status.DESTROYING, Desired.ABSENT)


def test_the_columns_are_all_states() -> None:
    assert set(INTERN_STATES) == STATES


@pytest.mark.parametrize(
    ("operation", "state", "answer"), OPERATION_CASES.values(), ids=OPERATION_CASES
)
def test_a_cell_of_the_table(operation: Operation, state: State, answer: str) -> None:
    found = refusal(operation, state)
    if answer == "ok":
        assert found is None
    else:
        assert found is not None
        assert found.retryable is (answer == "later")


@pytest.mark.parametrize("state", INTERN_STATES)
def test_what_does_not_run_has_no_daemon(state: State) -> None:
    found = refusal(Operation.DAEMON, state)
    assert found is None or found.reason == "intern_not_running"


@pytest.mark.parametrize("operation", list(Operation))
def test_what_is_refused_changes_nothing(operation: Operation) -> None:
    refused = {state for state in STATES if refusal(operation, state) is not None}
    assert not movable(operation) & refused


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (Operation.SUSPEND, STOPPED),
        (Operation.SUSPEND, STOPPING),
        (Operation.DELETE, DESTROYING),
    ],
)
def test_what_was_asked_for_before_is_accepted_and_changes_nothing(
    operation: Operation, state: State
) -> None:
    assert refusal(operation, state) is None
    assert holds_already(operation, state)
    assert state not in movable(operation)


@pytest.mark.parametrize("state", INTERN_STATES)
def test_every_state_that_is_under_way_has_somebody_who_leads_it_on(state: State) -> None:
    settled = state.desired is Desired.IDLE or state == RUNS
    assert (state in JOURNEYS) is not settled


@pytest.mark.parametrize("state", sorted(JOURNEYS, key=str))
def test_every_state_that_is_under_way_ends(state: State) -> None:
    seen: set[State] = set()
    reached = {state}
    while reached - seen:
        seen |= reached
        reached = set().union(*(NEXT.get(each, frozenset()) for each in reached))
    settled = {each for each in seen if each not in JOURNEYS}
    assert settled


@pytest.mark.parametrize("operation", list(MOVES))
def test_an_operation_leads_to_a_state_with_a_journey(operation: Operation) -> None:
    assert MOVES[operation] in JOURNEYS


def test_every_transition_is_between_states_that_there_are() -> None:
    assert set(NEXT) <= STATES
    assert set().union(*NEXT.values()) <= STATES
    assert set(MOVES.values()) <= STATES


def test_progress_is_shown_while_an_intern_boots() -> None:
    assert progress(BEGUN, 3) == Progress("Starting the sandbox", 3, 4)
    assert progress(BEGUN, len(STEPS)) == Progress("Waiting for the daemon", 4, 4)


@pytest.mark.parametrize(
    "state", [state for state in INTERN_STATES if state not in {QUEUED, BEGUN}]
)
def test_no_progress_is_shown_once_it_has_settled(state: State) -> None:
    assert progress(state, 2) is None


def test_no_progress_is_shown_before_its_first_step() -> None:
    assert progress(QUEUED, None) is None
