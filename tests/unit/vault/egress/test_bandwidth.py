"""How long a session waits that has moved more than it may."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.vault.egress.streams import SLICE, BandwidthLimiter, in_slices


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
