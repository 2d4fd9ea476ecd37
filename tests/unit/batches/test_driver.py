import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import generation_record
from tests.support.seams.batches import TRIES, BatchStatus, InferenceResult
from tests.unit.batches.driver_fixture import DriverFixture, FakeChunkStore, echo, lines
from tollhouse.kernel.errors import (
    ProviderRateLimited,
    ProviderRefused,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
)

AWAY = ProviderUnavailable("Away.", provider_name="acme")
REFUSED = ProviderRefused("No.", provider_name="acme")


def fails(error: TollhouseError) -> InferenceResult:
    return InferenceResult(error=error)


async def steps(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_no_more_items_are_under_way_than_the_lane_has_places() -> None:
    fixture = DriverFixture(chunks=FakeChunkStore(lines(100)), capacity=5)
    await fixture.run()
    assert fixture.provider.most_under_way == 5
    assert len(fixture.chunks.results) == 100


async def test_an_item_at_which_the_unexpected_happens_costs_itself_alone() -> None:
    def behaviour(text: str) -> InferenceResult:
        if text == "item 3":
            raise RecursionError
        return echo(text)

    fixture = DriverFixture(capacity=1)
    fixture.provider.behaviour = behaviour
    await fixture.run()
    assert fixture.chunks.finished
    failed = {number for number, result in fixture.chunks.results.items() if result["error"]}
    assert failed == {3}
    assert fixture.chunks.results[3]["error"]["error_type"] == "server"


async def test_an_item_that_fails_in_passing_waits_in_the_books_for_its_next_try() -> None:
    fixture = DriverFixture(chunks=FakeChunkStore(lines(1)))
    fixture.provider.behaviour = lambda _: fails(AWAY)
    for failed in range(2, TRIES):
        await fixture.resume()
        assert fixture.chunks.failures_left[0].failed == failed
        assert not fixture.chunks.committed
    await fixture.resume()
    assert fixture.chunks.finished
    assert fixture.chunks.results[0]["error"]["type"] == "api_error"
    assert fixture.chunks.results[0]["error"]["message"] == f"failed after {TRIES} tries: Away."
    assert fixture.provider.asked["item 0"] == TRIES
    assert len(fixture.provider.names["item 0"]) == 1


async def test_what_ends_with_the_gateway_counts_as_no_try() -> None:
    fixture = DriverFixture(capacity=4)
    fixture.provider.behaviour = lambda _: fails(Unavailable("The gateway is stopping."))
    fixture.provider.gate.clear()
    task = fixture.start()
    await steps()
    await fixture.fanout.stop(30)
    fixture.provider.gate.set()
    await task
    assert not fixture.chunks.committed
    assert not fixture.chunks.failures_left


async def test_a_provider_that_asks_for_a_long_pause_gets_it() -> None:
    fixture = DriverFixture()
    slow = ProviderRateLimited("Slow.", provider_name="acme", retry_after=120)
    fixture.provider.behaviour = lambda text: fails(slow) if text == "item 5" else echo(text)
    await fixture.run()
    assert not fixture.chunks.finished
    assert set(fixture.chunks.results) == set(range(8)) - {5}
    assert fixture.chunks.handed_back == fixture.clock.now() + timedelta(seconds=120)


async def test_a_lease_that_no_commit_keeps_is_kept_without_one() -> None:
    fixture = DriverFixture()
    fixture.provider.gate.clear()
    task = fixture.start()
    await steps()
    await fixture.fanout.renew_leases()
    assert fixture.chunks.renewals == 0
    for _ in range(3):
        fixture.clock.advance(10)
        await fixture.fanout.renew_leases()
        await fixture.fanout.renew_leases()
    assert fixture.chunks.renewals == 3
    fixture.provider.gate.set()
    await task
    assert fixture.chunks.finished


async def test_whoever_cannot_keep_the_lease_has_lost_it() -> None:
    fixture = DriverFixture()
    fixture.provider.gate.clear()
    task = fixture.start()
    await steps()
    fixture.clock.advance(10)
    fixture.chunks.lease_lost = True
    await fixture.fanout.renew_leases()
    await task
    assert not fixture.chunks.committed


async def test_whoever_lost_the_lease_commits_nothing_and_begins_nothing() -> None:
    fixture = DriverFixture(chunks=FakeChunkStore(lines(500)), part_seconds=0.001, capacity=2)
    fixture.chunks.lease_lost = True
    await fixture.run()
    assert not fixture.chunks.committed
    assert fixture.chunks.handed_back is None
    assert sum(fixture.provider.asked.values()) < 500


async def test_a_stop_waits_for_what_is_under_way_and_hands_the_rest_back() -> None:
    fixture = DriverFixture(chunks=FakeChunkStore(lines(40)), capacity=4)
    fixture.provider.gate.clear()
    task = fixture.start()
    await steps()
    await fixture.fanout.stop(30)
    fixture.provider.gate.set()
    await task
    assert set(fixture.chunks.results) == {0, 1, 2, 3}
    assert not fixture.chunks.finished
    assert fixture.chunks.handed_back == fixture.clock.now()


async def test_a_stop_that_lasts_ends_what_is_under_way_without_a_result() -> None:
    fixture = DriverFixture(capacity=4)
    fixture.provider.gate.clear()
    task = fixture.start()
    await steps()
    await fixture.fanout.stop(0)
    await task
    assert fixture.provider.under_way == 0
    assert not fixture.chunks.committed
    assert fixture.chunks.handed_back is not None


async def test_an_item_that_is_ended_before_it_began_gives_its_place_back() -> None:
    fixture = DriverFixture(chunks=FakeChunkStore(lines(40)), capacity=4)
    fixture.chunks.lease_lost = True
    task = fixture.start()
    while not fixture.fanout._runs:  # noqa: SLF001
        await asyncio.sleep(0)
    [run] = fixture.fanout._runs  # noqa: SLF001
    while not run._tasks:  # noqa: SLF001
        await asyncio.sleep(0)
    run.drain(0)
    for begun in list(run._tasks):  # noqa: SLF001
        begun.cancel()
    await asyncio.wait_for(task, 30)
    assert fixture.limiter.is_empty


@pytest.mark.parametrize("attempts", range(1, 20))
async def test_however_often_workers_ended_nobody_is_blamed_who_was_not_alone(
    attempts: int,
) -> None:
    fixture = DriverFixture()
    await fixture.run(attempts=attempts)
    assert all(result["error"] is None for result in fixture.chunks.results.values())


async def test_a_chunk_whose_items_are_gone_is_looked_for_again_later() -> None:
    fixture = DriverFixture()
    fixture.chunks.input = None
    await fixture.run()
    assert fixture.chunks.handed_back == fixture.clock.now() + timedelta(minutes=1)


async def test_a_chunk_whose_items_are_gone_is_given_up_with_its_batch() -> None:
    fixture = DriverFixture()
    fixture.chunks.input = b"damaged"
    fixture.chunks.batch = replace(fixture.chunks.batch, status=BatchStatus.FINALIZING)
    await fixture.run()
    assert fixture.chunks.given_up


async def test_what_is_booked_of_a_failed_item_is_booked() -> None:
    fixture = DriverFixture()
    broken = InferenceResult(error=REFUSED, record=generation_record())
    fixture.provider.behaviour = lambda text: broken if text == "item 1" else echo(text)
    await fixture.run()
    [outcome] = [each for each in fixture.chunks.committed if each.number == 1]
    assert outcome.error is not None
    assert outcome.record is not None
