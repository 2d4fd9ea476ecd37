"""Values are taken out of WebSocket frames, also where a value lies in several of them."""

from __future__ import annotations

import pytest

from tollhouse.kernel.redaction import Redactor
from tollhouse.vault.egress.websocket import FrameRedactor

VALUE = "gh0_s3cret+value/of=thirty.chars"
TEXT, CONTINUED, PING = 1, 0, 9


def frame(payload: bytes, opcode: int = TEXT, *, last: bool = True) -> bytes:
    size = len(payload)
    length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
    return bytes([opcode | (0x80 if last else 0)]) + length + payload


HALVES = VALUE[:12].encode(), VALUE[12:].encode()
FRAGMENTS = frame(HALVES[0], last=False) + frame(HALVES[1], CONTINUED)


@pytest.mark.parametrize("size", [1, 3, 17, 1_000])
def test_a_value_in_two_frames_of_a_message_is_hidden_whole(size: int) -> None:
    redactor = FrameRedactor(Redactor([VALUE]))
    pieces = [FRAGMENTS[at : at + size] for at in range(0, len(FRAGMENTS), size)]
    out = b"".join(map(redactor.feed, pieces))
    assert out == frame(b"*" * 12, last=False) + frame(b"*" * 20, CONTINUED)


def test_a_value_in_two_messages_that_come_at_once_is_hidden_whole() -> None:
    redactor = FrameRedactor(Redactor([VALUE]))
    out = redactor.feed(frame(b"<" + HALVES[0]) + frame(HALVES[1] + b">"))
    assert out == frame(b"<" + b"*" * 12) + frame(b"*" * 20 + b">")


def test_of_a_value_in_two_messages_the_end_is_hidden() -> None:
    redactor = FrameRedactor(Redactor([VALUE]))
    assert redactor.feed(frame(HALVES[0])) == frame(HALVES[0])
    assert redactor.feed(frame(HALVES[1])) == frame(b"*" * 20)


@pytest.mark.parametrize("size", [0, 5, 125, 126, 2_000])
def test_a_message_goes_on_as_soon_as_it_is_whole(size: int) -> None:
    redactor, message = FrameRedactor(Redactor([VALUE])), frame(b"x" * size)
    begun = redactor.feed(message[:-1])
    assert len(begun) < len(message)
    assert begun + redactor.feed(message[-1:]) == message


def test_a_control_frame_does_not_wait_and_is_searched() -> None:
    redactor = FrameRedactor(Redactor([VALUE]))
    assert redactor.feed(frame(b"begun", last=False)[:-1]) == b"\x01\x05"
    ping = frame(VALUE.encode(), PING)
    assert redactor.feed(b"n" + ping) == b"begun" + frame(b"*" * len(VALUE), PING)
    assert redactor.feed(frame(b" and ended", CONTINUED)) == frame(b" and ended", CONTINUED)


def test_what_is_left_at_the_end_goes_on() -> None:
    redactor = FrameRedactor(Redactor([VALUE]))
    assert redactor.feed(frame(b"cut off")[:-2]) == b"\x81\x07"
    assert redactor.flush() == b"cut o"
