import pytest

from tests.integration.batches.desk import BatchDesk
from tollhouse.batches import repository
from tollhouse.batches.sweeper import LONGEST_UPLOAD
from tollhouse.batches.types import Status
from tollhouse.storage.blobs.port import BlobsUnavailable


async def begin_upload(desk: BatchDesk, name: str) -> None:
    async with desk.database.writing() as write:
        await repository.begin_upload(write, name, desk.clock.now())
    await desk.blobs.put(f"batches/{name}/input/00000.jsonl.zst", b"")


async def test_a_batch_whose_time_is_over_is_closed(desk: BatchDesk) -> None:
    one = await desk.submit(items=10, chunk=5)
    await desk.finish(await desk.lease())
    desk.clock.advance(desk.rules.window.total_seconds())
    await desk.sweeper.sweep()
    closing = await desk.stored(one.id)
    assert (closing.status, closing.ending) == (Status.FINALIZING, Status.EXPIRED)
    assert one.id in await desk.doorbell.rung(0)


async def test_a_batch_that_nobody_began_expires_too(desk: BatchDesk) -> None:
    one = await desk.submit()
    desk.clock.advance(desk.rules.window.total_seconds() + 1)
    await desk.sweeper.sweep()
    assert (await desk.stored(one.id)).status is Status.FINALIZING


async def test_a_batch_in_time_is_left_alone(desk: BatchDesk) -> None:
    one = await desk.submit()
    desk.clock.advance(desk.rules.window.total_seconds() - 1)
    await desk.sweeper.sweep()
    assert await desk.stored(one.id) == one


async def test_a_batch_that_was_left_unclosed_is_closed(desk: BatchDesk) -> None:
    one = await desk.submit(items=1)
    leased = await desk.lease()
    async with desk.database.writing() as write:
        # As if the transaction that finished the chunk had not known that it was the last one.
        await repository.finish_chunk(write, leased.lease)
    await desk.sweeper.sweep()
    assert (await desk.stored(one.id)).status is Status.COMPLETED


async def test_blobs_of_what_is_past_its_retention_are_removed(desk: BatchDesk) -> None:
    old = await desk.submit(items=1)
    await desk.run()
    desk.clock.advance(desk.rules.retention.total_seconds() + 1)
    new = await desk.submit(items=1)
    await desk.run()
    await desk.sweeper.sweep()
    assert await desk.blobs.list(f"batches/{old.id}") == []
    assert len(await desk.blobs.list(f"batches/{new.id}")) == 2
    assert (await desk.stored(old.id)).cost_nano == 1_000


async def test_a_store_that_is_away_is_asked_again(desk: BatchDesk) -> None:
    one = await desk.submit(items=1)
    await desk.run()
    desk.clock.advance(desk.rules.retention.total_seconds() + 1)
    desk.blobs.failing_deletion = BlobsUnavailable("away")
    await desk.sweeper.sweep()
    assert await desk.blobs.list(f"batches/{one.id}")
    desk.blobs.failing_deletion = None
    desk.clock.advance(60)
    await desk.sweeper.sweep()
    assert await desk.blobs.list(f"batches/{one.id}") == []


async def test_an_upload_that_never_ended_is_removed(desk: BatchDesk) -> None:
    await begin_upload(desk, "old")
    desk.clock.advance(LONGEST_UPLOAD.total_seconds() + 1)
    await begin_upload(desk, "new")
    await desk.sweeper.sweep()
    assert await desk.blobs.list("batches/old") == []
    assert await desk.blobs.list("batches/new")


@pytest.mark.parametrize("alone", [True, False])
async def test_who_is_alone_frees_at_once_what_a_kill_left(desk: BatchDesk, alone: bool) -> None:  # noqa: FBT001
    await desk.submit(items=1)
    await desk.lease()
    await begin_upload(desk, "left")
    desk.clock.advance(1)
    if alone:
        await desk.sweeper.begin_alone()
    else:
        await desk.sweeper.sweep()
    assert ((await desk.books.lease()) is not None) is alone
    assert (await desk.blobs.list("batches/left") == []) is alone
