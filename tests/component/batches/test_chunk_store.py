import asyncio
import sqlite3

import pytest

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.builders import add_tenant
from tests.support.seams.batches import CAREFUL_FROM, BatchStatus, ItemFailures
from tollhouse.storage.blobs import BlobsUnavailable


async def test_many_at_once_get_different_chunks(batches: BatchFixture) -> None:
    await batches.submit(items=30, chunk=1)

    async def all_mine() -> list[int]:
        found: list[int] = []
        misses = 0
        while misses < 3:
            leased = await batches.chunks.lease()
            if leased is None:
                misses += 1
            else:
                found.append(leased.lease.chunk.number)
        return found

    mine = await asyncio.gather(*(all_mine() for _ in range(4)))
    assert sorted(number for found in mine for number in found) == list(range(30))


async def test_batches_take_turns(batches: BatchFixture) -> None:
    first = await batches.submit(items=20, chunk=5)
    batches.clock.advance(1)
    second = await batches.submit(items=20, chunk=5)
    turns = [(await batches.lease()).batch.id for _ in range(4)]
    assert turns == [first.id, second.id, first.id, second.id]


async def test_a_worker_that_is_not_heard_of_loses_its_chunk(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    lost = await batches.lease()
    batches.clock.advance(31)
    again = await batches.lease()
    assert again.lease.chunk == lost.lease.chunk
    assert again.lease.attempts == 2
    assert await batches.finish(lost) is None
    assert await batches.results(lost.batch.id) == []
    ended = await batches.finish(again)
    assert ended is not None
    assert ended.status is BatchStatus.COMPLETED


async def test_what_a_lost_lease_stored_is_removed_again(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    lost = await batches.lease()
    batches.clock.advance(31)
    await batches.lease()
    await batches.finish(lost)
    assert not [key for key in await batches.blobs.list("batches") if "/results/" in key]


async def test_a_sign_of_life_keeps_a_chunk(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    mine = await batches.lease()
    for _ in range(5):
        batches.clock.advance(20)
        assert await batches.chunks.commit(mine, [], 1, finished=False) is not None
        assert await batches.chunks.lease() is None


async def test_a_chunk_that_is_taken_up_again_knows_what_is_done(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    leased = await batches.lease()
    done = [batches.answered_result(leased, number) for number in (0, 3)]
    await batches.chunks.commit(leased, done, 1, finished=False)
    batches.clock.advance(31)
    assert (await batches.lease()).lease.done == {0, 3}


async def test_an_item_that_is_committed_twice_is_charged_once(batches: BatchFixture) -> None:
    one = await batches.submit(items=5)
    leased = await batches.lease()
    for part in range(3):
        await batches.chunks.commit(
            leased, [batches.answered_result(leased, 0, 70)], part, finished=False
        )
    assert (await batches.credits()).used_nano == 70
    assert (await batches.get(one.id)).cost_nano == 70


@pytest.mark.parametrize("finished", [False, True])
async def test_a_commit_whose_answer_was_lost_counts_once_when_it_is_tried_again(
    batches: BatchFixture,
    finished: bool,  # noqa: FBT001
) -> None:
    one = await batches.submit(items=2)
    leased = await batches.lease()
    results = [batches.answered_result(leased, 0, 70), batches.failed_result(1)]
    tried = [await batches.chunks.commit(leased, results, 1, finished=finished) for _ in range(3)]
    assert tried[0] == tried[1] == tried[2] == await batches.get(one.id)
    assert tried[0] is not None
    assert (tried[0].completed, tried[0].failed, tried[0].cost_nano) == (1, 1, 70)
    assert len(await batches.results(one.id)) == 2


async def test_a_store_that_is_away_changes_nothing(batches: BatchFixture) -> None:
    one = await batches.submit(items=5)
    leased = await batches.lease()
    batches.blobs.failures[batches.blobs.puts] = BlobsUnavailable("away")
    with pytest.raises(BlobsUnavailable):
        await batches.finish(leased)
    stored = await batches.get(one.id)
    assert (stored.status, stored.completed) == (BatchStatus.IN_PROGRESS, 0)
    assert (await batches.credits()).used_nano == 0


async def test_two_last_chunks_at_once_end_the_batch_once(batches: BatchFixture) -> None:
    for _ in range(10):
        one = await batches.submit(items=2, chunk=1)
        leases = [await batches.lease(), await batches.lease()]
        await asyncio.gather(*(batches.finish(leased) for leased in leases))
        assert (await batches.get(one.id)).status is BatchStatus.COMPLETED


async def test_what_is_handed_back_is_ready_when_that_was_said(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    leased = await batches.lease()
    later = batches.clock.now() + batches.rules.window / 100
    await batches.chunks.give_back(leased, later, {3: ItemFailures(failed=2)})
    assert await batches.chunks.lease() is None
    batches.clock.set(later)
    again = (await batches.lease()).lease
    assert (again.attempts, again.failures) == (1, {3: ItemFailures(failed=2)})


@pytest.mark.parametrize("closing", [BatchStatus.CANCELLING, BatchStatus.FINALIZING])
async def test_what_waits_for_its_next_try_is_taken_at_once_to_be_closed(
    batches: BatchFixture, closing: BatchStatus
) -> None:
    one = await batches.submit(items=5)
    leased = await batches.lease()
    await batches.chunks.give_back(leased, batches.clock.now() + batches.rules.window / 2, {})
    assert await batches.chunks.lease() is None
    await batches.set_status(one.id, closing)
    assert (await batches.lease()).batch.status is closing


async def test_an_account_with_many_batches_does_not_keep_others_waiting(
    batches: BatchFixture,
) -> None:
    for _ in range(3):
        await batches.submit(items=10, chunk=5)
    batches.clock.advance(1)
    other = await add_tenant(batches.database, clock=batches.clock, ids=batches.ids)
    await batches.grant(1_000, other.account.id)
    late = await batches.submit(items=10, chunk=5, account_id=other.account.id)
    found = [(await batches.lease()).batch for _ in range(3)]
    assert found[0].id != late.id
    assert found[1].id == late.id
    assert found[2].id not in {late.id, found[0].id}


async def test_where_no_place_is_free_only_a_model_without_a_chunk_at_work_gets_one(
    batches: BatchFixture,
) -> None:
    await batches.submit(items=10, chunk=5)
    assert await batches.chunks.lease(only_idle=True) is not None
    assert await batches.chunks.lease(only_idle=True) is None
    other = await batches.submit(items=10, chunk=5, model="acme/small")
    leased = await batches.chunks.lease(only_idle=True)
    assert leased is not None
    assert leased.batch.id == other.id
    assert await batches.chunks.lease(only_idle=True) is None


async def test_a_result_clears_a_chunk_of_what_was_held_against_it(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    for _ in range(2):
        await batches.lease()
        batches.clock.advance(31)
    leased = await batches.lease()
    assert leased.lease.attempts == 3
    await batches.chunks.commit(leased, [batches.answered_result(leased, 0)], 1, finished=False)
    batches.clock.advance(31)
    assert (await batches.lease()).lease.attempts == 1


async def test_a_chunk_that_needs_care_goes_on_with_it(batches: BatchFixture) -> None:
    await batches.submit(items=5)
    for _ in range(CAREFUL_FROM - 1):
        await batches.lease()
        batches.clock.advance(31)
    leased = await batches.lease()
    await batches.chunks.commit(leased, [batches.answered_result(leased, 0)], 1, finished=False)
    batches.clock.advance(31)
    assert (await batches.lease()).lease.attempts == CAREFUL_FROM


async def test_only_the_item_that_ran_alone_is_blamed_for_the_end_of_its_worker(
    batches: BatchFixture,
) -> None:
    await batches.submit(items=5)
    for crashes in range(3):
        leased = await batches.lease()
        assert leased.lease.failures == ({1: ItemFailures(crashes=crashes)} if crashes else {})
        assert await batches.chunks.suspect(leased, 1)
        batches.clock.advance(31)
    leased = await batches.lease()
    assert await batches.chunks.suspect(leased, 2)
    assert await batches.chunks.suspect(leased, None)
    batches.clock.advance(31)
    leased = await batches.lease()
    await batches.chunks.suspect(leased, 2)
    await batches.chunks.commit(leased, [batches.answered_result(leased, 2)], 1, finished=False)
    batches.clock.advance(31)
    assert (await batches.lease()).lease.failures == {1: ItemFailures(crashes=3)}


async def test_what_ends_while_a_chunk_waits_to_run_alone_is_not_held_against_it(
    batches: BatchFixture,
) -> None:
    await batches.submit(items=5)
    for _ in range(CAREFUL_FROM):
        leased = await batches.lease()
        batches.clock.advance(31)
    assert await batches.chunks.undo_attempt(leased)
    batches.clock.advance(31)
    assert (await batches.lease()).lease.attempts == CAREFUL_FROM


async def test_a_chunk_whose_items_are_lost_is_finished_without_them(batches: BatchFixture) -> None:
    one = await batches.submit(items=5)
    leased = await batches.lease()
    await batches.chunks.commit(leased, [batches.answered_result(leased, 0)], 1, finished=False)
    await batches.set_status(one.id, BatchStatus.CANCELLING)
    batches.clock.advance(31)
    await batches.chunks.give_up(await batches.lease())
    ended = await batches.get(one.id)
    assert (ended.status, ended.completed, ended.failed) == (BatchStatus.CANCELLED, 1, 4)


async def test_counts_cannot_pass_the_total(batches: BatchFixture) -> None:
    await batches.submit(items=1)
    leased = await batches.lease()
    twice = [batches.failed_result(0), batches.failed_result(0)]
    with pytest.raises(Exception) as refused:  # noqa: PT011 - each database has its own
        await batches.chunks.commit(leased, twice, 1, finished=True)
    assert "counts" in str(refused.value) or isinstance(refused.value, sqlite3.IntegrityError)
