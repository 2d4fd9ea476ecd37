"""Chunks hold what was put into them, or say that they do not."""

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory_blobs import MemoryBlobs
from tests.support.seams.batches import (
    LARGEST_CHUNK,
    MOST_LINES,
    Chunk,
    ChunkWriter,
    DamagedChunk,
    compress_chunk,
    item_line,
    load_chunk,
    pack,
    read_lines,
)
from tollhouse.kernel.files import zstd
from tollhouse.storage.blobs import BlobMissing

values = st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()))


def chunks_of(lines: Iterable[bytes]) -> list[Chunk]:
    writer = ChunkWriter()
    found = [chunk for line in lines if (chunk := writer.add(line)) is not None]
    last = writer.finish()
    return found if last is None else [*found, last]


@given(
    items=st.lists(st.tuples(st.text(), values), max_size=20),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_items_are_read_as_they_were_written(
    items: list[tuple[str, dict[str, object]]], indent: int | None, *, ascii_only: bool
) -> None:
    bodies = [
        json.dumps(body, indent=indent, ensure_ascii=ascii_only).encode() for _, body in items
    ]
    lines = [item_line(custom_id, body) for (custom_id, _), body in zip(items, bodies, strict=True)]
    read = [json.loads(line) for chunk in chunks_of(lines) for line in read_lines(chunk.data)]
    assert [(each["custom_id"], each["body"]) for each in read] == items


def test_a_chunk_is_full_after_so_many_lines() -> None:
    found = chunks_of([b"{}"] * (2 * MOST_LINES + 1))
    assert [(each.number, each.first, each.lines) for each in found] == [
        (0, 0, MOST_LINES),
        (1, MOST_LINES, MOST_LINES),
        (2, 2 * MOST_LINES, 1),
    ]


def test_a_chunk_is_full_after_so_many_bytes() -> None:
    line = b'"%b"' % (b"x" * (LARGEST_CHUNK // 4))
    assert [each.lines for each in chunks_of([line] * 5)] == [4, 1]


def test_no_line_is_no_chunk() -> None:
    assert chunks_of([]) == []


@pytest.mark.parametrize("cut", [0, 1, 10, -1])
def test_a_chunk_that_is_cut_off_is_damaged(cut: int) -> None:
    [chunk] = chunks_of([b'{"custom_id":"a","body":{}}'] * 3)
    with pytest.raises(DamagedChunk, match="cut off"):
        read_lines(chunk.data[:cut])


# Chunks are read in whichever form they are stored


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
