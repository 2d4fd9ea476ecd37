"""Where the states of an intern lead; what each allows is asked over HTTP in `test_interns`."""

from __future__ import annotations

import pytest

from tests.support.intern_operation_table import INTERN_STATES
from tollhouse.interns.lifecycle import (
    ACTIONS,
    ALL_STATES,
    NEXT_STATES,
    RUNNING,
    TARGET_STATES,
    refusal,
    states_changed_by,
)
from tollhouse.interns.types import DesiredState, InternState, Operation


@pytest.mark.parametrize("operation", list(Operation))
def test_what_is_refused_changes_nothing(operation: Operation) -> None:
    refused = {state for state in ALL_STATES if refusal(operation, state) is not None}
    assert not states_changed_by(operation) & refused


@pytest.mark.parametrize("state", sorted(ALL_STATES, key=str))
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


def test_every_transition_is_between_the_published_states() -> None:
    assert {(state.status, state.desired) for state in ALL_STATES} == set(INTERN_STATES)
    assert set(NEXT_STATES) <= ALL_STATES
    assert set().union(*NEXT_STATES.values()) <= ALL_STATES
    assert set(TARGET_STATES.values()) <= ALL_STATES
