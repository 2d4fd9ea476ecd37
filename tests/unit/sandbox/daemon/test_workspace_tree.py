"""Places in a folder, and none outside it, whatever links say; what a terminal printed last."""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.sandbox.daemon.http import RequestError
from tollhouse.sandbox.daemon.terminal import Scrollback
from tollhouse.sandbox.daemon.workspace_tree import WorkspaceTree


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("secret")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "folder" / "file").write_text("mine")
    return root


@pytest.fixture
def tree(root: Path) -> Iterator[WorkspaceTree]:
    tree = WorkspaceTree(str(root))
    yield tree
    tree.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def content(tree: WorkspaceTree, *names: str) -> str:
    with tree.place(names) as place:
        file = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=place.folder)
    with os.fdopen(file) as opened:
        return opened.read()


def test_an_absolute_link_into_the_folder_is_followed_by_either_of_its_names(
    root: Path, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(root)
    (root / "one").symlink_to(root / "folder")
    (root / "two").symlink_to(tmp_path / "alias" / "folder")
    tree = WorkspaceTree(str(tmp_path / "alias"))
    assert content(tree, "one", "file") == content(tree, "two", "file") == "mine"
    tree.close()


def test_descriptors_are_closed_however_it_ends(tree: WorkspaceTree) -> None:
    before = descriptors()
    for names in (["folder", "file"], ["none", "x"], ["folder", "file", "x"]):
        with suppress(OSError):
            content(tree, *names)
    assert descriptors() == before


def test_a_folder_that_turns_into_a_link_meanwhile_leads_nowhere_else(
    root: Path, tree: WorkspaceTree, tmp_path: Path
) -> None:
    ended = threading.Event()

    def swap() -> None:
        swapped, kept = root / "swapped", root / "kept"
        swapped.symlink_to(tmp_path / "outside")
        kept.mkdir()
        (kept / "file").write_text("mine")
        while not ended.is_set():
            swapped.rename(root / "aside")
            kept.rename(swapped)
            (root / "aside").rename(kept)

    swapping = threading.Thread(target=swap)
    swapping.start()
    found = Counter[str]()
    while found["mine"] < 100 or found["refused"] < 100:
        try:
            found[content(tree, "swapped", "file")] += 1
        except RequestError:
            found["refused"] += 1
        except OSError:
            found["neither"] += 1
    ended.set()
    swapping.join()
    assert found["secret"] == 0


# What a terminal printed last, found again by position


def printed(*pieces: bytes, limit: int = 10) -> Scrollback:
    scrollback = Scrollback(limit)
    for piece in pieces:
        scrollback.append(piece)
    return scrollback


def test_what_is_forgotten_is_not_gone_on_from_inside_a_character() -> None:
    scrollback = printed("xxé日本".encode(), limit=7)  # begins with the last byte of é
    assert scrollback.read(scrollback.start_from(0), 100).decode() == "日本"


def test_bytes_that_are_no_characters_are_not_all_skipped() -> None:
    scrollback = printed(b"\x80" * 20)
    assert len(scrollback.read(scrollback.start_from(0), 100)) == 7


@given(st.lists(st.binary(max_size=30)), st.integers(0, 200))
def test_whoever_reads_on_from_a_position_gets_the_end_of_what_was_printed(
    pieces: list[bytes], wanted: int
) -> None:
    scrollback = printed(*pieces, limit=16)
    everything = b"".join(pieces)
    first = scrollback.start_from(wanted)
    assert scrollback.end == len(everything)
    assert scrollback.read(first, 1000) == everything[first:]
    assert len(everything[first:]) <= 16
