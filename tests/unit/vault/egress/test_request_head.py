"""Heads of requests: where they end, what is refused in them, and what goes on."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tollhouse.vault.egress.rejections import (
    AMBIGUOUS_LENGTH,
    EXTENSION,
    HEAD_TOO_LARGE,
    MALFORMED,
    METHOD,
    Rejected,
    Rejection,
)
from tollhouse.vault.egress.request_head import (
    LARGEST_HEAD,
    HeadReader,
    check_extensions,
    check_framing,
    check_method,
    passed_on,
    values_of,
    wants_websocket,
)

HEAD = b"GET / HTTP/1.1\r\nHost: a.com\r\n\r\n"
CONTROLS = [*range(9), 11, 12, *range(14, 32), 127]


def refusal_of(data: bytes) -> Rejection:
    return refused(HeadReader(data).take)


def refused(check: Callable[..., object], *given: object) -> Rejection:
    with pytest.raises(Rejected) as rejected:
        check(*given)
    return rejected.value.rejection


# Where a head ends


@pytest.mark.parametrize("behind", [b"body", b"\n\0\r"])
def test_a_head_is_taken_with_its_empty_line_and_what_follows_it_is_left(behind: bytes) -> None:
    heads = HeadReader(HEAD + behind)
    assert heads.take() == HEAD
    assert heads.rest() == behind
    assert heads.rest() == b""


def test_heads_that_follow_each_other_are_taken_one_by_one() -> None:
    heads = HeadReader(HEAD * 2)
    assert [heads.take(), heads.take(), heads.take()] == [HEAD, HEAD, None]


@given(st.lists(st.integers(1, len(HEAD) - 1), unique=True).map(sorted))
def test_a_head_that_comes_in_pieces_is_there_with_its_last_byte(cuts: list[int]) -> None:
    heads = HeadReader()
    for start, end in zip([0, *cuts], [*cuts, len(HEAD)], strict=True):
        assert heads.take() is None
        heads.feed(HEAD[start:end])
    assert heads.take() == HEAD


def test_a_reader_has_begun_once_a_byte_of_a_head_has_come() -> None:
    heads = HeadReader()
    assert not heads.begun
    heads.feed(b"G")
    assert heads.begun
    heads.feed(HEAD[1:])
    heads.take()
    assert not heads.begun


def test_a_reader_that_was_emptied_reads_the_next_head_from_its_beginning() -> None:
    heads = HeadReader(b"x" * 50)
    assert heads.take() is None
    assert heads.rest() == b"x" * 50
    heads.feed(b"\r\n" + HEAD)
    with pytest.raises(Rejected):
        heads.take()


# What is refused in one


@pytest.mark.parametrize("code", CONTROLS)
@pytest.mark.parametrize("where", ["target", "name", "value"])
def test_a_control_character_in_a_head_is_refused(where: str, code: int) -> None:
    parts = {"target": b"", "name": b"", "value": b""} | {where: bytes([code])}
    line = b"GET /" + parts["target"] + b"x HTTP/1.1\r\n"
    field = b"a" + parts["name"] + b"b: c" + parts["value"] + b"d\r\n"
    assert refusal_of(line + field + b"\r\n") is MALFORMED


@pytest.mark.parametrize("code", [9, 32, 33, 126, 128, 255])
def test_a_tab_and_what_can_be_seen_may_stand_in_a_value(code: int) -> None:
    head = b"GET / HTTP/1.1\r\na: b" + bytes([code]) + b"c\r\n\r\n"
    assert HeadReader(head).take() == head


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param((b"GET / HTTP/1.1\r", b"\nA: b\r\n\r\n", None), id="in a line's end"),
        pytest.param((b"GET / HTTP/1.1\r\n", b" A: b", MALFORMED), id="before a folded line"),
        pytest.param((b"GET / HTTP/1.1\r", b"A: b", MALFORMED), id="behind a carriage return"),
        pytest.param((b"GET / HTTP/1.1\r\nA: b\r\n\r", b"\n", None), id="in the empty line"),
        pytest.param((b"GET / HTTP/1.1\r\nA: b", b"\n", MALFORMED), id="before a line feed"),
    ],
)
def test_what_is_refused_does_not_depend_on_how_it_came(
    cut: tuple[bytes, bytes, Rejection | None],
) -> None:
    before, after, expected = cut
    heads = HeadReader(before)
    assert heads.take() is None
    heads.feed(after)
    if expected is None:
        assert heads.take() == before + after
        return
    with pytest.raises(Rejected) as refused:
        heads.take()
    assert refused.value.rejection is expected


@given(
    st.lists(
        st.sampled_from([b"a", b"\r", b"\n", b" ", b"\t", b"\r\n", b"\r\n\r\n", b"\0"]), max_size=12
    ).map(lambda parts: b"GET" + b"".join(parts))
)
def test_byte_by_byte_it_ends_as_in_one_piece(data: bytes) -> None:
    def read(pieces: list[bytes]) -> bytes | Rejection | None:
        heads = HeadReader()
        head = None
        try:
            for piece in pieces:
                heads.feed(piece)
                head = head or heads.take()
        except Rejected as refused:
            return refused.rejection
        return head

    whole = read([data])
    apart = read([bytes([each]) for each in data])
    assert apart == whole or isinstance(whole, bytes)  # what follows a head is another's matter


def is_ambiguous(head: bytes) -> bool:
    """Tell, byte by byte, whether two readers could read a head differently."""
    for at, each in enumerate(head):
        before, after, then = head[:at][-1:], head[at + 1 :][:1], head[at + 2 :][:1]
        if each == ord("\n"):
            found = before != b"\r"
        elif each == ord("\r"):
            found = after not in {b"", b"\n"} or then in {b" ", b"\t"}
        else:
            found = each in CONTROLS
        if found:
            return True
    return head.startswith(b"\r")


@given(
    st.lists(
        st.sampled_from([b"a", b"\r", b"\n", b" ", b"\t", b"\r\n", b"\0", b"\x7f", b"\xff"]),
        max_size=12,
    ).map(b"".join)
)
@example(b"GET / HTTP/1.1\nHost: a.com\n\n")
@example(b"GET / HTTP/1.1\r\nHost: a.com\rX: y\r\n\r\n")
@example(b"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n")
@example(b"\r\n\r\n")
@example(b"GET / HTTP/1.1\r\n Host")  # it is not complete, and refused all the same
def test_what_can_be_read_differently_is_refused_and_nothing_else_is(data: bytes) -> None:
    head, end, _ = data.partition(b"\r\n\r\n")
    if is_ambiguous(head + end):
        assert refusal_of(data) is MALFORMED
    else:
        assert HeadReader(data).take() == (head + end if end else None)


def test_a_head_may_have_65536_bytes_and_no_more() -> None:
    fits = b"GET / HTTP/1.1\r\na: " + b"b" * (LARGEST_HEAD - 23) + b"\r\n\r\n"
    assert len(fits) == LARGEST_HEAD == 65_536
    assert HeadReader(fits).take() == fits
    assert refusal_of(fits.replace(b"a: ", b"aa: ")) is HEAD_TOO_LARGE


def test_one_that_never_ends_is_refused_once_it_is_too_large() -> None:
    assert HeadReader(b"a" * LARGEST_HEAD).take() is None
    assert refusal_of(b"a" * (LARGEST_HEAD + 1)) is HEAD_TOO_LARGE


def test_a_large_head_that_comes_byte_by_byte_is_searched_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched = 0

    class Counted:
        def search(self, _data: bytearray, begin: int, end: int) -> None:
            nonlocal searched
            searched += end - begin

    monkeypatch.setattr("tollhouse.vault.egress.request_head._AMBIGUOUS", Counted())
    heads = HeadReader()
    for _ in range(LARGEST_HEAD):
        heads.feed(b"a")
        assert heads.take() is None
    assert searched <= 5 * LARGEST_HEAD  # each time, the few bytes that may begin the empty line


# Fields


def test_values_are_those_of_one_name_in_their_order() -> None:
    headers = [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")]
    assert values_of(headers, b"a") == [b"1", b"3"]
    assert values_of(headers, b"c") == []


def test_a_method_that_would_lead_elsewhere_or_show_the_request_is_refused() -> None:
    for method in (b"CONNECT", b"TRACE", b"TRACK"):
        assert refused(check_method, method) is METHOD
    for method in (b"GET", b"POST", b"OPTIONS", b"PROPFIND", b"ANYTHING"):
        check_method(method)


LENGTH, CHUNKS = (b"content-length", b"3"), (b"transfer-encoding", b"chunked")


@pytest.mark.parametrize(
    ("version", "headers", "is_ambiguous"),
    [
        (b"1.1", [LENGTH, CHUNKS], True),
        (b"1.1", [CHUNKS, LENGTH], True),
        (b"1.0", [CHUNKS], True),
        (b"1.1", [LENGTH, LENGTH], True),
        (b"1.1", [], False),
        (b"1.0", [LENGTH], False),
        (b"1.1", [LENGTH], False),
        (b"1.1", [CHUNKS], False),
    ],
)
def test_the_end_of_a_body_is_told_once(
    version: bytes, headers: list[tuple[bytes, bytes]], *, is_ambiguous: bool
) -> None:
    if is_ambiguous:
        assert refused(check_framing, version, headers) is AMBIGUOUS_LENGTH
    else:
        check_framing(version, headers)


@pytest.mark.parametrize(
    "name",
    [
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-authentication-info", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "expect"),
    ],
)
def test_a_field_that_is_for_the_proxy_does_not_go_on(name: str) -> None:
    assert passed_on([(name.encode(), b"x"), (b"accept", b"y")]) == [(b"accept", b"y")]


def test_any_other_field_goes_on_as_it_is_and_where_it_was() -> None:
    headers = [(b"host", b"A.com"), (b"cookie", b"1"), (b"x", b""), (b"cookie", b"2")]
    assert passed_on(headers) == headers


def test_a_field_that_the_connection_header_names_does_not_go_on() -> None:
    headers = [
        (b"x-one", b"1"),
        (b"connection", b"close, X-One,x-four"),
        (b"x-two", b"2"),
        (b"connection", b"\tx-TWO ,,"),
        (b"x-three", b"3"),
        (b"x-four", b"4"),
    ]
    assert passed_on(headers) == [(b"x-three", b"3")]


@pytest.mark.parametrize("name", ["host", "content-length", "authorization", "cookie"])
def test_a_connection_header_that_takes_away_what_the_host_decides_by_is_refused(name: str) -> None:
    headers = [(b"connection", b"close, " + name.title().encode())]
    assert refused(passed_on, headers) is MALFORMED


WEBSOCKET, UPGRADE = (b"upgrade", b"websocket"), (b"connection", b"upgrade")


@pytest.mark.parametrize(
    ("method", "headers", "wants"),
    [
        (b"GET", [WEBSOCKET, UPGRADE], True),
        (b"GET", [(b"upgrade", b" WebSocket "), (b"connection", b"keep-alive, Upgrade")], True),
        (b"GET", [WEBSOCKET, (b"connection", b"keep-alive,upgrade")], True),
        (b"GET", [WEBSOCKET, (b"connection", b"keep-alive"), UPGRADE], True),
        (b"GET", [WEBSOCKET, UPGRADE, (b"content-length", b"0")], True),
        (b"POST", [WEBSOCKET, UPGRADE], False),
        (b"get", [WEBSOCKET, UPGRADE], False),
        (b"GET", [UPGRADE], False),
        (b"GET", [(b"upgrade", b"h2c"), UPGRADE], False),
        (b"GET", [(b"upgrade", b"websocket, h2c"), UPGRADE], False),
        (b"GET", [WEBSOCKET, (b"upgrade", b"h2c"), UPGRADE], False),
        (b"GET", [WEBSOCKET, (b"connection", b"keep-alive")], False),
        (b"GET", [WEBSOCKET, (b"connection", b"upgrade-x")], False),
        # With a body, whatever its length could be read as
        (b"GET", [WEBSOCKET, UPGRADE, (b"content-length", b"2")], False),
        (b"GET", [WEBSOCKET, UPGRADE, (b"content-length", b"00")], False),
        (b"GET", [WEBSOCKET, UPGRADE, CHUNKS], False),
    ],
)
def test_a_websocket_is_asked_for_by_both_headers_and_without_a_body(
    method: bytes, headers: list[tuple[bytes, bytes]], *, wants: bool
) -> None:
    assert wants_websocket(method, headers) is wants


OFFERED = [(b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits, x-mux")]


@pytest.mark.parametrize(
    ("agreed", "fits"),
    [
        ([], True),
        ([b""], True),
        ([b"permessage-deflate; server_no_context_takeover"], True),
        ([b"x-mux , permessage-deflate"], True),
        ([b"x-mux", b"permessage-deflate;a=1"], True),
        ([b"x-other"], False),
        ([b"x-mux, x-other"], False),
        ([b"x-mux", b"x-other"], False),
        ([b'x-mux; a="b, x-other"'], False),  # what others may read as one more
        ([b"permessage-deflat"], False),
    ],
)
def test_a_host_may_agree_to_extensions_that_were_offered(
    agreed: list[bytes], *, fits: bool
) -> None:
    answered = [(b"sec-websocket-extensions", each) for each in agreed]
    if fits:
        check_extensions(OFFERED, answered)
    else:
        assert refused(check_extensions, OFFERED, answered) is EXTENSION
    assert refused(check_extensions, [], OFFERED) is EXTENSION
