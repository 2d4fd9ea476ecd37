"""Heads of requests: where they end, what is refused in them, and what goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
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
    with pytest.raises(Rejected) as refused:
        HeadReader(data).take()
    return refused.value.rejection


# Where a head ends


def test_a_head_is_taken_with_its_empty_line_and_what_follows_it_is_left() -> None:
    heads = HeadReader(HEAD + b"body")
    assert heads.take() == HEAD
    assert heads.rest() == b"body"
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


def test_a_reader_has_begun_once_a_byte_has_come() -> None:
    heads = HeadReader()
    assert not heads.begun
    heads.feed(b"G")
    assert heads.begun


def test_a_reader_has_not_begun_again_after_a_head() -> None:
    heads = HeadReader(HEAD)
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


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\nHost: a.com\n\n", id="bare line feeds"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a.com\n\r\n", id="one bare line feed"),
        pytest.param(b"\nGET / HTTP/1.1\r\n\r\n", id="a line feed first"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: a.com\rX: y\r\n\r\n", id="a bare carriage return"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\r\r\n\r\n", id="two carriage returns"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", id="folded with a space"),
        pytest.param(b"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n", id="folded with a tab"),
        pytest.param(b"GET / HTTP/1.1\r\n A: b\r\n\r\n", id="a space before the first field"),
        pytest.param(b"\r\nGET / HTTP/1.1\r\n\r\n", id="an empty line first"),
        pytest.param(b"\r\n\r\n", id="nothing but empty lines"),
        pytest.param(b"\r", id="a carriage return first"),
    ],
)
def test_a_head_that_two_readers_read_differently_is_refused(data: bytes) -> None:
    assert refusal_of(data) is MALFORMED


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
    "early",
    [
        pytest.param(b"GET / HTTP/1.1\nHost", id="line feed"),
        pytest.param(b"GET / HTTP/1.1\r\n Host", id="folded"),
        pytest.param(b"GET / HTTP/1.1\rHost", id="carriage return"),
        pytest.param(b"GET /\0", id="zero"),
    ],
)
def test_it_is_refused_before_it_is_complete(early: bytes) -> None:
    assert refusal_of(early) is MALFORMED


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
def test_what_can_be_read_differently_is_refused_and_nothing_else_is(data: bytes) -> None:
    head, end, _ = data.partition(b"\r\n\r\n")
    if is_ambiguous(head + end):
        assert refusal_of(data) is MALFORMED
    else:
        assert HeadReader(data).take() == (head + end if end else None)


def test_what_follows_a_head_is_not_looked_at() -> None:
    heads = HeadReader(HEAD + b"\n\0\r")
    assert heads.take() == HEAD
    assert heads.rest() == b"\n\0\r"


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


@pytest.mark.parametrize("method", [b"CONNECT", b"TRACE", b"TRACK"])
def test_a_method_that_would_lead_elsewhere_or_show_the_request_is_refused(method: bytes) -> None:
    with pytest.raises(Rejected) as refused:
        check_method(method)
    assert refused.value.rejection is METHOD


@pytest.mark.parametrize("method", [b"GET", b"POST", b"OPTIONS", b"PROPFIND", b"ANYTHING"])
def test_any_other_method_goes_on(method: bytes) -> None:
    check_method(method)


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        pytest.param(
            b"1.1",
            [(b"content-length", b"3"), (b"transfer-encoding", b"chunked")],
            id="a length and chunks",
        ),
        pytest.param(
            b"1.1",
            [(b"transfer-encoding", b"chunked"), (b"content-length", b"3")],
            id="chunks and a length",
        ),
        pytest.param(b"1.0", [(b"transfer-encoding", b"chunked")], id="chunks in HTTP 1.0"),
        pytest.param(
            b"1.1", [(b"content-length", b"3"), (b"content-length", b"3")], id="two lengths"
        ),
    ],
)
def test_a_body_whose_end_is_told_twice_is_refused(
    version: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    with pytest.raises(Rejected) as refused:
        check_framing(version, headers)
    assert refused.value.rejection is AMBIGUOUS_LENGTH


@pytest.mark.parametrize(
    ("version", "headers"),
    [
        pytest.param(b"1.1", [], id="no body"),
        pytest.param(b"1.0", [(b"content-length", b"3")], id="a length in HTTP 1.0"),
        pytest.param(b"1.1", [(b"content-length", b"3")], id="a length"),
        pytest.param(b"1.1", [(b"transfer-encoding", b"chunked")], id="chunks"),
    ],
)
def test_a_body_whose_end_is_told_once_goes_on(
    version: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
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
    with pytest.raises(Rejected) as refused:
        passed_on([(b"connection", b"close, " + name.title().encode())])
    assert refused.value.rejection is MALFORMED


@pytest.mark.parametrize(
    ("upgrade", "connection"),
    [
        pytest.param(b"websocket", [b"upgrade"], id="as most write it"),
        pytest.param(b" WebSocket ", [b"keep-alive, Upgrade"], id="in other letters"),
        pytest.param(b"websocket", [b"keep-alive,upgrade"], id="without a space"),
        pytest.param(b"websocket", [b"keep-alive", b"upgrade"], id="in two headers"),
    ],
)
def test_a_websocket_is_asked_for_by_both_headers(upgrade: bytes, connection: list[bytes]) -> None:
    headers = [(b"upgrade", upgrade), *((b"connection", each) for each in connection)]
    assert wants_websocket(b"GET", headers)


@pytest.mark.parametrize(
    ("method", "upgrades", "connection"),
    [
        pytest.param(b"POST", [b"websocket"], b"upgrade", id="by another method"),
        pytest.param(b"get", [b"websocket"], b"upgrade", id="by a method in other letters"),
        pytest.param(b"GET", [], b"upgrade", id="without its name"),
        pytest.param(b"GET", [b"h2c"], b"upgrade", id="another protocol"),
        pytest.param(b"GET", [b"websocket, h2c"], b"upgrade", id="or another protocol"),
        pytest.param(b"GET", [b"websocket", b"h2c"], b"upgrade", id="and another protocol"),
        pytest.param(b"GET", [b"websocket"], b"keep-alive", id="without the connection header"),
        pytest.param(b"GET", [b"websocket"], b"upgrade-x", id="by a longer word"),
    ],
)
def test_anything_else_asks_for_none(
    method: bytes, upgrades: list[bytes], connection: bytes
) -> None:
    headers = [(b"connection", connection), *((b"upgrade", each) for each in upgrades)]
    assert not wants_websocket(method, headers)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param((b"content-length", b"2"), id="a length"),
        pytest.param((b"content-length", b"00"), id="a length that could be read as another"),
        pytest.param((b"transfer-encoding", b"chunked"), id="chunks"),
    ],
)
def test_a_request_with_a_body_asks_for_no_websocket(body: tuple[bytes, bytes]) -> None:
    headers = [(b"upgrade", b"websocket"), (b"connection", b"upgrade")]
    assert not wants_websocket(b"GET", [*headers, body])
    assert wants_websocket(b"GET", [*headers, (b"content-length", b"0")])


OFFERED = [(b"sec-websocket-extensions", b"permessage-deflate; client_max_window_bits, x-mux")]


@pytest.mark.parametrize(
    "agreed",
    [
        pytest.param([], id="none"),
        pytest.param([b""], id="an empty list"),
        pytest.param([b"permessage-deflate; server_no_context_takeover"], id="with parameters"),
        pytest.param([b"x-mux , permessage-deflate"], id="in another order"),
        pytest.param([b"x-mux", b"permessage-deflate;a=1"], id="in two headers"),
    ],
)
def test_a_host_may_agree_to_extensions_that_were_offered(agreed: list[bytes]) -> None:
    check_extensions(OFFERED, [(b"sec-websocket-extensions", each) for each in agreed])


@pytest.mark.parametrize(
    "agreed",
    [
        pytest.param([b"x-other"], id="another"),
        pytest.param([b"x-mux, x-other"], id="one more"),
        pytest.param([b"x-mux", b"x-other"], id="one more in a second header"),
        pytest.param([b'x-mux; a="b, x-other"'], id="what others may read as one more"),
        pytest.param([b"permessage-deflat"], id="the beginning of one"),
    ],
)
def test_an_extension_that_was_not_offered_is_refused(agreed: list[bytes]) -> None:
    with pytest.raises(Rejected) as refused:
        check_extensions(OFFERED, [(b"sec-websocket-extensions", each) for each in agreed])
    assert refused.value.rejection is EXTENSION


def test_where_none_was_offered_each_extension_is_refused() -> None:
    with pytest.raises(Rejected):
        check_extensions([], OFFERED)
