from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.component.interns.intern_fixture import InternFixture
from tests.support.memory_blobs import MemoryBlobs
from tollhouse.interns.types import Intern
from tollhouse.interns.workspaces.archive_store import ArchiveDamaged, ArchiveStore
from tollhouse.storage.blobs import BlobsUnavailable

_PIECE = 8 * 1024 * 1024


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def archives(interns: InternFixture, blobs: MemoryBlobs) -> ArchiveStore:
    return ArchiveStore(blobs, interns.context.ids, interns.clock)


@pytest.fixture
async def intern(interns: InternFixture) -> Intern:
    return await interns.create("ada")


async def content(*pieces: bytes) -> AsyncIterator[bytes]:
    for each in pieces:
        yield each


async def cut(*pieces: bytes) -> AsyncIterator[bytes]:
    for each in pieces:
        yield each
    raise OSError(5, "Input/output error")


async def only(archives: ArchiveStore) -> bytes:
    (archive,) = await archives.list()
    return b"".join([each async for each in archives.read(archive)])


def known(*interns: str) -> Callable[[], Awaitable[set[str]]]:
    """Return what reads every intern there is."""

    async def read() -> set[str]:
        return set(interns)

    return read


async def test_what_was_stored_is_listed_and_read_back(
    archives: ArchiveStore, intern: Intern, interns: InternFixture
) -> None:
    await archives.store(intern, content(b"a" * _PIECE, b"b"))
    (found,) = await archives.list()
    assert (found.manifest.intern_id, found.manifest.name) == (intern.id, "ada")
    assert found.manifest.workspace_id == interns.caller.workspace_id
    assert (found.manifest.pieces, found.manifest.bytes) == (2, _PIECE + 1)
    assert await only(archives) == b"a" * _PIECE + b"b"


async def test_an_attempt_that_fails_leaves_nothing(
    archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    with pytest.raises(OSError, match="Input/output"):
        await archives.store(intern, cut(b"a" * _PIECE))
    assert blobs.blobs == {}


async def test_a_store_that_fails_at_the_end_has_no_archive(
    archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    blobs.failures[1] = BlobsUnavailable("gone")
    with pytest.raises(BlobsUnavailable):
        await archives.store(intern, content(b"a"))
    assert await archives.list() == []
    assert blobs.blobs == {}


async def test_what_a_killed_server_left_is_no_archive_and_goes_with_the_next(
    archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    await blobs.put(f"interns/{intern.id}/killed/00000", b"half")
    assert await archives.list() == []
    await archives.store(intern, content(b"whole"))
    assert await only(archives) == b"whole"
    assert not any("killed" in key for key in blobs.blobs)


async def test_one_that_becomes_whole_while_others_are_looked_for_stays(
    archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    await archives.store(intern, content(b"whole"))
    (folder,) = (each.folder for each in await archives.list())
    manifest = blobs.blobs.pop(f"{folder}/manifest.json")

    async def gone_now() -> set[str]:
        await blobs.put(f"{folder}/manifest.json", manifest)
        return set()

    await archives.sweep(gone_now)
    assert await only(archives) == b"whole"


async def test_what_a_killed_server_left_of_nobody_goes_at_a_start(
    archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    await blobs.put(f"interns/{intern.id}/killed/00000", b"half")
    await blobs.put("interns/gone/killed/00000", b"half")
    await archives.sweep(known(intern.id))
    assert list(blobs.blobs) == [f"interns/{intern.id}/killed/00000"]


async def test_whole_archives_of_those_who_are_gone_stay(
    archives: ArchiveStore, intern: Intern
) -> None:
    await archives.store(intern, content(b"whole"))
    await archives.sweep(known())
    assert await only(archives) == b"whole"


async def test_a_second_archive_takes_the_place_of_the_first(
    archives: ArchiveStore, intern: Intern
) -> None:
    await archives.store(intern, content(b"first"))
    await archives.store(intern, content(b"second"))
    assert await only(archives) == b"second"


async def test_a_first_archive_stays_where_the_second_fails(
    archives: ArchiveStore, intern: Intern
) -> None:
    await archives.store(intern, content(b"first"))
    with pytest.raises(OSError, match="Input/output"):
        await archives.store(intern, cut(b"second"))
    assert await only(archives) == b"first"


@pytest.mark.parametrize("damage", ["changed", "missing"])
async def test_an_archive_that_is_not_as_it_was_written_is_noticed(
    damage: str, archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    await archives.store(intern, content(b"whole"))
    (key,) = (key for key in blobs.blobs if key.endswith("00000"))
    if damage == "changed":
        blobs.blobs[key] = b"whale"
    else:
        del blobs.blobs[key]
    with pytest.raises(ArchiveDamaged):
        await only(archives)
