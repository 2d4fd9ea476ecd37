import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tollhouse.interns.workspaces.tree import BLOCK, FileChanged, blocks, extents, read_at

_TIB = 1 << 40


@pytest.fixture
def file(tmp_path: Path) -> Iterator[int]:
    opened = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT, 0o600)
    (tmp_path / "file").unlink()  # others that look through a test's folder read what is there
    yield opened
    os.close(opened)


def test_a_file_of_holes_alone_has_no_data(file: int) -> None:
    os.truncate(file, _TIB)
    assert list(extents(file, _TIB)) == []


def test_an_empty_file_has_no_data(file: int) -> None:
    assert list(extents(file, 0)) == []


def test_data_between_holes_is_found_in_whole_blocks(file: int) -> None:
    os.pwrite(file, b"x", 10 * BLOCK + 5)
    os.pwrite(file, b"x", 20 * BLOCK)
    os.truncate(file, _TIB)
    assert list(extents(file, _TIB)) == [
        (10 * BLOCK, 11 * BLOCK),
        (20 * BLOCK, 21 * BLOCK),
    ]


def test_pieces_that_touch_are_one(file: int) -> None:
    for place in (0, BLOCK // 2, BLOCK, BLOCK + BLOCK // 2):
        os.pwrite(file, b"x", place)
    os.truncate(file, 10 * BLOCK)
    assert list(extents(file, 10 * BLOCK)) == [(0, 2 * BLOCK)]


def test_the_last_piece_ends_with_the_file(file: int) -> None:
    os.pwrite(file, b"x" * (BLOCK + 3), 0)
    assert list(extents(file, BLOCK + 3)) == [(0, BLOCK + 3)]


def test_blocks_of_zeros_are_passed_over_however_they_are_stored(file: int) -> None:
    os.pwrite(file, bytes(BLOCK) + b"x" + bytes(BLOCK - 1) + bytes(BLOCK) + bytes(7), 0)
    assert [place for place, _ in blocks(file, 3 * BLOCK + 7)] == [BLOCK]


def test_a_file_that_was_made_shorter_is_noticed(file: int) -> None:
    os.pwrite(file, b"x" * 100, 0)
    with pytest.raises(FileChanged):
        read_at(file, 0, 101)
