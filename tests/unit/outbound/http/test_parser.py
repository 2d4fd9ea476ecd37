"""The response parser: wherever the bytes are cut, the same response; nothing is guessed."""

from collections.abc import Iterable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.outbound.http.parser import MAX_HEAD_BYTES, ResponseParser
from tollhouse.outbound.http.port import ProtocolViolation

COUNTED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-A: 1\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nX-Sum: 1\r\n\r\n"
)
INTERIM = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + COUNTED
EMPTY = b"HTTP/1.1 204 No Content\r\n\r\n"


def parse(pieces: Iterable[bytes], method: str = "POST") -> tuple[ResponseParser, bytes]:
    """Return the parser after those pieces, and the body."""
    parser, body = ResponseParser(), b""
    parser.expect(method)
    for piece in pieces:
        parser.feed(piece)
        body += parser.take_body()
    return parser, body


@pytest.mark.parametrize(
    ("data", "status", "headers", "body"),
    [
        (COUNTED, 200, {"content-length": "5", "x-a": "1"}, b"hello"),
        (CHUNKED, 200, {"transfer-encoding": "chunked"}, b"hello"),
        (INTERIM, 200, {"content-length": "5", "x-a": "1"}, b"hello"),
        (EMPTY, 204, {}, b""),
    ],
    ids=["counted", "chunked", "interim", "empty"],
)
@given(data_draw=st.data())
def test_a_response_is_the_same_wherever_it_is_cut(
    data: bytes, status: int, headers: dict[str, str], body: bytes, data_draw: st.DataObject
) -> None:
    cuts = sorted(data_draw.draw(st.sets(st.integers(1, len(data) - 1), max_size=8)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    parser, got = parse(pieces)
    assert parser.complete
    assert parser.reusable
    assert (parser.status, dict(parser.headers), got) == (status, headers, body)


@given(st.data())
def test_a_response_is_complete_with_its_last_byte_and_not_before(draw: st.DataObject) -> None:
    data = draw.draw(st.sampled_from([COUNTED, CHUNKED, INTERIM, EMPTY]))
    cut = draw.draw(st.integers(0, len(data) - 1))
    parser, _ = parse([data[:cut]])
    assert not parser.complete
    assert not parser.end_of_file()


@given(st.binary(max_size=200))
def test_any_bytes_are_a_response_or_a_violation(data: bytes) -> None:
    with suppress(ProtocolViolation):
        parser, got = parse([b"HTTP/1.1 200 OK\r\n", data])
        assert parser.complete <= parser.began
        assert parser.began or not got


@pytest.mark.parametrize("method", ["POST", "HEAD"])
@pytest.mark.parametrize("leftover", [b"HTTP/1.1 200 OK\r\n", b"x", b"\x00"])
def test_bytes_behind_a_response_leave_it_whole_and_the_connection_useless(
    method: str, leftover: bytes
) -> None:
    parser, got = parse([(COUNTED[:-5] if method == "HEAD" else COUNTED) + leftover], method)
    assert got == (b"" if method == "HEAD" else b"hello")
    assert parser.complete
    assert not parser.reusable


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: a\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 1\n\n",
        b"HTTP/2.0 200 OK\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ],
)
def test_framing_that_could_be_read_in_two_ways_is_refused(head: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        parse([head])


@pytest.mark.parametrize(
    "endless",
    [
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 ",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: ",
    ],
    ids=["field", "status-line", "chunk-extension", "trailer"],
)
def test_what_does_not_end_is_refused_and_not_kept(endless: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        parse([endless, *[b"y" * 1000] * (MAX_HEAD_BYTES // 1000 + 1)])


def test_trailers_count_against_the_same_bound_as_the_head() -> None:
    trailers = b"".join(b"X-%d: y\r\n" % number for number in range(257))
    with pytest.raises(ProtocolViolation):
        parse([CHUNKED.removesuffix(b"X-Sum: 1\r\n\r\n"), trailers])


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_a_connection_that_the_server_will_close_is_not_used_again(head: bytes) -> None:
    parser, _ = parse([head])
    assert parser.complete
    assert not parser.reusable


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    parser, got = parse([b"HTTP/1.1 200 OK\r\n\r\n", b"hello"])
    assert not parser.complete
    assert parser.end_of_file()
    assert got == b"hello"
    assert not parser.reusable


def test_a_second_response_may_follow_one_to_head() -> None:
    parser, _ = parse([COUNTED[:-5]], "HEAD")
    assert parser.reusable
    parser.expect("POST")
    parser.feed(COUNTED)
    assert parser.take_body() == b"hello"
