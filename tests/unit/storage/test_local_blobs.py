"""The folder of blobs alone: what is on disk after a put, a full disk, a fault, a sweep."""

import errno
import os
import stat
from pathlib import Path
from typing import NoReturn

import pytest

from tests.support.disk import files_in, largest_file
from tollhouse.storage.blobs import BlobExists, BlobsFull, BlobsUnavailable, InvalidKey, LocalBlobs

KEY = "batches/1/input/00001"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "data" / "blobs"


@pytest.fixture
def blobs(root: Path) -> LocalBlobs:
    root.parent.mkdir()
    return LocalBlobs(root)


def is_there(path: Path) -> bool:
    return path.exists()


def modes_of(root: Path) -> set[tuple[bool, int]]:
    """Return the modes of folders (True) and of files."""
    paths = [root, *root.rglob("*")]
    return {(path.is_dir(), stat.S_IMODE(path.stat().st_mode)) for path in paths}


def name_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


async def test_only_the_owner_may_read_them(blobs: LocalBlobs, root: Path) -> None:
    before = os.umask(0)
    try:
        await blobs.put(KEY, b"1")
    finally:
        os.umask(before)
    assert modes_of(root) == {(True, 0o700), (False, 0o600)}


async def test_the_file_is_flushed_before_it_is_seen_and_its_folders_after(
    blobs: LocalBlobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []
    flush = os.fsync

    def watched(descriptor: int) -> None:
        flush(descriptor)
        name = name_of(descriptor)
        is_temporary = name.name.startswith("~")
        seen.append(("file" if is_temporary else str(name), is_there(root / KEY)))

    monkeypatch.setattr(os, "fsync", watched)
    await blobs.put(KEY, b"1")
    folders = [root / "batches/1/input", root / "batches/1", root / "batches", root, root.parent]
    assert seen == [("file", False), *((str(folder.resolve()), True) for folder in folders)]


async def test_a_lost_race_leaves_nothing(
    blobs: LocalBlobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def late(source: Path, target: Path) -> None:
        target.write_bytes(b"first")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    with pytest.raises(BlobExists):
        await blobs.put(KEY, b"second")
    assert await blobs.get(KEY) == b"first"
    assert files_in(root) == [KEY]


@pytest.mark.parametrize("room", [0, 1, 500_000])
async def test_a_blob_that_finds_no_room_leaves_nothing(
    blobs: LocalBlobs, root: Path, room: int
) -> None:
    data = b"x" * 1_000_000
    with largest_file(room), pytest.raises(BlobsFull) as refused:
        await blobs.put(KEY, data)
    assert str(root) not in str(refused.value)
    assert files_in(root) == []
    await blobs.put(KEY, data)
    assert await blobs.get(KEY) == data


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, BlobsFull), (errno.EIO, BlobsUnavailable)]
)
@pytest.mark.parametrize("call", ["write", "fsync", "link"])
async def test_a_disk_that_fails_leaves_nothing(
    blobs: LocalBlobs,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    number: int,
    kind: type[BlobsUnavailable],
) -> None:
    def fail(*_: object) -> NoReturn:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(BlobsUnavailable) as refused:
            await blobs.put(KEY, b"1")
    assert type(refused.value) is kind
    assert os.strerror(number) in refused.value.reason
    assert files_in(root) == []
    await blobs.put(KEY, b"1")


async def test_folders_that_cannot_be_flushed_are_an_error_of_a_whole_blob(
    blobs: LocalBlobs, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush = os.fsync

    def fail_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        flush(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail_on_folders)
        with pytest.raises(BlobsUnavailable):
            await blobs.put(KEY, b"1")
    assert await blobs.get(KEY) == b"1"
    assert files_in(root) == [KEY]


async def test_a_disk_that_takes_a_part_gets_the_rest(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    await blobs.put(KEY, bytes(range(100)))
    monkeypatch.undo()
    assert await blobs.get(KEY) == bytes(range(100))


async def test_a_folder_that_cannot_be_read_is_no_missing_blob(
    blobs: LocalBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await blobs.put(KEY, b"1")

    def fail(path: str | Path, *_: object) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "open", fail)
    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(BlobsUnavailable):
        await blobs.get(KEY)
    with pytest.raises(BlobsUnavailable):
        await blobs.list("")
    with pytest.raises(BlobsUnavailable):
        await blobs.delete_all("batches")
    with pytest.raises(BlobsUnavailable):
        await blobs.sweep()


async def test_a_blob_cannot_hold_another(blobs: LocalBlobs) -> None:
    await blobs.put("a/b", b"1")
    with pytest.raises(InvalidKey, match="one of its folders is a blob"):
        await blobs.put("a/b/c", b"2")
    with pytest.raises(BlobExists):
        await blobs.put("a", b"3")


async def test_what_a_killed_writer_left_is_swept_and_never_seen(
    blobs: LocalBlobs, root: Path
) -> None:
    await blobs.put(KEY, b"1")
    left = root / "batches/1/input/~x7.tmp"
    left.write_bytes(b"half")
    os.link(root / KEY, root / "batches/~linked.tmp")  # killed between link and unlink
    assert await blobs.list("") == [KEY]
    assert await blobs.sweep() == 2
    assert files_in(root) == [KEY]
    assert await blobs.get(KEY) == b"1"
    assert await blobs.sweep() == 0
