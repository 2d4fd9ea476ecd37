"""Chunks of batches that have ended are compressed; none that is deleted meanwhile stays."""

import asyncio
from collections.abc import Callable

import pytest

from tests.component.batches.batch_fixture import BatchFixture
from tests.support.seams.batches import (
    LEASE,
    Batch,
    ChunkCompressor,
    folder_of,
    is_raw,
    remove_blobs,
    repository,
)
from tollhouse.storage.blobs import BlobsFull


async def ended(batches: BatchFixture, items: int = 4) -> Batch:
    """Return a batch that has ended, with two items in each chunk."""
    batch = await batches.submit(items=items, chunk=2)
    await batches.answer_all()
    return batch


def compressor(
    batches: BatchFixture, is_idle: Callable[[], bool] = lambda: True
) -> ChunkCompressor:
    async def rest(_seconds: float) -> bool:
        await asyncio.sleep(0)
        return is_idle()

    return ChunkCompressor(batches.context, rest)


async def raw_chunks(batches: BatchFixture, batch: Batch) -> int:
    return sum(map(is_raw, await batches.blobs.list(folder_of(batch.id))))


async def delete(batches: BatchFixture, batch: Batch) -> None:
    """Delete a batch as far as it can be at once."""
    async with batches.database.writing() as write:
        await repository.mark_deleted(write, batch.id, batches.clock.now())
    await remove_blobs(batches.blobs, batch.id)
    async with batches.database.writing() as write:
        await repository.mark_purged(write, batch.id, batches.clock.now())


async def test_items_and_results_of_a_batch_that_has_ended_are_compressed(
    batches: BatchFixture,
) -> None:
    batch = await ended(batches)
    before = await batches.results(batch.id)
    assert len(before) == 4
    assert await raw_chunks(batches, batch) == 4
    assert await compressor(batches).compress_next()
    assert await raw_chunks(batches, batch) == 0
    assert await batches.results(batch.id) == before
    assert not await compressor(batches).compress_next()


async def test_a_busy_process_goes_on_later_where_it_stopped(batches: BatchFixture) -> None:
    batch = await ended(batches)
    idle = iter((True, False))
    assert not await compressor(batches, lambda: next(idle)).compress_next()
    assert await raw_chunks(batches, batch) == 2
    assert await compressor(batches).compress_next()
    assert await raw_chunks(batches, batch) == 0


async def test_a_store_that_fails_is_tried_again(batches: BatchFixture) -> None:
    batch = await ended(batches)
    batches.blobs.failures[batches.blobs.puts] = BlobsFull("full")
    with pytest.raises(BlobsFull):
        await compressor(batches).compress_next()
    assert await raw_chunks(batches, batch) == 4
    assert await compressor(batches).compress_next()
    assert await raw_chunks(batches, batch) == 0


async def test_a_batch_that_another_process_compresses_is_left_alone_until_its_lease_ends(
    batches: BatchFixture,
) -> None:
    batch = await ended(batches)
    now = batches.clock.now()
    async with batches.database.writing() as write:
        assert await repository.lease_compression(write, now, now + LEASE) == batch.id
    assert not await compressor(batches).compress_next()
    batches.clock.advance(LEASE.total_seconds())
    assert await compressor(batches).compress_next()


async def test_a_chunk_that_is_written_while_its_batch_is_deleted_is_removed(
    batches: BatchFixture,
) -> None:
    batch = await ended(batches)
    batches.blobs.has_put.clear()
    batches.blobs.may_put.clear()
    compressing = asyncio.create_task(compressor(batches).compress_next())
    await batches.blobs.has_put.wait()
    await delete(batches, batch)
    await batches.sweeper.sweep()
    batches.blobs.may_put.set()
    await compressing
    assert await batches.blobs.list(folder_of(batch.id))
    batches.clock.advance(60)
    await batches.sweeper.sweep()
    assert not await batches.blobs.list(folder_of(batch.id))
