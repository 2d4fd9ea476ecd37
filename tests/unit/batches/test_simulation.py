"""What one batch's trouble costs the others, and what a provider's costs anybody.

Hours of several accounts, models and providers, in virtual time.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.seams.batches import TRIES
from tests.unit.batches.scheduler_simulation import ReceivedRequest, SchedulerSimulation
from tests.unit.batches.virtual_time import run_virtually
from tollhouse.kernel.errors import ProviderRateLimited, ProviderUnavailable, Unavailable

PROVIDERS = {"acme": ["acme/large", "acme/small"], "other": ["other/large"]}
BROKEN = ProviderUnavailable("Broken.", provider_name="acme")
BROKEN.provider_status = 500
NO_VERDICT = Unavailable("The guardrail gave no verdict.")
DAY = 24 * 3600.0
Scenario = Callable[[], Coroutine[Any, Any, None]]


def virtual(scenario: Scenario) -> Callable[[], None]:
    """Make a test of a scenario."""

    def test() -> None:
        run_virtually(scenario())

    test.__name__, test.__doc__ = scenario.__name__, scenario.__doc__
    return test


def always_broken(
    batch: str, *items: int
) -> Callable[[ReceivedRequest], ProviderUnavailable | None]:
    wanted = set(items)
    return lambda asked: BROKEN if asked.batch == batch and asked.item in wanted else None


@pytest.mark.parametrize(
    "broken",
    [{0}, {17}, {399}, {398, 399}, {0, 1, 2}, {10, 150, 300}, {*range(0, 400, 40)}],
    ids=str,
)
@pytest.mark.parametrize("latency", [0.05, 1.0])
def test_items_that_always_fail_cost_themselves_alone_and_end_seconds_after_the_others(
    broken: set[int], latency: float
) -> None:
    async def scenario() -> None:
        simulation = SchedulerSimulation(PROVIDERS, latency=latency)
        one = simulation.submit("account", "acme/large", 400)
        simulation.behave = always_broken(one.batch.id, *broken)
        await simulation.run(DAY)
        assert one.failed == broken
        assert {one.tries[item] for item in broken} == {TRIES}
        assert all(count == 1 for item, count in one.tries.items() if item not in broken)
        [message] = {json.loads(one.results[item].line)["error"]["message"] for item in broken}
        assert message == f"failed after {TRIES} tries: 500 Broken."
        others_ended = max(at for at in one.begun[: 400 - len(broken)]) + latency
        assert (one.ended_at or DAY) < others_ended + 15

    run_virtually(scenario())


@virtual
async def test_alone_it_is_tried_as_often_and_ends_its_batch_within_twenty_minutes() -> None:
    simulation = SchedulerSimulation(PROVIDERS)
    one = simulation.submit("account", "acme/large", 1)
    simulation.behave = always_broken(one.batch.id, 0)
    await simulation.run(DAY)
    assert one.tries[0] == TRIES
    assert one.ended_at is not None
    assert 600 < one.ended_at < 1200


@virtual
async def test_nobody_waits_for_batches_whose_items_all_fail() -> None:
    simulation = SchedulerSimulation(PROVIDERS)
    bad = {simulation.submit("bad", "acme/large", 700).batch.id for _ in range(10)}
    simulation.behave = lambda asked: BROKEN if asked.batch in bad else None
    models = ["acme/large", "acme/small", "other/large"]
    good = [simulation.submit("good", model, 3) for model in models]
    own = [simulation.submit("bad", model, 3) for model in models]
    await simulation.run(120)
    assert [one.failed for one in good + own] == [set()] * 6
    assert max(one.ended_at or DAY for one in good) < 5
    assert max(one.ended_at or DAY for one in own) < 60


@virtual
async def test_a_provider_that_is_down_for_ten_minutes_fails_nobodys_items() -> None:
    simulation = SchedulerSimulation(PROVIDERS)
    runs = [simulation.submit(f"account-{at % 3}", "acme/large", 300) for at in range(6)]
    runs += [
        simulation.submit("alone", "acme/small", 1),
        simulation.submit("alone", "acme/small", 2),
    ]
    simulation.behave = lambda asked: BROKEN if 20 <= asked.at < 620 else None
    await simulation.run(DAY)
    assert [one.failed for one in runs] == [set()] * 8
    assert max(one.ended_at or DAY for one in runs) < 620 + 120


@given(
    items=st.sampled_from([1, 2, 3, 8, 60, 600]),
    latency=st.sampled_from([0.1, 1.0, 20.0]),
    begins=st.floats(0, 40),
    seconds=st.floats(1, 600),
)
@example(items=2, latency=20.0, begins=0.5, seconds=600)
@settings(max_examples=15, deadline=None)
def test_no_outage_of_ten_minutes_fails_an_item_unless_it_is_about_the_last(
    items: int, latency: float, begins: float, seconds: float
) -> None:
    async def scenario() -> None:
        simulation = SchedulerSimulation(PROVIDERS, latency=latency)
        one = simulation.submit("account", "acme/large", items)
        felt: set[int] = set()

        def behave(asked: ReceivedRequest) -> ProviderUnavailable | None:
            if not begins <= asked.at < begins + seconds:
                return None
            felt.add(asked.item)
            return BROKEN

        simulation.behave = behave
        await simulation.run(7200)
        assert len(one.results) == items
        # Where others were answered, one or two items that fail are taken to be the cause.
        assert not one.failed or (len(felt) < 3 and one.failed == felt != {*range(items)})
        assert max(one.tries.values()) <= TRIES

    run_virtually(scenario())


@given(
    poisoned=st.sets(st.integers(0, 59), max_size=10),
    flaky=st.integers(0, 3),
    others=st.integers(0, 3),
)
@example(poisoned={1, 13, 14, 16, 19, 28, 32, 35, 47, 55}, flaky=3, others=3)
@settings(max_examples=15, deadline=None)
def test_whatever_fails_every_item_ends_and_none_is_tried_too_often(
    poisoned: set[int], flaky: int, others: int
) -> None:
    async def scenario() -> None:
        simulation = SchedulerSimulation(PROVIDERS)
        one = simulation.submit("account", "acme/large", 60)
        beside = [simulation.submit(f"account-{at}", "acme/large", 40) for at in range(others)]

        def behave(asked: ReceivedRequest) -> ProviderUnavailable | None:
            found = simulation.batches[asked.batch]
            if asked.batch == one.batch.id and asked.item in poisoned:
                return BROKEN
            return BROKEN if found.tries[asked.item] <= flaky and asked.item % 7 == 0 else None

        simulation.behave = behave
        await simulation.run(3600)
        assert one.failed == poisoned
        assert len(one.results) == 60
        assert max(one.tries.values()) <= TRIES
        assert [each.failed for each in beside] == [set()] * others
        # At last nobody is answered beside them: one item a minute is tried, and ten take longer
        # than the twenty minutes of one.
        assert all((each.ended_at or DAY) < 2000 for each in [one, *beside])

    run_virtually(scenario())


@virtual
async def test_a_provider_that_takes_few_requests_a_second_fails_nobodys_items() -> None:
    simulation = SchedulerSimulation(PROVIDERS, latency=0.5)
    answered: list[float] = []

    def behave(asked: ReceivedRequest) -> ProviderRateLimited | None:
        if len([at for at in answered[-5:] if at > asked.at - 1]) >= 5:
            return ProviderRateLimited("Slow.", provider_name="acme")
        answered.append(asked.at)
        return None

    simulation.behave = behave
    runs = [simulation.submit(f"account-{at}", "acme/large", 100) for at in range(3)]
    await simulation.run(1200)
    assert [one.failed for one in runs] == [set()] * 3
    assert max(one.ended_at or DAY for one in runs) < 1200


@virtual
async def test_nothing_is_asked_before_a_retry_after_is_over() -> None:
    simulation = SchedulerSimulation(PROVIDERS)
    one = simulation.submit("account", "acme/large", 30)
    slow = ProviderRateLimited("Slow.", provider_name="acme", retry_after=120)
    simulation.behave = lambda asked: slow if asked.at < 60 else None
    other = simulation.submit("account", "acme/small", 30)
    await simulation.run(DAY)
    assert not one.failed
    assert not [at for at in one.begun if 1 < at < 120]
    assert other.ended_at is not None


@virtual
async def test_an_accounts_guardrail_that_is_down_keeps_nobody_else_waiting() -> None:
    simulation = SchedulerSimulation(PROVIDERS)
    guarded = simulation.submit("guarded", "acme/large", 200)
    simulation.behave = lambda asked: (
        NO_VERDICT if asked.batch == guarded.batch.id and asked.at < 600 else None
    )
    other = simulation.submit("other", "acme/large", 200)
    await simulation.run(DAY)
    assert not guarded.failed
    assert not other.failed
    assert other.ended_at is not None
    assert guarded.ended_at is not None
    assert other.ended_at < 200
    assert guarded.ended_at < 600 + 16 * 60


@virtual
async def test_an_account_with_many_batches_leaves_others_their_share() -> None:
    simulation = SchedulerSimulation(PROVIDERS, latency=5.0, places=8)
    for _ in range(20):
        simulation.submit("large", "acme/large", 500)
    small = [simulation.submit("small", model, 8) for model in ("acme/large", "other/large")]
    await simulation.run(60)
    assert [one.failed for one in small] == [set(), set()]
    assert max(one.ended_at or DAY for one in small) < 30


@pytest.mark.soak
@virtual
async def test_an_outage_fails_none_of_fifty_thousand_items() -> None:
    simulation = SchedulerSimulation(PROVIDERS)
    one = simulation.submit("account", "acme/large", 50_000)
    simulation.behave = lambda asked: BROKEN if 60 <= asked.at < 660 else None
    await simulation.run(DAY)
    assert not one.failed
    assert len(one.results) == 50_000
