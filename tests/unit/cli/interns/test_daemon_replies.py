"""What a daemon answers: what is taken of it, and what nobody should have to read."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import tables
from tollhouse.cli.errors import CommandFailed
from tollhouse.cli.interns import daemon

CASES = tables(__file__)

ENTRY: dict[str, Any] = CASES["ENTRY"]
HEADERS = {"ETag": '"1-2"', "Content-Length": "5", "File-Mode": "0750"}
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda each: (
        st.lists(each)
        | st.dictionaries(st.sampled_from(["data", "has_more", "name", "size", "error"]), each)
    ),
)


def page(*entries: object, has_more: object = False) -> bytes:
    return json.dumps({"data": entries, "has_more": has_more}).encode()


def named(name: str) -> dict[str, Any]:
    return {**ENTRY, "name": name}


def refused(body: bytes, after: str = "") -> None:
    with pytest.raises(CommandFailed, match="the intern said what cannot be understood"):
        daemon.parse_page(body, after)


def test_fields_of_a_newer_daemon_are_left_out() -> None:
    assert daemon.parse_page(page({**ENTRY, "colour": "red"}), "") == ([ENTRY], False)


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"<html>", b"\xff", b"[]", b"5", b"{}", b'{"data": []}', b"[" * 100_000),
        b'{"data": {}, "has_more": false}',
        b'{"data": [], "has_more": "no"}',
        b'{"data": [1], "has_more": false}',
        b'{"data": [{}], "has_more": false}',
    ],
)
def test_what_is_no_page_is_refused(body: bytes) -> None:
    refused(body)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": 5}, {"name": None}, {"type": []}, {"mode": 0o644}, {"modified_at": {}}),
        *({"size": "5"}, {"size": -1}, {"size": 5.0}, {"size": True}, {"size": 1 << 63}),
        *({"type": "x" * 256}, {"mode": "x" * 256}, {"modified_at": "x" * 256}),
    ],
    ids=str,
)
def test_an_entry_whose_fields_have_other_types_or_sizes_is_refused(wrong: dict[str, Any]) -> None:
    refused(page({**ENTRY, **wrong}))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "/etc/passwd", "../x", "a/b", "a\0", "\ud800", "x" * 256, "é" * 128]
)
def test_a_name_that_no_folder_could_hold_is_refused(name: str) -> None:
    refused(page(named(name)))


@pytest.mark.parametrize(
    ("after", "names"),
    [("", ["b", "a"]), ("", ["a", "a"]), ("b", ["a"]), ("b", ["b"])],
    ids=["backwards", "twice", "before the last part", "the last one again"],
)
def test_names_that_would_have_a_list_go_round_in_circles_are_refused(
    after: str, names: list[str]
) -> None:
    refused(page(*map(named, names), has_more=True), after)


def test_more_names_than_were_asked_for_are_refused() -> None:
    refused(page(*(named(f"{number:04}") for number in range(daemon.PAGE + 1))))


@given(ANY_JSON)
def test_no_json_is_anything_but_a_page_or_refused(told: object) -> None:
    body = json.dumps(told).encode()
    with suppress(CommandFailed):
        daemon.parse_page(body, "")
    with suppress(CommandFailed):
        daemon.parse_entry(body)


@given(st.binary(max_size=1_000))
def test_the_words_of_a_refusal_can_always_be_shown(body: bytes) -> None:
    assert daemon.refusal_text(body).isprintable()


# Files


def test_a_file_without_permissions_is_an_ordinary_one() -> None:
    told = daemon.parse_file_head({"ETag": "x", "Content-Length": "5"})
    assert told is not None
    assert told.mode == 0o644


def test_a_file_never_comes_with_more_than_permissions() -> None:
    told = daemon.parse_file_head({**HEADERS, "File-Mode": "6777"})
    assert told is not None
    assert told.mode == 0o777


@pytest.mark.parametrize(("name", "value"), CASES["a_header_that_cannot_be_relied_on_is_refused"])
def test_a_header_that_cannot_be_relied_on_is_refused(name: str, value: str) -> None:
    with pytest.raises(CommandFailed, match="cannot be understood"):
        daemon.parse_file_head({**HEADERS, name: value})


def test_the_rest_of_a_file_has_its_tag_and_ends_where_it_does() -> None:
    whole = daemon.FileHead("x", 10, 0o644)
    assert daemon.FileHead("x", 6, 0o600).is_rest_of(whole, 4)
    assert not daemon.FileHead("x", 7, 0o644).is_rest_of(whole, 4)
    assert not daemon.FileHead("y", 6, 0o644).is_rest_of(whole, 4)
