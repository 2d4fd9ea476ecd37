import asyncio
import json
from dataclasses import replace
from datetime import timedelta

import pytest

from tests.unit.batches.fanout_world import ITEMS, FakeBooks, World, echo, lines
from tollhouse.batches.books import CAREFUL_FROM, MOST_CRASHES
from tollhouse.batches.chunks import item_line
from tollhouse.batches.drivers.fanout import SINGLES
from tollhouse.batches.ports import Answer
from tollhouse.batches.retries import TRIES
from tollhouse.batches.types import Status
from tollhouse.kernel.errors import (
    ProviderRateLimited,
    ProviderRefused,
    ProviderUnavailable,
    TollhouseError,
    Unavailable,
)
from tollhouse.storage.blobs.port import BlobsUnavailable
from tollhouse.testing.builders import generation_record

AWAY = ProviderUnavailable("Away.", provider_name="acme")
REFUSED = ProviderRefused("No.", provider_name="acme")


def fails(error: TollhouseError) -> Answer:
    return Answer(error=error)


async def steps(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_every_item_gets_the_answer_to_what_it_asked() -> None:
    world = World()
    await world.run()
    assert world.books.finished
    said = {
        number: (result["custom_id"], result["response"]["body"]["said"])
        for number, result in world.books.results.items()
    }
    assert said == {at: (f"c-{at}", f"item {at}") for at in range(ITEMS)}


async def test_a_result_and_its_charge_come_together_and_are_named_alike() -> None:
    world = World()
    await world.run()
    for outcome in world.books.committed:
        assert outcome.record is not None
        assert outcome.record.id == world.name_of(outcome.number)
        assert json.loads(outcome.line)["response"]["request_id"] == outcome.record.id


async def test_items_that_have_their_result_are_not_asked_again() -> None:
    world = World()
    await world.run(0, 1, 2, 7)
    assert set(world.books.results) == {3, 4, 5, 6, 8, 9}
    assert "item 7" not in world.provider.asked
    assert world.books.finished


async def test_no_more_items_are_under_way_than_the_lane_has_places() -> None:
    world = World(books=FakeBooks(lines(100)), places=5)
    await world.run()
    assert world.provider.most_under_way == 5
    assert len(world.books.results) == 100


async def test_an_item_that_cannot_be_read_costs_itself_alone() -> None:
    items = lines()
    items[4] = item_line("bad", b'{"messages": 5}')
    world = World(books=FakeBooks(items))
    await world.run()
    assert world.books.finished
    results = world.books.results
    bad = results.pop(4)
    assert (bad["response"], bad["error"]["param"]) == (None, "messages")
    assert all(result["error"] is None for result in results.values())
    unrun = [each for each in world.books.committed if each.error and each.record is None]
    assert [each.number for each in unrun] == [4]


async def test_an_item_at_which_the_unexpected_happens_costs_itself_alone() -> None:
    def behaviour(text: str) -> Answer:
        if text == "item 3":
            raise RecursionError
        return echo(text)

    world = World(places=1)
    world.provider.behaviour = behaviour
    await world.run()
    assert world.books.finished
    failed = {number for number, result in world.books.results.items() if result["error"]}
    assert failed == {3}
    assert world.books.results[3]["error"]["error_type"] == "server"


async def test_what_a_provider_refuses_is_not_asked_again() -> None:
    world = World()
    world.provider.behaviour = lambda text: fails(REFUSED) if text == "item 3" else echo(text)
    await world.run()
    assert world.books.results[3]["error"]["message"] == "No."
    assert world.provider.asked["item 3"] == 1


async def test_an_item_that_fails_in_passing_waits_in_the_books_for_its_next_try() -> None:
    world = World(books=FakeBooks(lines(1)))
    world.provider.behaviour = lambda _: fails(AWAY)
    for failed in range(2, TRIES):
        await world.run_on()
        assert world.books.failures_left[0].failed == failed
        assert not world.books.committed
    await world.run_on()
    assert world.books.finished
    assert world.books.results[0]["error"]["type"] == "api_error"
    assert world.provider.asked["item 0"] == TRIES
    assert len(world.provider.names["item 0"]) == 1


async def test_what_ends_with_the_gateway_counts_as_no_try() -> None:
    world = World(places=4)
    world.provider.behaviour = lambda _: fails(Unavailable("The gateway is stopping."))
    world.provider.gate.clear()
    task = world.start()
    await steps()
    await world.fanout.stop(30)
    world.provider.gate.set()
    await task
    assert not world.books.committed
    assert not world.books.failures_left


async def test_a_provider_that_asks_for_a_long_pause_gets_it() -> None:
    world = World()
    slow = ProviderRateLimited("Slow.", provider_name="acme", retry_after=120)
    world.provider.behaviour = lambda text: fails(slow) if text == "item 5" else echo(text)
    await world.run()
    assert not world.books.finished
    assert set(world.books.results) == set(range(8)) - {5}
    assert world.books.handed_back == world.clock.now() + timedelta(seconds=120)


async def test_results_are_committed_while_other_items_are_under_way() -> None:
    world = World(part_seconds=0.001)
    stuck = asyncio.Event()
    ask = world.provider.ask

    async def asked(call, name):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202
        if b"item 9" in call.request.body:
            await stuck.wait()
        return await ask(call, name)

    world.provider.ask = asked  # type: ignore[method-assign]
    task = world.start()
    while len(world.books.committed) < ITEMS - 1:
        await asyncio.sleep(0.001)
    assert not task.done()
    stuck.set()
    await task
    assert world.books.finished


async def test_what_cannot_be_stored_now_is_stored_later() -> None:
    world = World()
    world.books.failures = [BlobsUnavailable("full"), ConnectionError()]
    await world.run()
    assert len(world.books.results) == ITEMS
    assert world.books.finished


async def test_a_lease_that_no_commit_keeps_is_kept_without_one() -> None:
    world = World()
    world.provider.gate.clear()
    task = world.start()
    await steps()
    await world.fanout.keep()
    assert world.books.kept == 0
    for _ in range(3):
        world.clock.advance(10)
        await world.fanout.keep()
        await world.fanout.keep()
    assert world.books.kept == 3
    world.provider.gate.set()
    await task
    assert world.books.finished


async def test_whoever_cannot_keep_the_lease_has_lost_it() -> None:
    world = World()
    world.provider.gate.clear()
    task = world.start()
    await steps()
    world.clock.advance(10)
    world.books.lost = True
    await world.fanout.keep()
    await task
    assert not world.books.committed


async def test_whoever_lost_the_lease_commits_nothing_and_begins_nothing() -> None:
    world = World(books=FakeBooks(lines(500)), part_seconds=0.001, places=2)
    world.books.lost = True
    await world.run()
    assert not world.books.committed
    assert world.books.handed_back is None
    assert sum(world.provider.asked.values()) < 500


@pytest.mark.parametrize(
    ("status", "word"),
    [(Status.CANCELLING, "batch_cancelled"), (Status.FINALIZING, "batch_expired")],
)
async def test_a_batch_that_is_being_closed_asks_nobody(status: Status, word: str) -> None:
    world = World()
    world.books.batch = replace(world.books.batch, status=status)
    await world.run(0, 1)
    assert not world.provider.asked
    assert world.books.finished
    assert {result["error"]["type"] for result in world.books.results.values()} == {word}
    assert set(world.books.results) == set(range(2, ITEMS))


async def test_a_cancellation_keeps_what_is_under_way_and_begins_nothing_more() -> None:
    world = World(books=FakeBooks(lines(40)), places=4)
    world.provider.gate.clear()
    task = world.start()
    await steps()
    world.books.batch = replace(world.books.batch, status=Status.CANCELLING)
    world.fanout.notice(world.books.batch.id)
    while not world.fanout._runs.copy().pop()._halted.is_set():  # noqa: SLF001
        await asyncio.sleep(0.001)
    world.provider.gate.set()
    await task
    answered = [at for at, result in world.books.results.items() if result["error"] is None]
    assert answered == [0, 1, 2, 3]
    assert len(world.books.results) == 40
    assert world.books.finished


async def test_a_stop_waits_for_what_is_under_way_and_hands_the_rest_back() -> None:
    world = World(books=FakeBooks(lines(40)), places=4)
    world.provider.gate.clear()
    task = world.start()
    await steps()
    await world.fanout.stop(30)
    world.provider.gate.set()
    await task
    assert set(world.books.results) == {0, 1, 2, 3}
    assert not world.books.finished
    assert world.books.handed_back == world.clock.now()


async def test_a_stop_that_lasts_ends_what_is_under_way_without_a_result() -> None:
    world = World(places=4)
    world.provider.gate.clear()
    task = world.start()
    await steps()
    await world.fanout.stop(0)
    await task
    assert world.provider.under_way == 0
    assert not world.books.committed
    assert world.books.handed_back is not None


async def test_an_item_that_is_ended_before_it_began_gives_its_place_back() -> None:
    world = World(books=FakeBooks(lines(40)), places=4)
    world.books.lost = True
    task = world.start()
    while not world.fanout._runs:  # noqa: SLF001
        await asyncio.sleep(0)
    [run] = world.fanout._runs  # noqa: SLF001
    while not run._tasks:  # noqa: SLF001
        await asyncio.sleep(0)
    run.halt(0)
    for begun in list(run._tasks):  # noqa: SLF001
        begun.cancel()
    await asyncio.wait_for(task, 30)
    assert world.lane.is_empty


async def test_a_chunk_that_ended_its_workers_is_run_item_by_item() -> None:
    world = World()
    await world.run(attempts=CAREFUL_FROM)
    assert world.provider.most_under_way == 1
    assert world.books.suspects == list(range(ITEMS))
    assert world.books.finished


async def test_only_as_many_items_are_run_alone_as_may_have_been_under_way() -> None:
    world = World(books=FakeBooks(lines(SINGLES + 50)))
    await world.run(attempts=CAREFUL_FROM)
    assert world.books.suspects == list(range(SINGLES))
    assert world.provider.most_under_way > 1
    assert world.books.finished


async def test_an_item_that_is_run_alone_has_no_other_beside_it() -> None:
    world = World(places=4)
    world.provider.gate.clear()
    others = world.start()
    await steps()
    assert world.provider.under_way == 4
    careful = world.start(attempts=CAREFUL_FROM)
    await steps()
    assert (world.provider.under_way, world.books.suspects) == (4, [])
    world.provider.gate.set()
    await asyncio.wait_for(asyncio.gather(others, careful), 30)
    assert world.books.suspects == list(range(ITEMS))


async def test_an_item_is_no_suspect_before_it_runs_and_after_it_failed_in_passing() -> None:
    world = World(books=FakeBooks(lines(2)))
    world.provider.behaviour = lambda text: fails(AWAY) if text == "item 0" else echo(text)
    await world.run(attempts=CAREFUL_FROM, ticking=True)
    assert world.books.suspects == [0, None, 1]
    waiting = World(books=FakeBooks(lines(2)))
    waiting.lane.limited(60)
    await waiting.run(attempts=CAREFUL_FROM)
    assert waiting.books.suspects == []


async def test_the_item_that_was_alone_when_its_worker_ended_runs_alone_after_all_others() -> None:
    world = World()
    await world.run(crashes={2: 1})
    assert world.provider.most_under_way > 1
    assert list(world.provider.asked)[-1] == "item 2"
    assert world.books.suspects == [2]
    assert world.books.finished


async def test_the_item_that_was_alone_when_workers_ended_three_times_is_given_up() -> None:
    world = World()
    await world.run(0, 1, crashes={2: MOST_CRASHES, 3: MOST_CRASHES - 1})
    assert "item 2" not in world.provider.asked
    assert world.books.results[2]["error"]["error_type"] == "server"
    assert all(world.books.results[at]["error"] is None for at in range(3, ITEMS))


@pytest.mark.parametrize("attempts", range(1, 20))
async def test_however_often_workers_ended_nobody_is_blamed_who_was_not_alone(
    attempts: int,
) -> None:
    world = World()
    await world.run(attempts=attempts)
    assert all(result["error"] is None for result in world.books.results.values())


async def test_a_chunk_whose_items_cannot_be_read_now_is_handed_back() -> None:
    world = World()
    world.books.input = BlobsUnavailable("away")
    await world.run(attempts=CAREFUL_FROM - 1)
    assert world.books.handed_back is not None
    assert world.books.handed_back > world.clock.now()


async def test_a_chunk_whose_items_are_gone_is_looked_for_again_later() -> None:
    world = World()
    world.books.input = None
    await world.run()
    assert world.books.handed_back == world.clock.now() + timedelta(minutes=1)


async def test_a_chunk_whose_items_are_gone_is_given_up_with_its_batch() -> None:
    world = World()
    world.books.input = b"damaged"
    world.books.batch = replace(world.books.batch, status=Status.FINALIZING)
    await world.run()
    assert world.books.given_up


async def test_what_is_booked_of_a_failed_item_is_booked() -> None:
    world = World()
    broken = Answer(error=REFUSED, record=generation_record())
    world.provider.behaviour = lambda text: broken if text == "item 1" else echo(text)
    await world.run()
    [outcome] = [each for each in world.books.committed if each.number == 1]
    assert outcome.error is not None
    assert outcome.record is not None
