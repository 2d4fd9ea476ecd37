"""Events of a daemon, from bytes that may be cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.interns.chat.events import (
    DaemonEventTooLarge,
    ServerSentEvent,
    ServerSentEventReader,
)

WHOLE = (
    b": a comment\n\n"
    b"id: 1\nevent: run.started\ndata: {}\n\n"
    b"id:2\r\nevent:text\r\ndata:a\r\ndata: b\r\nretry: 5\r\n\r\n"
    b"\n\n"
    b"data: alone\n\n"
    b"id: 3\nevent: nothing\n\n"
    b"id: 4\nevent: last\ndata\n\n"
)
EVENTS = [
    ServerSentEvent(b"1", b"run.started", b"{}"),
    ServerSentEvent(b"2", b"text", b"a\nb"),
    ServerSentEvent(b"", b"", b"alone"),
    ServerSentEvent(b"4", b"last", b""),
]


def test_events_have_their_number_type_and_data() -> None:
    assert ServerSentEventReader().feed(WHOLE) == EVENTS


@given(st.lists(st.integers(0, len(WHOLE)), max_size=8))
def test_it_does_not_matter_where_the_bytes_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(WHOLE)]
    reader, found = ServerSentEventReader(), list[ServerSentEvent]()
    for begin, end in pairwise(places):
        found += reader.feed(WHOLE[begin:end])
    assert found == EVENTS


@pytest.mark.parametrize(
    "endless",
    [b"data: " + b"x" * 200, b"x" * 200, b"data: x\n" * 40, b": x\n" * 60, b"id: 1\n" * 40],
    ids=["line", "garbage", "data", "comments", "ids"],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_an_event_without_an_end_is_not_held(endless: bytes, size: int) -> None:
    reader = ServerSentEventReader(largest=100)
    pieces = (endless[place : place + size] for place in range(0, len(endless), size))
    with pytest.raises(DaemonEventTooLarge):
        list(map(reader.feed, pieces))
