"""Which paths name something in the workspace, and which part of a file is meant."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.sandbox.daemon.files import parse_range
from tollhouse.sandbox.daemon.http import RequestError, read_number, read_path

NAMES = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1)


@pytest.mark.parametrize(
    "raw", [b"/..", b"/a/../b", b"/%2e%2E", b"/a/.", b"//a", b"/a//b", b"/a//", b"/%00", b"/%c3"]
)
def test_what_names_nothing_is_refused(raw: bytes) -> None:
    with pytest.raises(RequestError):
        read_path(raw)


@given(st.lists(NAMES.filter(lambda name: name not in {".", ".."}), max_size=4))
def test_names_are_read_as_they_were_escaped(names: list[str]) -> None:
    raw = "".join(f"/{quote(name, safe='')}" for name in names)
    assert read_path(raw.encode()) == tuple(names)


@given(st.binary())
def test_any_path_is_read_or_refused(raw: bytes) -> None:
    try:
        names = read_path(raw)
    except RequestError:
        return
    assert not {"", ".", ".."} & set(names)
    assert not any("/" in name or "\0" in name for name in names)


@pytest.mark.parametrize(
    "text",
    ["", "0", "-1", "+1", " 1", "1.0", "101", "²", "٣", "0" * 20 + "9" * 30, "1" * 5000],
    ids=lambda text: text[:10],
)
def test_what_is_no_number_or_none_that_may_be_is_refused(text: str) -> None:
    with pytest.raises(RequestError, match="from 1 to 100"):
        read_number(text, "limit", default=5, largest=100)


@given(st.integers(0, 50), st.integers(0, 60), st.integers(0, 60))
def test_a_part_is_what_a_slice_of_the_file_is(size: int, first: int, last: int) -> None:
    data = bytes(range(size))
    try:
        part = parse_range(f"bytes={first}-{last}", size)
    except RequestError:
        assert data[first : last + 1] == b""
        return
    if part is None:
        assert last < first
    else:
        assert data[part.start : part.stop] == data[first : last + 1] != b""
