"""What clients of a terminal may ask for and say."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.sandbox.daemon.http import RequestError
from tollhouse.sandbox.daemon.terminals import (
    InvalidMessage,
    TerminalRequest,
    TerminalSize,
    read_control,
    read_query,
)


def test_a_query_that_says_nothing_asks_for_the_main_terminal() -> None:
    assert read_query({}) == TerminalRequest(
        "main", None, "xterm-256color", tty=True, create=True, position=0
    )


def test_a_query_may_say_everything() -> None:
    query = {
        "session": "a.b-c_1",
        "rows": "40",
        "cols": "120",
        "term": "screen",
        "tty": "false",
        "create": "false",
        "from": "77",
    }
    assert read_query(query) == TerminalRequest(
        "a.b-c_1", TerminalSize(40, 120), "screen", tty=False, create=False, position=77
    )


@pytest.mark.parametrize("name", ["", ".x", "-x", "a/b", "a b", "é", "x" * 65, "a\n"])
def test_what_is_no_name_of_a_session_is_refused(name: str) -> None:
    with pytest.raises(RequestError):
        read_query({"session": name})


def test_a_resize_is_read() -> None:
    assert read_control('{"type": "resize", "rows": 40, "cols": 120}') == TerminalSize(40, 120)


def test_an_end_of_input_is_read() -> None:
    assert read_control('{"type": "eof"}') == "eof"


def test_a_hang_up_is_read() -> None:
    assert read_control('{"type": "hangup"}') == "hangup"


def test_of_a_size_that_is_half_said_the_rest_is_usual() -> None:
    assert read_query({"rows": "50"}).size == TerminalSize(50, 80)


@pytest.mark.parametrize("side", ["0", "4097", "-1", "1.5", "true", "null", '"40"', "[]"])
def test_what_is_no_size_is_refused(side: str) -> None:
    with pytest.raises(InvalidMessage):
        read_control(f'{{"type": "resize", "rows": {side}, "cols": 80}}')


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidMessage):
        read_control(text)
