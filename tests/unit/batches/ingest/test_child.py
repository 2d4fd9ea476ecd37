"""The child's side of the talk, without a process."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from tests.unit.batches.ingest.bodies import item, items, submitted
from tollhouse.batches.chunks import MOST_LINES, read_lines
from tollhouse.batches.ingest.child import (
    FROM_CHILD,
    ChunkFile,
    Done,
    FromChild,
    Refused,
    chunk_path,
    run,
)
from tollhouse.batches.ingest.reader import BatchLimits
from tollhouse.kernel.channel import ChannelClosed

if TYPE_CHECKING:
    from pathlib import Path


def answers(body: bytes, folder: Path) -> list[FromChild]:
    """Return what a child says of a body."""
    (folder / "body").write_bytes(body)
    sink = io.BytesIO()
    with io.FileIO(folder / "body") as source:
        run(source, sink, f"{folder}/~", BatchLimits())
    sink.seek(0)
    found: list[FromChild] = []
    try:
        while True:
            found.append(FROM_CHILD.receive_blocking(sink))
    except ChannelClosed:
        return found


def test_each_chunk_is_in_its_file_before_it_is_named(tmp_path: Path) -> None:
    *chunks, done = answers(submitted(*items(MOST_LINES + 1, size=10)), tmp_path)
    assert chunks == [ChunkFile(0, 0, MOST_LINES), ChunkFile(1, MOST_LINES, 1)]
    assert isinstance(done, Done)
    written = [(tmp_path / chunk_path("~", number)).read_bytes() for number in (0, 1)]
    assert [len(read_lines(each)) for each in written] == [MOST_LINES, 1]


def test_a_body_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    body = submitted(item("a"), item("b"))
    for size in range(0, len(body), 7):
        [refused] = answers(body[:size], tmp_path)
        assert isinstance(refused, Refused)
