"""Text that is put together."""

from __future__ import annotations

import pytest

from tollhouse.sandbox.daemon.sessions.active_run import (
    BUFFER_CHARACTERS,
    BUFFER_SECONDS,
    TextBuffer,
)


def test_what_comes_soon_after_each_other_is_one_piece() -> None:
    pieces = TextBuffer()
    assert not pieces.add("text", "a", 10.0)
    assert not pieces.add("text", "b", 10.0 + BUFFER_SECONDS / 2)
    assert pieces.wait(10.0) == pytest.approx(BUFFER_SECONDS)
    assert pieces.take() == "ab"


def test_nobody_waits_for_what_is_not_there() -> None:
    pieces = TextBuffer()
    assert pieces.wait(10.0) is None
    pieces.add("text", "a", 10.0)
    pieces.take()
    assert pieces.wait(10.0) is None


def test_text_waits_no_longer_than_it_may() -> None:
    pieces = TextBuffer()
    pieces.add("text", "a", 10.0)
    assert pieces.add("text", "b", 10.0 + BUFFER_SECONDS)
    assert pieces.wait(20.0) == 0


def test_much_text_does_not_wait() -> None:
    pieces = TextBuffer()
    assert pieces.add("text", "x" * BUFFER_CHARACTERS, 10.0)
