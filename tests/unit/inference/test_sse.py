"""The parser beside a second one, written from the standard, which sees the stream in one piece."""

import re
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.seams.inference import EventParser, EventTooLarge, event

BOM = b"\xef\xbb\xbf"
# Mostly what the syntax is made of, so that a random stream has events, line ends and comments.
SYNTAX = st.sampled_from(
    [b"data:", b"data", b" ", b"\n", b"\r", b"\r\n", b"\n\n", b":", b"x", b"id: 1", b"event:", BOM]
)
STREAMS = st.lists(SYNTAX | st.binary(max_size=4), max_size=40).map(b"".join)


def reference(stream: bytes) -> list[bytes]:
    """Source: https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream."""
    stream = stream.removeprefix(BOM)
    *lines, _unfinished = re.split(rb"\r\n|\n|\r", stream)
    events: list[bytes] = []
    data = b""
    for line in lines:
        if line == b"":
            if data:
                events.append(data[:-1])
            data = b""
            continue
        name, _, value = line.partition(b":")
        if name == b"data":
            data += value.removeprefix(b" ") + b"\n"
    return events


def parse(*pieces: bytes) -> list[bytes]:
    parser = EventParser()
    return [data for piece in pieces for data in parser.feed(piece)]


def chopped(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


@settings(deadline=None, max_examples=150)
@given(STREAMS)
@example(b"data")
@example(b"data\n\n")
@example(b"\rdata:1\r\r\n")
def test_any_stream_is_read_as_the_standard_says(stream: bytes) -> None:
    # A stream's last `\r` may be half of a line end; both take it as a whole one.
    assert parse(stream) == reference(stream)


# What providers write: an event at a time, hardly ever anything else in between.
EVENTS = st.sampled_from(
    [
        b"data: x\n\n",
        b"data: \n\n",
        b"data:  y\n\n",
        b"data:z\n\n",
        b"data: a\ndata: b\n\n",
        b"data: x\r\n\r\n",
        b"id: 1\ndata: c\n\n",
        b"event: e\ndata: n\n\n",
        b"event: \ndata: \n\n",
        b"event: e\n\n",
        b"event: e",
        b": ping\n\n",
        b"data: cu",
        b"t\n\n",
        b"\n",
    ]
)


@settings(deadline=None, max_examples=150)
@given(st.lists(st.lists(EVENTS, max_size=3).map(b"".join), max_size=12))
def test_pieces_that_end_where_events_end_are_read_the_same(pieces: list[bytes]) -> None:
    assert parse(*pieces) == reference(b"".join(pieces))


@settings(deadline=None, max_examples=150)
@given(STREAMS, st.lists(st.integers(0, 500), max_size=8))
def test_cuts_do_not_change_the_events(stream: bytes, cuts: list[int]) -> None:
    assert parse(*chopped(stream, cuts)) == parse(stream)


@settings(deadline=None, max_examples=50)
@given(STREAMS)
def test_a_stream_that_comes_byte_by_byte_has_the_same_events(stream: bytes) -> None:
    assert parse(*(bytes([byte]) for byte in stream)) == parse(stream)


@pytest.mark.parametrize("line_end", [b"\n", b"\r", b"\r\n"])
def test_every_line_end_ends_a_line(line_end: bytes) -> None:
    stream = b"data: 1\ndata: 2\n\ndata: 3\n\n".replace(b"\n", line_end)
    for cut in range(len(stream) + 1):
        assert parse(stream[:cut], stream[cut:]) == [b"1\n2", b"3"]


def test_a_byte_order_mark_is_passed_over_wherever_it_is_cut() -> None:
    for cut in range(6):
        assert parse((BOM + b"data: 1\n\n")[:cut], (BOM + b"data: 1\n\n")[cut:]) == [b"1"]


def test_only_the_first_byte_order_mark_is_passed_over() -> None:
    assert parse(BOM + BOM + b"data: 1\n\n") == []


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data:1\n\n", [b"1"]),
        (b"data:  1\n\n", [b" 1"]),
        (b"data: 1 \n\n", [b"1 "]),
        (b"data\n\n", [b""]),
        (b"data\ndata\n\n", [b"\n"]),
        (b"data:\n\n", [b""]),
        (b"data: 1\ndata\ndata: 2\n\n", [b"1\n\n2"]),
        (b": hello\n\n", []),
        (b": hello\ndata: 1\n: again\n\n", [b"1"]),
        (b":\n\n\n\n", []),
        (b"event: x\nid: 7\nretry: 1\ndata: 1\n\n", [b"1"]),
        (b"event: x\n\n", []),
        (b"database: 1\n\n", []),
        (b" data: 1\n\n", []),
        (b"Data: 1\n\n", []),
        (b"data: a:b\n\n", [b"a:b"]),
        (b"data: 1\n", []),
        (b"data: 1", []),
        (b"", []),
    ],
)
def test_a_stream_is_read(stream: bytes, events: list[bytes]) -> None:
    assert parse(stream) == events


def test_an_event_that_is_too_large_is_refused_wherever_it_was_cut() -> None:
    stream = b"data: " + b"x" * 40 + b"\n\n"
    for cut in range(len(stream) + 1):
        parser = EventParser(largest_event=30)
        with pytest.raises(EventTooLarge):  # noqa: PT012 - by either piece
            parser.feed(stream[:cut])
            parser.feed(stream[cut:])


def test_a_line_that_never_ends_is_refused() -> None:
    parser = EventParser(largest_event=1000)
    assert [parser.feed(b"x") for _ in range(1000)] == [[]] * 1000
    with pytest.raises(EventTooLarge):
        parser.feed(b"x")


def test_an_event_of_endless_empty_lines_is_refused() -> None:
    parser = EventParser(largest_event=1000)
    assert [parser.feed(b"data\n") for _ in range(990)] == [[]] * 990
    with pytest.raises(EventTooLarge):
        parser.feed(b"data\n" * 11)


def test_many_events_of_legal_size_are_no_large_event() -> None:
    parser = EventParser(largest_event=20)
    assert sum(len(parser.feed(b"data: 0123456789\n\n")) for _ in range(100)) == 100


def test_a_large_event_in_small_pieces_costs_no_more_than_its_bytes() -> None:
    # Looked at again with every piece, this event would be 30 GB of work.
    parser = EventParser()
    parser.feed(b"data: ")
    for _ in range(8192):
        assert parser.feed(b"x" * 1024) == []
    assert parser.feed(b"\n\n") == [b"x" * 8192 * 1024]


@settings(deadline=None)
@given(st.binary().filter(lambda data: not set(b"\r\n") & set(data)))
def test_a_written_event_is_read_back(data: bytes) -> None:
    assert parse(event(data)) == [data]
