"""Input that may have to be sent once more."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.interns.terminal_io import WINDOW, InputBuffer


def unsent(data: bytes, position: int = 0) -> InputBuffer:
    made = InputBuffer()
    made.attached(position)
    made.add(data)
    return made


def test_input_is_sent_in_pieces() -> None:
    made = unsent(b"abcdef")
    assert [made.next(4), made.next(4), made.next(4)] == [b"abcd", b"ef", b""]


def test_what_was_typed_before_the_first_connection_is_sent_on_it() -> None:
    made = InputBuffer()
    made.add(b"early")
    made.attached(1000)
    assert made.next(100) == b"early"


def test_a_new_connection_gets_what_had_not_come() -> None:
    made = unsent(b"abcdef", position=100)
    made.next(100)
    made.attached(104)
    assert made.next(100) == b"ef"


def test_a_new_connection_gets_all_that_had_not_been_sent() -> None:
    made = unsent(b"abcdef")
    made.next(2)
    made.attached(2)
    assert made.next(100) == b"cdef"


def test_what_is_taken_makes_room() -> None:
    made = unsent(b"x" * 1000)
    assert made.room == WINDOW - 1000
    made.next(1000)
    made.taken(600)
    assert made.room == WINDOW - 400


def test_what_is_taken_is_not_sent_again() -> None:
    made = unsent(b"abcdef")
    made.next(4)
    made.taken(3)
    assert made.next(100) == b"ef"


def test_a_position_that_is_behind_counts_for_nothing() -> None:
    made = unsent(b"abcdef")
    made.next(6)
    made.attached(4)
    made.taken(2)
    assert made.next(100) == b"ef"


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 9), st.booleans())))
def test_however_often_a_connection_drops_all_of_it_comes_once(
    steps: list[tuple[bytes, int, bool]],
) -> None:
    made, come, everything = unsent(b""), b"", b""
    for data, most, drops in steps:
        made.add(data)
        everything += data
        sent = made.next(most)
        come += sent[: most // 2] if drops else sent
        if drops:
            made.attached(len(come))
        else:
            made.taken(len(come))
    come += made.next(10_000)
    assert come == everything
