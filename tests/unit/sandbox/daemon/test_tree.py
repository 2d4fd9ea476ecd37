"""Places in a folder, and none outside it, whatever links say and whoever moves them."""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tollhouse.sandbox.daemon.http import RequestError
from tollhouse.sandbox.daemon.workspace_tree import WorkspaceTree

if TYPE_CHECKING:
    from collections.abc import Iterator


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
