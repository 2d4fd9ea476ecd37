"""Chunks hold what was put into them, or say that they do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.batches.chunks import (
    LARGEST_CHUNK,
    MOST_LINES,
    Chunk,
    ChunkWriter,
    DamagedChunk,
    item_line,
    read_lines,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

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
