"""What every store of blobs promises."""

import asyncio
import os
from pathlib import Path

import pytest

from tollhouse.storage.blobs import (
    LONGEST_KEY,
    LONGEST_NAME,
    PIECE,
    BlobExists,
    BlobMissing,
    Blobs,
    BlobsUnavailable,
    InvalidKey,
)

KEY = "batches/7f3a/input/00003.jsonl.zst"
INVALID = [
    *("", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a/./b", "../a", "/etc/passwd"),
    *("a b", "a\\b", "~a", "a\0", "a\n", "ä", "a%2Fb", "a:b", "a?b", "a*"),
    *("n" * (LONGEST_NAME + 1), "/".join("n" * (LONGEST_KEY // 2 + 1))),
]
SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 6 * PIECE + 123]


def content(size: int) -> bytes:
    """Return bytes that differ from piece to piece."""
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


def staged(blobs: Blobs, data: bytes) -> Path:
    """Return a file in the staging folder."""
    path = blobs.staging() / f"~{os.getpid()}"
    path.write_bytes(data)
    return path


def is_there(path: Path) -> bool:
    return path.exists()


async def streamed(blobs: Blobs, key: str) -> list[bytes]:
    return [piece async for piece in blobs.stream(key)]


@pytest.mark.parametrize("size", SIZES)
async def test_a_blob_comes_back_as_it_was_put(blobs: Blobs, size: int) -> None:
    data = content(size)
    await blobs.put(KEY, data)
    assert await blobs.get(KEY) == data
    pieces = await streamed(blobs, KEY)
    assert b"".join(pieces) == data
    assert all(0 < len(piece) <= PIECE for piece in pieces)


async def test_a_key_that_is_taken_keeps_its_blob(blobs: Blobs) -> None:
    await blobs.put(KEY, b"first")
    for data in (b"second", b"first"):
        with pytest.raises(BlobExists) as refused:
            await blobs.put(KEY, data)
        assert refused.value.key == KEY
    assert await blobs.get(KEY) == b"first"


async def test_a_file_becomes_a_blob(blobs: Blobs) -> None:
    path = staged(blobs, content(3 * PIECE))
    await blobs.put_file(KEY, path)
    assert await blobs.get(KEY) == content(3 * PIECE)
    assert not is_there(path)


async def test_a_file_for_a_key_that_is_taken_is_removed(blobs: Blobs) -> None:
    await blobs.put(KEY, b"first")
    path = staged(blobs, b"second")
    with pytest.raises(BlobExists):
        await blobs.put_file(KEY, path)
    assert await blobs.get(KEY) == b"first"
    assert not is_there(path)


async def test_a_file_that_is_missing_is_no_blob(blobs: Blobs) -> None:
    with pytest.raises(BlobsUnavailable):
        await blobs.put_file(KEY, blobs.staging() / "~missing")
    assert await blobs.list("") == []


async def test_of_many_writers_exactly_one_is_first(blobs: Blobs) -> None:
    writers = [b"%d" % number * 100_000 for number in range(8)]
    ends = await asyncio.gather(*(blobs.put(KEY, data) for data in writers), return_exceptions=True)
    won = [data for data, end in zip(writers, ends, strict=True) if end is None]
    assert len(won) == 1
    assert sum(isinstance(end, BlobExists) for end in ends) == len(writers) - 1
    assert await blobs.get(KEY) == won[0]
    assert await blobs.list("batches") == [KEY]


async def test_a_deleted_key_may_be_put_again(blobs: Blobs) -> None:
    await blobs.put(KEY, b"first")
    await blobs.delete([KEY])
    await blobs.put(KEY, b"second")
    assert await blobs.get(KEY) == b"second"


@pytest.mark.parametrize("missing", [KEY, "batches", "batches/7f3a/input"])
async def test_what_is_no_blob_is_missing(blobs: Blobs, missing: str) -> None:
    await blobs.put("batches/7f3a/input/00001", b"another")
    with pytest.raises(BlobMissing) as refused:
        await blobs.get(missing)
    assert refused.value.key == missing
    with pytest.raises(BlobMissing):
        await streamed(blobs, missing)


async def test_a_blob_is_no_folder(blobs: Blobs) -> None:
    await blobs.put("a/b", b"1")
    with pytest.raises(BlobMissing):
        await blobs.get("a/b/c")
    assert await blobs.list("a/b") == []
    await blobs.delete_all("a/b")
    await blobs.delete(["a/b/c"])
    assert await blobs.get("a/b") == b"1"


async def test_a_blob_that_is_deleted_in_mid_stream_is_missing(blobs: Blobs) -> None:
    await blobs.put(KEY, content(3 * PIECE))
    stream = blobs.stream(KEY)
    assert len(await anext(stream)) == PIECE
    await blobs.delete([KEY])
    with pytest.raises(BlobMissing):
        await anext(stream)


async def test_a_list_is_sorted_and_of_whole_names(blobs: Blobs) -> None:
    keys = ["b/1/x", "b/10/x", "b/1/in/00002", "b/1/in/00001", "b/1-x", "c/1/x"]
    for key in keys:
        await blobs.put(key, b"1")
    assert await blobs.list("b/1") == ["b/1/in/00001", "b/1/in/00002", "b/1/x"]
    assert await blobs.list("b") == sorted(key for key in keys if key.startswith("b/"))
    assert await blobs.list("") == sorted(keys)


async def test_a_folder_that_is_missing_has_no_blobs(blobs: Blobs) -> None:
    assert await blobs.list("") == []
    assert await blobs.list("batches/1") == []
    await blobs.delete_all("batches/1")


async def test_deleting_takes_what_is_there(blobs: Blobs) -> None:
    for key in ("a/1", "a/2", "a/3"):
        await blobs.put(key, b"1")
    await blobs.delete(["a/1", "a/missing", "missing/too", "a/3"])
    await blobs.delete([])
    assert await blobs.list("") == ["a/2"]


async def test_deleting_a_folder_leaves_its_neighbours(blobs: Blobs) -> None:
    keys = ["b/1/x", "b/1/in/1", "b/10/x", "b/1-x"]
    for key in keys:
        await blobs.put(key, b"1")
    await blobs.delete_all("b/1")
    assert await blobs.list("") == ["b/1-x", "b/10/x"]
    await blobs.put("b/1/x", b"again")


@pytest.mark.parametrize("key", INVALID)
async def test_what_is_no_key_is_refused_everywhere(blobs: Blobs, key: str) -> None:
    with pytest.raises(InvalidKey):
        await blobs.put(key, b"1")
    with pytest.raises(InvalidKey):
        await blobs.get(key)
    with pytest.raises(InvalidKey):
        await streamed(blobs, key)
    with pytest.raises(InvalidKey):
        await blobs.delete(["a", key])
    with pytest.raises(InvalidKey):
        await blobs.delete_all(key)
    if key:
        with pytest.raises(InvalidKey):
            await blobs.list(key)


async def test_the_longest_key_is_taken(blobs: Blobs) -> None:
    names = ["n" * LONGEST_NAME] * (LONGEST_KEY // (LONGEST_NAME + 1))
    key = "/".join([*names, "n" * (LONGEST_KEY - len("/".join(names)) - 1)])
    assert len(key) == LONGEST_KEY
    await blobs.put(key, b"1")
    assert await blobs.list("") == [key]
    assert await blobs.get(key) == b"1"


async def test_every_kind_of_character_comes_back_in_a_list(blobs: Blobs) -> None:
    key = "A-z_0.9/..a/.hidden/a..b/-._"
    await blobs.put(key, b"1")
    assert await blobs.list("A-z_0.9") == [key]
