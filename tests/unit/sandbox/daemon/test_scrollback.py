"""What a terminal printed last, found again by position."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tollhouse.sandbox.daemon.terminal import Scrollback


def printed(*pieces: bytes, limit: int = 10) -> Scrollback:
    scrollback = Scrollback(limit)
    for piece in pieces:
        scrollback.append(piece)
    return scrollback


def test_what_is_forgotten_is_not_gone_on_from_inside_a_character() -> None:
    scrollback = printed("xxé日本".encode(), limit=7)  # begins with the last byte of é
    assert scrollback.read(scrollback.start_from(0), 100).decode() == "日本"


def test_bytes_that_are_no_characters_are_not_all_skipped() -> None:
    scrollback = printed(b"\x80" * 20)
    assert len(scrollback.read(scrollback.start_from(0), 100)) == 7


@given(st.lists(st.binary(max_size=30)), st.integers(0, 200))
def test_whoever_reads_on_from_a_position_gets_the_end_of_what_was_printed(
    pieces: list[bytes], wanted: int
) -> None:
    scrollback = printed(*pieces, limit=16)
    everything = b"".join(pieces)
    first = scrollback.start_from(wanted)
    assert scrollback.end == len(everything)
    assert scrollback.read(first, 1000) == everything[first:]
    assert len(everything[first:]) <= 16
