"""Where the states of an intern lead; the guards in SQL are the tables in code."""

from datetime import timedelta

import pytest

from tests.component.interns.intern_fixture import InternFixture
from tests.support.intern_operation_table import INTERN_STATES
from tollhouse.interns import repository
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

ORDERED = sorted(ALL_STATES, key=str)
TARGETS = sorted(set().union(*NEXT_STATES.values()), key=str)


@pytest.mark.parametrize("target", TARGETS, ids=lambda state: f"{state.status}-{state.desired}")
async def test_an_arrival_follows_what_the_table_says(
    interns: InternFixture, target: InternState
) -> None:
    intern = await interns.create()
    held = await interns.lease(intern)
    assert held is not None
    arrived: set[InternState] = set()
    for state in ORDERED:
        await interns.set_state(intern, state)
        async with interns.database.writing() as write:
            if await repository.enter_state(write, held, target, interns.clock.now()) is not None:
                arrived.add(state)
    assert arrived == {state for state, following in NEXT_STATES.items() if target in following}


async def test_all_that_is_under_way_or_runs_waits_for_somebody(interns: InternFixture) -> None:
    intern = await interns.create()
    waiting: set[InternState] = set()
    for state in ORDERED:
        await interns.set_state(intern, state)
        if await interns.claimable() == [intern.id]:
            waiting.add(state)
    assert waiting == {*ACTIONS, RUNNING}


async def test_what_somebody_holds_nobody_else_gets(interns: InternFixture) -> None:
    intern = await interns.create(provision=True)
    first = await interns.lease(intern)
    assert first is not None
    assert await interns.lease(intern) is None
    assert await interns.claimable() == []


async def test_a_lease_that_ran_out_goes_to_the_next_and_is_worth_nothing(
    interns: InternFixture,
) -> None:
    intern = await interns.create(provision=True)
    first = await interns.lease(intern)
    assert first is not None
    interns.clock.advance(31)
    assert await interns.claimable() == [intern.id]
    second = await interns.lease(intern)
    assert second is not None
    assert second.token > first.token
    async with interns.database.writing() as write:
        assert await repository.update(write, first, step=None) is None
        assert await repository.extend_leases(write, [first, second], interns.clock.now()) == {
            intern.id
        }
        assert not await repository.delete(write, first)


async def test_all_leases_are_kept_however_many_there_are(
    interns: InternFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "_LEASES_PER_STATEMENT", 2)
    created = [await interns.create(name=f"intern-{number}", provision=True) for number in range(5)]
    held = [lease for each in created if (lease := await interns.lease(each))]
    until = interns.clock.now() + timedelta(hours=1)
    async with interns.database.writing() as write:
        assert await repository.extend_leases(write, held, until) == {each.id for each in created}
    interns.clock.advance(31)
    assert await interns.claimable() == []


async def test_an_intern_stays_on_the_machine_that_has_its_files(interns: InternFixture) -> None:
    intern = await interns.create(provision=True)
    held = await interns.lease(intern, "here")
    assert held is not None
    assert held.intern.machine == "here"
    async with interns.database.writing() as write:
        await repository.release_lease(write, held)
    assert await interns.claimable("there") == []
    assert await interns.lease(intern, "there") is None
    assert await interns.claimable("here") == [intern.id]


# Where the states of an intern lead; what each allows is asked over HTTP in `test_interns`


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
