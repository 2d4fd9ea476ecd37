"""Keys that mean something on this side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.interns.terminal_io import DetachKeys


@pytest.mark.parametrize("data", [b"", b"hello\r", b"q", b"\x03\x1a", bytes(range(0x1D))])
def test_what_is_typed_goes_through(data: bytes) -> None:
    assert DetachKeys().typed(data) == (data, False)


@pytest.mark.parametrize("data", [b"\x1dq", b"\x1dQ"])
def test_ctrl_bracket_q_leaves(data: bytes) -> None:
    assert DetachKeys().typed(data) == (b"", True)


def test_what_was_typed_before_it_goes_through_and_what_comes_after_does_not() -> None:
    assert DetachKeys().typed(b"ls\r\x1dqexit\r") == (b"ls\r", True)


def test_the_two_keys_may_come_apart() -> None:
    keys = DetachKeys()
    assert keys.typed(b"\x1d") == (b"", False)
    assert keys.typed(b"q") == (b"", True)


def test_ctrl_bracket_twice_is_one() -> None:
    assert DetachKeys().typed(b"\x1d\x1dq") == (b"\x1dq", False)


def test_ctrl_bracket_before_another_key_goes_through_with_it() -> None:
    assert DetachKeys().typed(b"\x1dx") == (b"\x1dx", False)


@given(st.lists(st.binary(max_size=4)))
def test_pieces_mean_the_same_as_the_whole(pieces: list[bytes]) -> None:
    keys, passed, leaves = DetachKeys(), b"", False
    for piece in pieces:
        typed, leaves = keys.typed(piece)
        passed += typed
        if leaves:
            break
    assert DetachKeys().typed(b"".join(pieces)) == (passed, leaves)
