"""Events of a daemon: from bytes that may be cut anywhere, to what they mean."""

import json
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.interns.chat.events import (
    DaemonEvent,
    DaemonEventTooLarge,
    DaemonTextEvent,
    EventDecoder,
    MalformedEvent,
    ServerSentEvent,
    ServerSentEventReader,
)

RUN = {"run": "r-1"}
MALFORMED = yaml.safe_load(Path(__file__).with_name("events.yaml").read_text())


def sent(kind: str, data: Any, number: object = 1) -> ServerSentEvent:
    return ServerSentEvent(str(number).encode(), kind.encode(), json.dumps(data).encode())


def read(kind: str, **data: Any) -> DaemonEvent | None:
    return EventDecoder().read(sent(kind, {**RUN, **data}))


def test_any_event_may_say_which_model_works() -> None:
    assert read("text", text="x", model="a/b") == DaemonTextEvent(text="x", model="a/b")


@pytest.mark.parametrize(("kind", "data"), MALFORMED, ids=str)
def test_an_event_with_a_wrong_type_is_garbage(kind: str, data: dict[str, Any]) -> None:
    with pytest.raises(MalformedEvent):
        read(kind, **data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'{"text": "\xff"}',
        b'{"text": "\\ud800"}',
        b"[" * 100_000,
        b'{"text": "a", "x": ' + b"[" * 100_000,
    ],
    ids=["nothing", "cut", "null", "list", "bytes", "surrogate", "deep", "deep inside"],
)
def test_what_is_no_json_object_is_garbage(data: bytes) -> None:
    with pytest.raises(MalformedEvent):
        EventDecoder().read(ServerSentEvent(b"1", b"text", data))


def test_numbers_begin_anywhere_and_have_no_hole() -> None:
    numbered = EventDecoder()
    for number in (7, 8, 9):
        assert numbered.read(sent("text", {"text": "x"}, number)) == DaemonTextEvent(text="x")


@pytest.mark.parametrize("second", [1, 3, 0, 2.5, -2, "", "x", "9" * 30, "²"])
def test_a_number_that_is_not_the_next_is_garbage(second: object) -> None:
    numbered = EventDecoder()
    numbered.read(sent("text", {"text": "x"}, 1))
    with pytest.raises(MalformedEvent):
        numbered.read(sent("text", {"text": "x"}, second))


@given(st.sampled_from(["run.started", "text", "question", "run.ended"]), st.binary(max_size=200))
def test_garbage_is_never_anything_else(kind: str, data: bytes) -> None:
    with suppress(MalformedEvent):
        EventDecoder().read(ServerSentEvent(b"1", kind.encode(), data))


# Events of a daemon, from bytes that may be cut anywhere


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
