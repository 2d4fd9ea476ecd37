import pytest

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.seams.batches import LONGEST_UPLOAD, BatchStatus, repository
from tollhouse.storage.blobs import BlobsUnavailable


async def begin_upload(batches: BatchFixture, name: str) -> None:
    async with batches.database.writing() as write:
        await repository.begin_upload(write, name, batches.clock.now())
    await batches.blobs.put(f"batches/{name}/input/00000.jsonl.zst", b"")


async def test_a_batch_whose_time_is_over_is_closed(batches: BatchFixture) -> None:
    one = await batches.submit(items=10, chunk=5)
    await batches.finish(await batches.lease())
    batches.clock.advance(batches.rules.window.total_seconds())
    await batches.sweeper.sweep()
    closing = await batches.get(one.id)
    assert (closing.status, closing.ending) == (BatchStatus.FINALIZING, BatchStatus.EXPIRED)
    assert one.id in await batches.doorbell.rung(0)


async def test_a_batch_that_nobody_began_expires_too(batches: BatchFixture) -> None:
    one = await batches.submit()
    batches.clock.advance(batches.rules.window.total_seconds() + 1)
    await batches.sweeper.sweep()
    assert (await batches.get(one.id)).status is BatchStatus.FINALIZING


async def test_a_batch_that_was_left_unclosed_is_closed(batches: BatchFixture) -> None:
    one = await batches.submit(items=1)
    leased = await batches.lease()
    async with batches.database.writing() as write:
        # As if the transaction that finished the chunk had not known that it was the last one.
        await repository.finish_chunk(write, leased.lease)
    await batches.sweeper.sweep()
    assert (await batches.get(one.id)).status is BatchStatus.COMPLETED


async def test_blobs_of_what_is_past_its_retention_are_removed(batches: BatchFixture) -> None:
    old = await batches.submit(items=1)
    await batches.answer_all()
    batches.clock.advance(batches.rules.retention.total_seconds() + 1)
    new = await batches.submit(items=1)
    await batches.answer_all()
    await batches.sweeper.sweep()
    assert await batches.blobs.list(f"batches/{old.id}") == []
    assert len(await batches.blobs.list(f"batches/{new.id}")) == 2
    assert (await batches.get(old.id)).cost_nano == 1_000


async def test_a_store_that_is_away_is_asked_again(batches: BatchFixture) -> None:
    one = await batches.submit(items=1)
    await batches.answer_all()
    batches.clock.advance(batches.rules.retention.total_seconds() + 1)
    batches.blobs.failing_deletion = BlobsUnavailable("away")
    await batches.sweeper.sweep()
    assert await batches.blobs.list(f"batches/{one.id}")
    batches.blobs.failing_deletion = None
    batches.clock.advance(60)
    await batches.sweeper.sweep()
    assert await batches.blobs.list(f"batches/{one.id}") == []


async def test_an_upload_that_never_ended_is_removed(batches: BatchFixture) -> None:
    await begin_upload(batches, "old")
    batches.clock.advance(LONGEST_UPLOAD.total_seconds() + 1)
    await begin_upload(batches, "new")
    await batches.sweeper.sweep()
    assert await batches.blobs.list("batches/old") == []
    assert await batches.blobs.list("batches/new")


@pytest.mark.parametrize("alone", [True, False])
async def test_who_is_alone_frees_at_once_what_a_kill_left(
    batches: BatchFixture, *, alone: bool
) -> None:
    await batches.submit(items=1)
    await batches.lease()
    await begin_upload(batches, "left")
    batches.clock.advance(1)
    if alone:
        await batches.sweeper.recover_after_crash()
    else:
        await batches.sweeper.sweep()
    assert ((await batches.chunks.lease()) is not None) is alone
    assert (await batches.blobs.list("batches/left") == []) is alone
