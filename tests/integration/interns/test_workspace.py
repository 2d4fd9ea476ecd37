import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from backports import zstd

from tollhouse.interns.archive import ArchiveBroken, pack, unpack
from tollhouse.interns.tree import walk
from tollhouse.interns.workspace import digest, flush, give, make


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    make(folder)
    return folder


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
    os.close(current)


def test_only_its_owner_may_enter_a_workspace(workspace: Path) -> None:
    assert stat.S_IMODE(workspace.stat().st_mode) == 0o700


async def test_the_digest_survives_what_strangers_leave(filled: Path) -> None:
    first = await digest(filled)
    assert len(first) == 64
    assert await digest(filled) == first


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
async def test_the_digest_sees_each_change(workspace: Path, change: str) -> None:
    (workspace / "file").write_text("first")
    (workspace / "file").chmod(0o644)
    before = await digest(workspace)
    _CHANGES[change](workspace / "file")
    assert await digest(workspace) != before


async def test_the_digest_is_of_a_link_and_not_of_what_it_leads_to(
    workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("one")
    (workspace / "link").symlink_to(tmp_path / "outside")
    before = await digest(workspace)
    (tmp_path / "outside").write_text("other")
    assert await digest(workspace) == before


async def test_a_workspace_without_a_folder_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await digest(tmp_path / "missing")


async def test_all_can_be_flushed(filled: Path) -> None:
    await flush(filled)


async def test_unpacked_is_what_was_packed(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    unpack(pack(filled), copy)
    assert await digest(copy) == await digest(filled)
    assert (copy / "holes").stat().st_blocks * 512 < 5_000_000


def test_the_same_content_is_the_same_archive(filled: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    unpack(pack(filled), copy)
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


async def test_folders_nested_beyond_any_path_are_walked(workspace: Path, tmp_path: Path) -> None:
    nested(workspace, 100)
    try:
        assert sum(1 for _ in walk(workspace)) == 100
        unpack(pack(workspace), tmp_path / "copy")
        assert await digest(tmp_path / "copy") == await digest(workspace)
    finally:  # others that look through a test's folder go by paths
        shutil.rmtree(workspace)
        shutil.rmtree(tmp_path / "copy", ignore_errors=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_all_of_a_workspace_is_given_and_nothing_that_links_lead_to(
    filled: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").touch()
    (filled / "link").symlink_to(tmp_path / "outside")
    give(filled, 200_001)
    assert {entry.status.st_uid for entry in walk(filled)} == {200_001}
    assert filled.stat().st_uid == 200_001
    assert (tmp_path / "outside").stat().st_uid == 0
