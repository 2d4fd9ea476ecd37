"""Request heads: what goes out is what was meant, or nothing goes out."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.inference.upstream.errors import ConnectFailed, ProtocolViolation
from tollhouse.inference.upstream.head import Origin, read_url, request_head


@pytest.mark.parametrize(
    ("url", "origin", "authority", "path"),
    [
        ("http://a.example", ("http", "a.example", 80), "a.example", "/"),
        ("HTTPS://A.example/v1", ("https", "a.example", 443), "A.example", "/v1"),
        (
            "https://a.example:8443/?q=%2F",
            ("https", "a.example", 8443),
            "a.example:8443",
            "/?q=%2F",
        ),
        ("http://[::1]:80/x/../y#part", ("http", "::1", 80), "[::1]:80", "/x/../y"),
        ("http://a.example?q", ("http", "a.example", 80), "a.example", "/?q"),
    ],
)
def test_a_url_is_taken_apart_and_not_changed(
    url: str, origin: tuple[str, str, int], authority: str, path: str
) -> None:
    assert read_url(url) == (Origin(*origin), authority, path)


@pytest.mark.parametrize(
    "url",
    [
        "ftp://a.example/",
        "http://",
        "http:///x",
        "http://a b/",
        "http://a.example:x/",
        "http://a.example:99999/",
        "http://[::1/",
        "http://user:secret@a.example/",
        "//a.example",
    ],
)
def test_what_is_no_url_of_ours_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ConnectFailed) as caught:
        read_url(url)
    assert not caught.value.sent
    assert "a.example" not in str(caught.value)


@given(st.lists(st.tuples(st.text(max_size=8), st.text(max_size=8)), max_size=4))
def test_fields_can_add_no_line_of_their_own(fields: list[tuple[str, str]]) -> None:
    with suppress(ProtocolViolation):
        head = request_head("GET", read_url("http://a.example/"), tuple(fields), 0)
        lines = head.count(b"\r\n")
        assert lines == head.count(b"\n") == head.count(b"\r") <= len(fields) + 3


@pytest.mark.parametrize("method", ["", "GET /", "POST\r\n", "P\u00d6ST"])
def test_a_method_that_is_no_word_is_refused(method: str) -> None:
    with pytest.raises(ProtocolViolation):
        request_head(method, read_url("http://a.example/"), (), 0)
