"""The child's side of the talk, without a process."""

from __future__ import annotations

import io

import pytest

from tests.unit.batches.ingest.bodies import item, submitted
from tollhouse.batches.ingest.child import run
from tollhouse.batches.ingest.frames import END, Cut, body_frames
from tollhouse.batches.ingest.intake import IntakeLimits

BODY = submitted(item("a"), item("b"))
SAID = b"".join(part for frame in body_frames(BODY) for part in frame) + END


@pytest.mark.parametrize("size", range(0, len(SAID), 7))
def test_a_body_that_is_cut_off_is_not_taken_for_a_whole_one(size: int) -> None:
    sink = io.BytesIO()
    with pytest.raises(Cut):
        run(io.BytesIO(SAID[:size]), sink, IntakeLimits())
    assert sink.getvalue() == b""


def test_what_follows_the_end_is_not_read() -> None:
    source, sink = io.BytesIO(SAID + b"more"), io.BytesIO()
    run(source, sink, IntakeLimits())
    assert b'"type":"done"' in sink.getvalue()
    assert source.read() == b"more"
