import asyncio
import sqlite3

import pytest

from tests.integration.batches.desk import ESTIMATE, BatchDesk
from tollhouse.batches import repository
from tollhouse.batches.books import CAREFUL_FROM
from tollhouse.batches.retries import Failures
from tollhouse.batches.types import Status, StoredChunk
from tollhouse.storage.blobs.port import BlobsUnavailable
from tollhouse.testing.builders import add_tenant


async def test_a_lease_begins_a_batch(desk: BatchDesk) -> None:
    one = await desk.submit()
    leased = await desk.lease()
    assert leased.batch.id == one.id
    assert leased.batch.status is Status.IN_PROGRESS
    assert (leased.lease.chunk, leased.lease.attempts) == (StoredChunk(0, 0, 5), 1)


async def test_a_chunk_is_nobodys_but_his_who_leased_it(desk: BatchDesk) -> None:
    await desk.submit(items=10, chunk=5)
    numbers = [(await desk.lease()).lease.chunk.number for _ in range(2)]
    assert numbers == [0, 1]
    assert await desk.books.lease() is None


async def test_many_at_once_get_different_chunks(desk: BatchDesk) -> None:
    await desk.submit(items=30, chunk=1)

    async def all_mine() -> list[int]:
        found: list[int] = []
        misses = 0
        while misses < 3:
            leased = await desk.books.lease()
            if leased is None:
                misses += 1
            else:
                found.append(leased.lease.chunk.number)
        return found

    mine = await asyncio.gather(*(all_mine() for _ in range(4)))
    assert sorted(number for found in mine for number in found) == list(range(30))


async def test_batches_take_turns(desk: BatchDesk) -> None:
    first = await desk.submit(items=20, chunk=5)
    desk.clock.advance(1)
    second = await desk.submit(items=20, chunk=5)
    turns = [(await desk.lease()).batch.id for _ in range(4)]
    assert turns == [first.id, second.id, first.id, second.id]


async def test_a_worker_that_is_not_heard_of_loses_its_chunk(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    lost = await desk.lease()
    desk.clock.advance(31)
    again = await desk.lease()
    assert again.lease.chunk == lost.lease.chunk
    assert again.lease.attempts == 2
    assert await desk.finish(lost) is None
    assert await desk.results(lost.batch.id) == []
    ended = await desk.finish(again)
    assert ended is not None
    assert ended.status is Status.COMPLETED


async def test_what_a_lost_lease_stored_is_removed_again(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    lost = await desk.lease()
    desk.clock.advance(31)
    await desk.lease()
    await desk.finish(lost)
    assert not [key for key in await desk.blobs.list("batches") if "/results/" in key]


async def test_a_sign_of_life_keeps_a_chunk(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    mine = await desk.lease()
    for _ in range(5):
        desk.clock.advance(20)
        assert await desk.books.commit(mine, [], 1, finished=False) is not None
        assert await desk.books.lease() is None


async def test_results_and_charges_come_together(desk: BatchDesk) -> None:
    one = await desk.submit(items=5)
    leased = await desk.lease()
    outcomes = [desk.answered(leased, 0, 300), desk.answered(leased, 1, 50), desk.failed(2)]
    await desk.books.commit(leased, outcomes, 1, finished=False)
    stored = await desk.stored(one.id)
    assert (stored.completed, stored.failed, stored.unrun) == (2, 1, 1)
    assert stored.cost_nano == (await desk.credits()).used_nano == 350
    assert stored.usage.output_tokens == 10
    assert len(await desk.results(one.id)) == 3
    assert await desk.reserved_nano() == ESTIMATE - 350


async def test_a_chunk_that_is_taken_up_again_knows_what_is_done(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    leased = await desk.lease()
    done = [desk.answered(leased, number) for number in (0, 3)]
    await desk.books.commit(leased, done, 1, finished=False)
    desk.clock.advance(31)
    assert (await desk.lease()).lease.done == {0, 3}


async def test_an_item_that_is_committed_twice_is_charged_once(desk: BatchDesk) -> None:
    one = await desk.submit(items=5)
    leased = await desk.lease()
    for part in range(3):
        await desk.books.commit(leased, [desk.answered(leased, 0, 70)], part, finished=False)
    assert (await desk.credits()).used_nano == 70
    assert (await desk.stored(one.id)).cost_nano == 70


@pytest.mark.parametrize("finished", [False, True])
async def test_a_commit_whose_answer_was_lost_counts_once_when_it_is_tried_again(
    desk: BatchDesk,
    finished: bool,  # noqa: FBT001
) -> None:
    one = await desk.submit(items=2)
    leased = await desk.lease()
    results = [desk.answered(leased, 0, 70), desk.failed(1)]
    tried = [await desk.books.commit(leased, results, 1, finished=finished) for _ in range(3)]
    assert tried[0] == tried[1] == tried[2] == await desk.stored(one.id)
    assert tried[0] is not None
    assert (tried[0].completed, tried[0].failed, tried[0].cost_nano) == (1, 1, 70)
    assert len(await desk.results(one.id)) == 2


async def test_a_store_that_is_away_changes_nothing(desk: BatchDesk) -> None:
    one = await desk.submit(items=5)
    leased = await desk.lease()
    desk.blobs.failures[desk.blobs.puts] = BlobsUnavailable("away")
    with pytest.raises(BlobsUnavailable):
        await desk.finish(leased)
    stored = await desk.stored(one.id)
    assert (stored.status, stored.completed) == (Status.IN_PROGRESS, 0)
    assert (await desk.credits()).used_nano == 0


async def test_the_last_chunk_ends_the_batch_and_its_reservation(desk: BatchDesk) -> None:
    one = await desk.submit(items=10, chunk=5)
    await desk.run()
    ended = await desk.stored(one.id)
    assert ended.status is Status.COMPLETED
    assert ended.finalized_at == desk.clock.now()
    assert (ended.completed, ended.failed) == (10, 0)
    assert ended.released
    assert await desk.reserved_nano() == 0
    assert desk.tenant.account.id in desk.stale


async def test_two_last_chunks_at_once_end_the_batch_once(desk: BatchDesk) -> None:
    for _ in range(10):
        one = await desk.submit(items=2, chunk=1)
        leases = [await desk.lease(), await desk.lease()]
        await asyncio.gather(*(desk.finish(leased) for leased in leases))
        assert (await desk.stored(one.id)).status is Status.COMPLETED


async def test_a_batch_of_which_nothing_could_be_run_fails(desk: BatchDesk) -> None:
    one = await desk.submit(items=2)
    leased = await desk.lease()
    await desk.books.commit(leased, [desk.failed(0), desk.failed(1)], 1, finished=True)
    ended = await desk.stored(one.id)
    assert (ended.status, ended.error) == (Status.FAILED, "requests[0]: It is wrong.")


async def test_a_batch_whose_items_all_failed_at_a_provider_is_completed(desk: BatchDesk) -> None:
    one = await desk.submit(items=2)
    leased = await desk.lease()
    outcomes = [desk.failed(0, run=True), desk.failed(1, run=True)]
    await desk.books.commit(leased, outcomes, 1, finished=True)
    assert (await desk.stored(one.id)).status is Status.COMPLETED


async def test_a_batch_that_costs_more_than_there_is_withholds_its_results(
    desk: BatchDesk,
) -> None:
    one = await desk.submit(items=1)
    await desk.run(cost_nano=2_000_000_000_000)
    assert not (await desk.stored(one.id)).released


@pytest.mark.parametrize(
    ("closing", "end"),
    [(Status.CANCELLING, Status.CANCELLED), (Status.FINALIZING, Status.EXPIRED)],
)
async def test_a_batch_that_is_closed_ends_once_its_chunks_are(
    desk: BatchDesk, closing: Status, end: Status
) -> None:
    one = await desk.submit(items=10, chunk=5)
    await desk.finish(await desk.lease())
    ending = Status.EXPIRED.value if closing is Status.FINALIZING else None
    await desk.move(one.id, closing, ending=ending)
    leased = await desk.lease()
    assert leased.batch.status is closing
    await desk.books.commit(leased, [desk.failed(at) for at in range(5, 10)], 1, finished=True)
    ended = await desk.stored(one.id)
    assert (ended.status, ended.completed, ended.failed) == (end, 5, 5)


async def test_what_is_handed_back_is_ready_when_that_was_said(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    leased = await desk.lease()
    later = desk.clock.now() + desk.rules.window / 100
    await desk.books.hand_back(leased, later, {3: Failures(failed=2)})
    assert await desk.books.lease() is None
    desk.clock.set(later)
    again = (await desk.lease()).lease
    assert (again.attempts, again.failures) == (1, {3: Failures(failed=2)})


@pytest.mark.parametrize("closing", [Status.CANCELLING, Status.FINALIZING])
async def test_what_waits_for_its_next_try_is_taken_at_once_to_be_closed(
    desk: BatchDesk, closing: Status
) -> None:
    one = await desk.submit(items=5)
    leased = await desk.lease()
    await desk.books.hand_back(leased, desk.clock.now() + desk.rules.window / 2, {})
    assert await desk.books.lease() is None
    await desk.move(one.id, closing)
    assert (await desk.lease()).batch.status is closing


async def test_an_account_with_many_batches_does_not_keep_others_waiting(desk: BatchDesk) -> None:
    for _ in range(3):
        await desk.submit(items=10, chunk=5)
    desk.clock.advance(1)
    other = await add_tenant(desk.database, clock=desk.clock, ids=desk.ids)
    await desk.grant(1_000, other.account.id)
    late = await desk.submit(items=10, chunk=5, account_id=other.account.id)
    found = [(await desk.lease()).batch for _ in range(3)]
    assert found[0].id != late.id
    assert found[1].id == late.id
    assert found[2].id not in {late.id, found[0].id}


async def test_where_no_place_is_free_only_a_model_without_a_chunk_at_work_gets_one(
    desk: BatchDesk,
) -> None:
    await desk.submit(items=10, chunk=5)
    assert await desk.books.lease(only_idle=True) is not None
    assert await desk.books.lease(only_idle=True) is None
    other = await desk.submit(items=10, chunk=5, model="acme/small")
    leased = await desk.books.lease(only_idle=True)
    assert leased is not None
    assert leased.batch.id == other.id
    assert await desk.books.lease(only_idle=True) is None


async def test_a_result_clears_a_chunk_of_what_was_held_against_it(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    for _ in range(2):
        await desk.lease()
        desk.clock.advance(31)
    leased = await desk.lease()
    assert leased.lease.attempts == 3
    await desk.books.commit(leased, [desk.answered(leased, 0)], 1, finished=False)
    desk.clock.advance(31)
    assert (await desk.lease()).lease.attempts == 1


async def test_a_chunk_that_needs_care_goes_on_with_it(desk: BatchDesk) -> None:
    await desk.submit(items=5)
    for _ in range(CAREFUL_FROM - 1):
        await desk.lease()
        desk.clock.advance(31)
    leased = await desk.lease()
    await desk.books.commit(leased, [desk.answered(leased, 0)], 1, finished=False)
    desk.clock.advance(31)
    assert (await desk.lease()).lease.attempts == CAREFUL_FROM


async def test_only_the_item_that_ran_alone_is_blamed_for_the_end_of_its_worker(
    desk: BatchDesk,
) -> None:
    await desk.submit(items=5)
    for crashes in range(3):
        leased = await desk.lease()
        assert leased.lease.failures == ({1: Failures(crashes=crashes)} if crashes else {})
        assert await desk.books.suspect(leased, 1)
        desk.clock.advance(31)
    leased = await desk.lease()
    assert await desk.books.suspect(leased, 2)
    assert await desk.books.suspect(leased, None)
    desk.clock.advance(31)
    leased = await desk.lease()
    await desk.books.suspect(leased, 2)
    await desk.books.commit(leased, [desk.answered(leased, 2)], 1, finished=False)
    desk.clock.advance(31)
    assert (await desk.lease()).lease.failures == {1: Failures(crashes=3)}


async def test_what_ends_while_a_chunk_waits_to_run_alone_is_not_held_against_it(
    desk: BatchDesk,
) -> None:
    await desk.submit(items=5)
    for _ in range(CAREFUL_FROM):
        leased = await desk.lease()
        desk.clock.advance(31)
    assert await desk.books.excuse(leased)
    desk.clock.advance(31)
    assert (await desk.lease()).lease.attempts == CAREFUL_FROM


async def test_a_chunk_whose_items_are_lost_is_finished_without_them(desk: BatchDesk) -> None:
    one = await desk.submit(items=5)
    leased = await desk.lease()
    await desk.books.commit(leased, [desk.answered(leased, 0)], 1, finished=False)
    await desk.move(one.id, Status.CANCELLING)
    desk.clock.advance(31)
    await desk.books.give_up(await desk.lease())
    ended = await desk.stored(one.id)
    assert (ended.status, ended.completed, ended.failed) == (Status.CANCELLED, 1, 4)


async def test_counts_cannot_pass_the_total(desk: BatchDesk) -> None:
    await desk.submit(items=1)
    leased = await desk.lease()
    twice = [desk.failed(0), desk.failed(0)]
    with pytest.raises(Exception) as refused:  # noqa: PT011 - each database has its own
        await desk.books.commit(leased, twice, 1, finished=True)
    assert "counts" in str(refused.value) or isinstance(refused.value, sqlite3.IntegrityError)


async def test_a_start_on_a_database_of_its_own_frees_every_chunk(desk: BatchDesk) -> None:
    await desk.submit(items=10, chunk=5)
    await desk.lease()
    await desk.lease()
    async with desk.database.writing() as write:
        assert await repository.drop_leases(write) == 2
    assert await desk.books.lease() is not None
