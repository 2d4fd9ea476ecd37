"""Keys that mean something on this side."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.cli.interns.keys import Keys, Typed


@pytest.mark.parametrize("data", [b"", b"hello\r", b"q", b"\x03\x1a", bytes(range(0x1D))])
def test_what_is_typed_goes_through(data: bytes) -> None:
    assert Keys().typed(data) == Typed(data, leaves=False)


@pytest.mark.parametrize("data", [b"\x1dq", b"\x1dQ"])
def test_ctrl_bracket_q_leaves(data: bytes) -> None:
    assert Keys().typed(data) == Typed(b"", leaves=True)


def test_what_was_typed_before_it_goes_through_and_what_comes_after_does_not() -> None:
    assert Keys().typed(b"ls\r\x1dqexit\r") == Typed(b"ls\r", leaves=True)


def test_the_two_keys_may_come_apart() -> None:
    keys = Keys()
    assert keys.typed(b"\x1d") == Typed(b"", leaves=False)
    assert keys.typed(b"q") == Typed(b"", leaves=True)


def test_ctrl_bracket_twice_is_one() -> None:
    assert Keys().typed(b"\x1d\x1dq") == Typed(b"\x1dq", leaves=False)


def test_ctrl_bracket_before_another_key_goes_through_with_it() -> None:
    assert Keys().typed(b"\x1dx") == Typed(b"\x1dx", leaves=False)


@given(st.lists(st.binary(max_size=4)))
def test_pieces_mean_the_same_as_the_whole(pieces: list[bytes]) -> None:
    keys, passed, leaves = Keys(), b"", False
    for piece in pieces:
        typed = keys.typed(piece)
        passed += typed.data
        leaves = typed.leaves
        if leaves:
            break
    assert Keys().typed(b"".join(pieces)) == Typed(passed, leaves)
