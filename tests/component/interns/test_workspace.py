"""Workspaces: their digests, what they take, and their archives."""

import io
import os
import socket
import stat
import subprocess
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from tests.component.interns.intern_fixture import InternFixture
from tests.support.memory_blobs import MemoryBlobs
from tollhouse.interns.types import Intern
from tollhouse.interns.workspaces import contents
from tollhouse.interns.workspaces.archive_format import ArchiveBroken, pack, unpack
from tollhouse.interns.workspaces.archive_store import ArchiveDamaged, ArchiveStore
from tollhouse.interns.workspaces.contents import chown, digest, make_workspace, measure
from tollhouse.interns.workspaces.tree import BLOCK, FileChanged, TreeTooLarge, walk
from tollhouse.kernel.files import zstd
from tollhouse.storage.blobs import BlobsUnavailable


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "workspace"
    make_workspace(folder)
    yield folder
    for each in tmp_path.iterdir():  # who looks through a test's folder cannot go so deep
        subprocess.run(["rm", "-rf", "--", str(each)], check=True)


@pytest.fixture
def filled(workspace: Path) -> Iterator[Path]:
    """A workspace with what programs leave, and what nobody should."""
    folder = workspace
    (folder / "empty").touch()
    (folder / "folder" / "inner").mkdir(parents=True)
    (folder / "folder" / "inner" / "deep").write_bytes(os.urandom(300_000))
    (folder / "run").write_text("#!/bin/sh")
    (folder / "run").chmod(0o755)
    (folder / "absolute").symlink_to("/etc/passwd")
    (folder / "dangling").symlink_to("nowhere")
    (folder / "loop").symlink_to("loop")
    (folder / "a line\nbreak 'and' \"quotes\"").write_text("odd")
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe-no-text")).write_text("bytes")
    (folder / ("n" * 255)).write_text("long")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        here = os.open(folder, os.O_RDONLY)
        made.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)
    (folder / "closed").write_text("closed")
    (folder / "closed").chmod(0)
    (folder / "shut").mkdir()
    (folder / "shut" / "inside").write_text("inside")
    (folder / "shut").chmod(0)
    with (folder / "holes").open("wb") as file:
        file.seek(40_000_000)
        file.write(b"something")
    yield folder
    for each in folder.parent.iterdir():  # who looks through a test's folder may not be root
        for name in ("closed", "shut"):
            if (each / name).exists():
                (each / name).chmod(0o700)


def nested(top: Path, depth: int) -> None:
    current = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d" * 50, dir_fd=current)
        inner = os.open("d" * 50, os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    with os.fdopen(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=current), "w") as file:
        file.write("at the bottom")
    os.link("file", "another name", src_dir_fd=current, dst_dir_fd=current)
    os.close(current)


def test_only_its_owner_may_enter_a_workspace(workspace: Path) -> None:
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700


def _link(path: Path) -> None:
    path.unlink()
    path.symlink_to("elsewhere")


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o644)


_CHANGES: dict[str, Callable[[Path], object]] = {
    "content": lambda path: path.write_text("other"),
    "mode": lambda path: path.chmod(0o711),
    "name": lambda path: path.rename(path.with_name("other")),
    "existence": lambda path: path.unlink(),
    "link": _link,
    "folder": _folder,
}


@pytest.mark.parametrize("change", _CHANGES)
def test_the_digest_sees_each_change(workspace: Path, change: str) -> None:
    (workspace / "file").write_text("first")
    (workspace / "file").chmod(0o644)
    before = digest(workspace)
    _CHANGES[change](workspace / "file")
    assert digest(workspace) != before


def test_the_digest_is_of_a_link_and_not_of_what_it_leads_to(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("one")
    (workspace / "link").symlink_to(tmp_path / "outside")
    before = digest(workspace)
    (tmp_path / "outside").write_text("other")
    assert digest(workspace) == before


def test_a_workspace_without_a_folder_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        digest(tmp_path / "missing")


def test_all_is_flushed_that_is_on_the_disk(filled: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []

    def fsync(opened: int) -> None:
        flushed.append(os.fstat(opened).st_ino)

    monkeypatch.setattr(os, "fsync", fsync)
    assert digest(filled, flush=True) == digest(filled)
    kinds = (stat.S_IFREG, stat.S_IFDIR)
    found = [each.status for each in walk(filled)]
    to_be_flushed = {each.st_ino for each in found if stat.S_IFMT(each.st_mode) in kinds}
    assert set(flushed) == {*to_be_flushed, filled.stat().st_ino}
    assert flushed[-1] == filled.stat().st_ino


def test_unpacked_is_what_was_packed_and_the_same_content_is_the_same_archive(
    filled: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    unpack(pack(filled), copy)
    assert digest(copy) == digest(filled)
    assert (copy / "holes").stat().st_blocks * 512 < 5_000_000
    assert b"".join(pack(copy)) == b"".join(pack(filled))


def test_an_archive_that_is_cut_off_is_noticed(filled: Path, tmp_path: Path) -> None:
    whole = b"".join(pack(filled))
    for number, length in enumerate((0, 10, len(whole) // 2, len(whole) - 1)):
        with pytest.raises(ArchiveBroken):
            unpack(iter([whole[:length]]), tmp_path / f"cut-{number}")


def test_an_archive_in_crumbs_is_an_archive(workspace: Path, tmp_path: Path) -> None:
    (workspace / "file").write_text("first")
    whole = b"".join(pack(workspace))
    unpack((whole[at : at + 1] for at in range(len(whole))), tmp_path / "copy")
    assert (tmp_path / "copy" / "file").read_text() == "first"


@pytest.mark.parametrize("planted", ["a/file", "../fil", "/b/fil", "b/../f"])
def test_an_archive_does_not_lead_out_of_its_folder(
    workspace: Path, tmp_path: Path, planted: str
) -> None:
    (workspace / "a").symlink_to(tmp_path)
    (workspace / "b").mkdir()
    (workspace / "b" / "file").write_text("planted")
    tar = zstd.decompress(b"".join(pack(workspace)))
    at = tar.index(b"b/file")
    header = bytearray(tar[at : at + 512])
    header[:6] = planted.encode()
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    changed = tar[:at] + bytes(header) + tar[at + 512 :]
    with pytest.raises(ArchiveBroken):
        unpack(iter([zstd.compress(changed)]), tmp_path / "copy")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy", "workspace"]


@pytest.mark.root  # who alone can give files away
def test_all_of_a_workspace_is_given_and_nothing_that_links_lead_to(
    filled: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").touch()
    (filled / "link").symlink_to(tmp_path / "outside")
    chown(filled, 200_001)
    assert {entry.status.st_uid for entry in walk(filled)} == {200_001}
    assert filled.stat().st_uid == 200_001
    assert (tmp_path / "outside").stat().st_uid == 0


# Files with holes, files with several names


def sparse(path: Path, size: int, *pieces: tuple[int, bytes]) -> Path:
    with path.open("wb") as file:
        file.truncate(size)
        for place, data in pieces:
            file.seek(place)
            file.write(data)
    return path


def test_the_digest_of_a_workspace_is_what_it_always_was(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    (workspace / "folder").chmod(0o755)
    (workspace / "folder" / "file").write_bytes(b"content" + bytes(3 * BLOCK) + b"end")
    (workspace / "folder" / "file").chmod(0o640)
    (workspace / "link").symlink_to("folder/file")
    assert digest(workspace) == "ffcf17117c1c1da923e42745b17055f02a2a124eb2e6f7f855ce75232b606058"


def test_a_hole_is_digested_as_the_zeros_that_it_holds(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for plain in (1 << 30, 3 * BLOCK, 0):
        monkeypatch.setattr(contents, "PLAIN_ZEROS", plain)
        path = sparse(workspace / "file", 20 * BLOCK + 5, (9 * BLOCK, b"x"))
        with_holes = digest(workspace)
        path.write_bytes(path.read_bytes())
        assert digest(workspace) == with_holes


def test_zeros_that_stand_for_themselves_still_count(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "PLAIN_ZEROS", BLOCK)
    seen = set()
    for size, place in ((20, 9), (21, 9), (20, 10), (40, 9)):
        sparse(workspace / "file", size * BLOCK, (place * BLOCK, b"x"))
        seen.add(digest(workspace))
    assert len(seen) == 4


def test_a_terabyte_of_holes_is_soon_digested_and_packed(workspace: Path, tmp_path: Path) -> None:
    first = sparse(workspace / "huge", 1 << 40, (1 << 39, b"middle"))
    second = tmp_path / "copy" / "huge"
    try:
        packed = b"".join(pack(workspace))
        assert len(packed) < 10_000
        unpack([packed], tmp_path / "copy")
        assert (second.stat().st_size, second.stat().st_blocks * 512 <= BLOCK) == (1 << 40, True)
        assert digest(tmp_path / "copy") == digest(workspace)
    finally:  # others that look through a test's folder read what is there
        first.unlink()
        second.unlink(missing_ok=True)


@pytest.mark.parametrize(
    "pieces", [(), ((0, b"x"),), ((5 * BLOCK - 1, b"x"),)], ids=["nowhere", "begin", "end"]
)
def test_a_file_with_holes_comes_back_wherever_its_data_is(
    workspace: Path, tmp_path: Path, pieces: tuple[tuple[int, bytes], ...]
) -> None:
    path = sparse(workspace / "file", 5 * BLOCK, *pieces)
    unpack(pack(workspace), tmp_path / "copy")
    assert (tmp_path / "copy" / "file").read_bytes() == path.read_bytes()


def test_tar_itself_reads_an_archive(filled: Path, tmp_path: Path) -> None:
    (filled / "again").hardlink_to(filled / "run")
    (tmp_path / "archive.tar").write_bytes(zstd.decompress(b"".join(pack(filled))))
    (tmp_path / "copy").mkdir()
    subprocess.run(["tar", "-xpf", "../archive.tar"], cwd=tmp_path / "copy", check=True)
    assert digest(tmp_path / "copy") == digest(filled)
    assert (tmp_path / "copy" / "holes").stat().st_blocks * 512 < 5_000_000


def test_a_file_with_several_names_is_stored_once(workspace: Path, tmp_path: Path) -> None:
    (workspace / "b").mkdir()
    (workspace / "b" / "first").write_bytes(os.urandom(1_000_000))
    for name in ("c", "d", "a"):
        (workspace / name).hardlink_to(workspace / "b" / "first")
    packed = b"".join(pack(workspace))
    assert len(packed) < 1_100_000
    unpack([packed], tmp_path / "copy")
    assert (tmp_path / "copy" / "b" / "first").stat().st_nlink == 4
    assert digest(tmp_path / "copy") == digest(workspace)


@pytest.mark.parametrize("target", ["../outside", "/outside", "link", "missing", "folder"])
def test_a_second_name_is_only_for_a_file_of_the_archive(
    workspace: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "outside").write_text("not yours")
    (workspace / "folder").mkdir()
    (workspace / "link").symlink_to(tmp_path / "outside")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(workspace / "folder", "folder")
        archive.add(workspace / "link", "link")
        member = tarfile.TarInfo("name")
        member.type, member.linkname = tarfile.LNKTYPE, target
        archive.addfile(member)
    with pytest.raises(ArchiveBroken):
        unpack([zstd.compress(packed.getvalue())], tmp_path / "copy")
    assert (tmp_path / "outside").stat().st_nlink == 1


def test_rights_to_run_as_somebody_else_and_devices_are_not_unpacked(tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("run")
        member.mode = 0o6755
        archive.addfile(member)
    unpack([zstd.compress(packed.getvalue())], tmp_path / "copy")
    assert stat.S_IMODE((tmp_path / "copy" / "run").stat().st_mode) == 0o755
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo("disk")
        member.type = tarfile.BLKTYPE
        archive.addfile(member)
    with pytest.raises(ArchiveBroken):
        unpack([zstd.compress(packed.getvalue())], tmp_path / "other")


@pytest.mark.parametrize("told", ["2\n0\n4\n2\n4\n", "1\n9\n9\n", "1\n-1\n1\n"])
def test_an_archive_that_contradicts_itself_is_none(
    workspace: Path, tmp_path: Path, told: str
) -> None:
    sparse(workspace / "file", 2 * BLOCK)
    tar = zstd.decompress(b"".join(pack(workspace)))
    real = f"1\n{2 * BLOCK}\n0\n".encode()
    assert tar.count(real) == 1
    changed = tar.replace(real, told.encode()[: len(real)].ljust(len(real), b"\0"))
    with pytest.raises(ArchiveBroken):
        unpack([zstd.compress(changed)], tmp_path / "copy")


# Depth


@pytest.fixture
def deep(workspace: Path) -> Path:
    """Folders in one another, far beyond what a path can say, with files in the last."""
    (workspace / ".relocated").write_text("somebody's own")
    nested(workspace, 600)
    return workspace


def test_folders_of_any_depth_come_back_from_an_archive(deep: Path, tmp_path: Path) -> None:
    unpack(pack(deep), tmp_path / "copy")
    assert digest(tmp_path / "copy") == digest(deep)
    assert sum(1 for _ in walk(tmp_path / "copy")) == sum(1 for _ in walk(deep)) == 603
    assert measure(deep, 10_000).names == 603


def test_another_tar_can_unpack_folders_of_any_depth(deep: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    tar = zstd.decompress(b"".join(pack(deep)))
    subprocess.run(["tar", "x", "-C", str(tmp_path / "copy")], input=tar, check=True)
    content = subprocess.run(
        ["find", str(tmp_path / "copy" / ".relocated_"), "-type", "f", "-links", "2"],
        capture_output=True,
        check=True,
    )
    assert content.stdout.count(b"\n") == 2


def test_a_digest_tells_apart_where_something_lies_deep(workspace: Path) -> None:
    found = set[str]()
    for depth in (299, 300, 301):
        (workspace / "top").mkdir()
        nested(workspace / "top", depth)
        found.add(digest(workspace))
        subprocess.run(["rm", "-rf", str(workspace / "top")], check=True)
    assert len(found) == 3


@pytest.mark.parametrize("content", ["../outside/1", "nowhere/here", ".relocated/2"])
def test_an_archive_that_lies_of_what_was_relocated_is_broken(
    workspace: Path, tmp_path: Path, content: str
) -> None:
    nested(workspace, 80)
    tar = zstd.decompress(b"".join(pack(workspace)))
    said = b"TOLLHOUSE.content=.relocated/1\n"
    assert tar.count(said) == 1
    changed = tar.replace(said, b"TOLLHOUSE.content=%b\n" % content.encode())
    with pytest.raises(ArchiveBroken):
        unpack([zstd.compress(changed)], tmp_path / "copy")


# Bounds


def test_a_walk_takes_so_many_names_and_not_more(workspace: Path) -> None:
    (workspace / "folder").mkdir()
    for number in range(4):
        (workspace / "folder" / f"file-{number}").touch()
    assert sum(1 for _ in walk(workspace, most=5)) == 5
    with pytest.raises(TreeTooLarge):
        list(walk(workspace, most=4))


def test_a_file_that_is_written_to_while_it_is_packed_is_noticed(workspace: Path) -> None:
    (workspace / "a").write_bytes(os.urandom(3_000_000))
    packing = pack(workspace)
    next(packing)
    os.truncate(workspace / "a", 100)
    with pytest.raises(FileChanged):
        list(packing)


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


async def test_a_second_archive_takes_the_place_of_the_first_and_stays_without_its_intern(
    archives: ArchiveStore, intern: Intern
) -> None:
    await archives.store(intern, content(b"first"))
    await archives.store(intern, content(b"second"))
    await archives.sweep(known())
    assert await only(archives) == b"second"


async def test_an_attempt_that_fails_leaves_nothing_and_the_archive_before_it(
    archives: ArchiveStore, intern: Intern, blobs: MemoryBlobs
) -> None:
    with pytest.raises(OSError, match="Input/output"):
        await archives.store(intern, cut(b"a" * _PIECE))
    assert blobs.blobs == {}
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
