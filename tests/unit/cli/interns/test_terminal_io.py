"""Keys that mean something on this side, and input that may have to be sent once more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.interns.terminal_io import WINDOW, DetachKeys, InputBuffer


@pytest.mark.parametrize(
    ("typed", "passed", "leaves"),
    [
        (b"hello\r", b"hello\r", False),
        (bytes(range(0x1D)), bytes(range(0x1D)), False),
        (b"\x1dQ", b"", True),
        (b"ls\r\x1dqexit\r", b"ls\r", True),
        (b"\x1d\x1dq", b"\x1dq", False),
        (b"\x1dx", b"\x1dx", False),
    ],
)
def test_ctrl_bracket_q_leaves_and_all_else_goes_through(
    typed: bytes, passed: bytes, *, leaves: bool
) -> None:
    assert DetachKeys().typed(typed) == (passed, leaves)


@given(st.lists(st.binary(max_size=4)))
def test_pieces_mean_the_same_as_the_whole(pieces: list[bytes]) -> None:
    keys, passed, leaves = DetachKeys(), b"", False
    for piece in pieces:
        typed, leaves = keys.typed(piece)
        passed += typed
        if leaves:
            break
    assert DetachKeys().typed(b"".join(pieces)) == (passed, leaves)


def test_what_is_taken_makes_room_and_a_position_that_is_behind_counts_for_nothing() -> None:
    made = InputBuffer()
    made.add(b"x" * 1000)  # before the first connection
    made.attached(100)
    assert (made.room, made.next(1000)) == (WINDOW - 1000, b"x" * 1000)
    made.attached(104)
    made.taken(102)
    assert made.next(2000) == b"x" * 996
    made.taken(700)
    assert made.room == WINDOW - 400


@given(st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 9), st.booleans())))
def test_however_often_a_connection_drops_all_of_it_comes_once(
    steps: list[tuple[bytes, int, bool]],
) -> None:
    made, come, everything = InputBuffer(), b"", b""
    made.attached(0)
    for data, most, drops in steps:
        made.add(data)
        everything += data
        sent = made.next(most)
        come += sent[: most // 2] if drops else sent
        if drops:
            made.attached(len(come))
        else:
            made.taken(len(come))
    assert come + made.next(10_000) == everything
