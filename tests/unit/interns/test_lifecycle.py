"""The table of states and operations, as published; and where everything leads."""

from __future__ import annotations

import pytest

from tests.support.intern_operation_table import INTERN_STATES, OPERATION_CASES
from tollhouse.interns.lifecycle import (
    ACTIONS,
    ALL_STATES,
    BOOT_STEPS,
    BOOTING,
    NEXT_STATES,
    RUNNING,
    STOPPED,
    TARGET_STATES,
    has_no_effect,
    progress,
    refusal,
    states_changed_by,
)
from tollhouse.interns.types import BootProgress, DesiredState, InternState, InternStatus, Operation

STATES = [
    InternState(InternStatus(status), DesiredState(desired)) for status, desired in INTERN_STATES
]
STOPPING = InternState(InternStatus.RUNNING, DesiredState.STOPPED)
QUEUED = InternState(InternStatus.QUEUED, DesiredState.RUNNING)
DESTROYING = InternState(InternStatus.DESTROYING, DesiredState.ABSENT)


def test_the_columns_are_all_states() -> None:
    assert set(STATES) == ALL_STATES


@pytest.mark.parametrize(
    ("operation", "state", "answer"), OPERATION_CASES.values(), ids=OPERATION_CASES
)
def test_a_cell_of_the_table(operation: str, state: tuple[str, str], answer: str) -> None:
    status, desired = state
    stands = InternState(InternStatus(status), DesiredState(desired))
    found = refusal(Operation(operation), stands)
    if answer == "ok":
        assert found is None
    else:
        assert found is not None
        assert found.retryable is (answer == "later")


@pytest.mark.parametrize("state", STATES)
def test_what_does_not_run_has_no_daemon(state: InternState) -> None:
    found = refusal(Operation.DAEMON, state)
    assert found is None or found.reason == "intern_not_running"


@pytest.mark.parametrize("operation", list(Operation))
def test_what_is_refused_changes_nothing(operation: Operation) -> None:
    refused = {state for state in ALL_STATES if refusal(operation, state) is not None}
    assert not states_changed_by(operation) & refused


@pytest.mark.parametrize(
    ("operation", "state"),
    [
        (Operation.SUSPEND, STOPPED),
        (Operation.SUSPEND, STOPPING),
        (Operation.DELETE, DESTROYING),
    ],
)
def test_what_was_asked_for_before_is_accepted_and_changes_nothing(
    operation: Operation, state: InternState
) -> None:
    assert refusal(operation, state) is None
    assert has_no_effect(operation, state)
    assert state not in states_changed_by(operation)


@pytest.mark.parametrize("state", STATES)
def test_every_state_that_is_under_way_has_somebody_who_leads_it_on(state: InternState) -> None:
    settled = state.desired is DesiredState.IDLE or state == RUNNING
    assert (state in ACTIONS) is not settled


@pytest.mark.parametrize("state", sorted(ACTIONS, key=str))
def test_every_state_that_is_under_way_ends(state: InternState) -> None:
    seen: set[InternState] = set()
    reached = {state}
    while reached - seen:
        seen |= reached
        reached = set().union(*(NEXT_STATES.get(each, frozenset()) for each in reached))
    settled = {each for each in seen if each not in ACTIONS}
    assert settled


@pytest.mark.parametrize("operation", list(TARGET_STATES))
def test_an_operation_leads_to_a_state_with_a_journey(operation: Operation) -> None:
    assert TARGET_STATES[operation] in ACTIONS


def test_every_transition_is_between_states_that_there_are() -> None:
    assert set(NEXT_STATES) <= ALL_STATES
    assert set().union(*NEXT_STATES.values()) <= ALL_STATES
    assert set(TARGET_STATES.values()) <= ALL_STATES


def test_progress_is_shown_while_an_intern_boots() -> None:
    assert progress(BOOTING, 3) == BootProgress("Starting the sandbox", 3, 4)
    assert progress(BOOTING, len(BOOT_STEPS)) == BootProgress("Waiting for the daemon", 4, 4)


@pytest.mark.parametrize("state", [state for state in STATES if state not in {QUEUED, BOOTING}])
def test_no_progress_is_shown_once_it_has_settled(state: InternState) -> None:
    assert progress(state, 2) is None


def test_no_progress_is_shown_before_its_first_step() -> None:
    assert progress(QUEUED, None) is None
