"""Chunks are read in whichever form they are stored."""

from __future__ import annotations

import pytest

from tests.support.memory_blobs import MemoryBlobs
from tollhouse.batches.chunks import DamagedChunk, pack, read_lines
from tollhouse.batches.stored_chunks import compress_chunk, load_chunk
from tollhouse.kernel.files import zstd
from tollhouse.storage.blobs import BlobMissing

KEY = "batches/1/input/00000.jsonl"
LINES = [b'{"custom_id":"a"}', b'{"custom_id":"b"}']
CHUNK = pack(LINES)


async def test_a_chunk_is_read_raw_and_compressed() -> None:
    blobs = MemoryBlobs()
    await blobs.put(KEY, CHUNK)
    assert await load_chunk(blobs, KEY) == CHUNK
    await compress_chunk(blobs, KEY)
    assert await blobs.list("batches") == [f"{KEY}.zst"]
    assert read_lines(await load_chunk(blobs, KEY)) == LINES


async def test_a_chunk_of_an_earlier_version_is_read_by_its_own_name() -> None:
    blobs = MemoryBlobs()
    await blobs.put(f"{KEY}.zst", zstd.compress(CHUNK))
    assert await load_chunk(blobs, f"{KEY}.zst") == await load_chunk(blobs, KEY) == CHUNK


async def test_a_compression_that_was_killed_before_its_end_is_ended_by_the_next() -> None:
    blobs = MemoryBlobs()
    await blobs.put(KEY, CHUNK)
    await blobs.put(f"{KEY}.zst", zstd.compress(CHUNK))
    assert await load_chunk(blobs, KEY) == CHUNK
    await compress_chunk(blobs, KEY)
    assert await blobs.list("batches") == [f"{KEY}.zst"]
    assert await load_chunk(blobs, KEY) == CHUNK


async def test_a_chunk_that_was_deleted_is_not_compressed() -> None:
    blobs = MemoryBlobs()
    await compress_chunk(blobs, KEY)
    assert blobs.puts == 0
    with pytest.raises(BlobMissing):
        await load_chunk(blobs, KEY)


@pytest.mark.parametrize(
    "data", [b"no zstd at all", zstd.compress(CHUNK) + b"x", zstd.compress(CHUNK)[:-1], b""]
)
async def test_what_nobody_compressed_is_damaged(data: bytes) -> None:
    blobs = MemoryBlobs()
    await blobs.put(f"{KEY}.zst", data)
    with pytest.raises(DamagedChunk):
        read_lines(await load_chunk(blobs, KEY))
