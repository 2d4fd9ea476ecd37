"""Request heads: what goes out is what was meant, or nothing goes out."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import tables
from tollhouse.outbound.http.parser import Origin, read_url, request_head, request_start
from tollhouse.outbound.http.port import ConnectFailed, ProtocolViolation

CASES = tables(__file__)


@pytest.mark.parametrize(
    ("url", "origin", "authority", "path"), CASES["a_url_is_taken_apart_and_not_changed"]
)
def test_a_url_is_taken_apart_and_not_changed(
    url: str, origin: tuple[str, str, int], authority: str, path: str
) -> None:
    assert read_url(url) == (Origin(*origin), authority, path)


@pytest.mark.parametrize("url", CASES["what_is_no_url_of_ours_is_refused_without_being_shown"])
def test_what_is_no_url_of_ours_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConnectFailed) as caught:
        read_url(url)
    assert not caught.value.sent
    assert "a.example" not in str(caught.value)


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=4))
def test_fields_can_add_no_line_of_their_own(fields: list[tuple[str, str]]) -> None:
    with suppress(ProtocolViolation):
        head = request_start("GET", read_url("http://a.example/"), fields)
        lines = head.count(b"\r\n")
        assert lines == head.count(b"\n") == head.count(b"\r") <= len(fields) + 2


@pytest.mark.parametrize("method", ["", "GET /", "POST\r\n", "P\u00d6ST"])
def test_a_method_that_is_no_word_is_refused(method: str) -> None:
    with pytest.raises(ProtocolViolation):
        request_start(method, read_url("http://a.example/"), ())


@pytest.mark.parametrize(
    ("method", "body_size", "length"),
    [
        ("GET", 0, b""),
        ("POST", 0, b"Content-Length: 0\r\n"),
        ("GET", 3, b"Content-Length: 3\r\n"),
        ("POST", 3, b"Content-Length: 3\r\n"),
    ],
)
def test_a_head_tells_the_length_of_a_body_that_is_there_or_expected(
    method: str, body_size: int, length: bytes
) -> None:
    start = request_start(method, read_url("http://a.example/"), ())
    assert request_head(start, method, body_size) == start + length + b"\r\n"
