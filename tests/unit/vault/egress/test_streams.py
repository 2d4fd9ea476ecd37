"""What passes through a session: how fast, and frames of WebSockets without values."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.redaction import Redactor
from tollhouse.vault.egress.streams import SLICE, BandwidthLimiter, in_slices
from tollhouse.vault.egress.websocket import FrameRedactor


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_what_it_may_move_in_a_minute_costs_no_wait() -> None:
    began = now()
    bandwidth = BandwidthLimiter(6_000)
    assert bandwidth.wait(3_000, began) == 0.0
    assert bandwidth.wait(3_000, began) == pytest.approx(0.0, abs=0.1)


async def test_a_debt_is_paid_by_time() -> None:
    began = now()
    bandwidth = BandwidthLimiter(6_000)
    bandwidth.wait(6_500, began)
    assert bandwidth.wait(0, began + 3) == pytest.approx(2.0, abs=0.1)
    assert bandwidth.wait(0, began + 6) == 0.0


async def test_what_was_not_used_is_not_saved_for_more_than_a_minute() -> None:
    began = now()
    bandwidth = BandwidthLimiter(6_000)
    assert bandwidth.wait(6_000, began + 3_600) == 0.0
    assert bandwidth.wait(1, began + 3_600) == pytest.approx(0.01)


async def test_whoever_owes_something_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await BandwidthLimiter(6_000).consume(6_500)
    assert slept == [pytest.approx(5.0, abs=0.5)]


@given(
    st.lists(st.tuples(st.integers(0, 5_000), st.floats(0, 30)), min_size=1, max_size=30),
)
def test_over_any_time_no_more_moves_than_a_minutes_worth_and_its_rate(
    payments: list[tuple[int, float]],
) -> None:
    async def pay_all() -> tuple[int, float]:
        began = at = now()
        bandwidth, moved = BandwidthLimiter(6_000), 0
        for size, pause in payments:
            at += pause
            at += bandwidth.wait(size, at)
            moved += size
        return moved, at - began

    moved, took = asyncio.run(pay_all())
    assert moved <= 6_000 + 100 * (took + 0.5)


async def test_others_get_their_turn_between_slices() -> None:
    turns: list[str] = []

    def feed(data: bytes) -> bytes:
        turns.append(f"search {len(data)}")
        return data

    async def other() -> None:
        turns.append("other")

    task = asyncio.create_task(other())
    assert await in_slices(feed, b"x" * (SLICE + 1)) == b"x" * (SLICE + 1)
    assert turns == [f"search {SLICE}", "other", "search 1"]
    await task


# Values are taken out of WebSocket frames, also where a value lies in several of them


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


@pytest.mark.parametrize(("first", "second"), [(0xC1, 0), (0xA1, 0), (0x91, 0), (0x81, 0x80)])
def test_a_frame_that_cannot_be_searched_ends_the_connection(first: int, second: int) -> None:
    redactor, begun = FrameRedactor(Redactor([VALUE])), frame(b"begun", last=False)
    hidden = bytes([first, second | 20]) + bytes(30)
    out = b"".join(redactor.feed(bytes([each])) for each in begun + hidden + frame(b"later"))
    assert out + redactor.flush() == begun + b"\x88\x02\x03\xea"


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
