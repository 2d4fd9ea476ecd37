"""How often an address may ask, and what is remembered of addresses."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.seams.api import (
    AddressRate,
    AddressTable,
    clear_row,
    make_table,
    request_gate,
)


@pytest.mark.parametrize("now", [0.0, 123_456.789, 1e7])
def test_a_burst_of_a_whole_minute_passes_and_no_more(now: float) -> None:
    for per_minute in [*range(1, 130), 600, 6000, 60_000]:
        rate = AddressRate(per_minute)
        assert not any(rate.wait("a", now) for _ in range(per_minute))
        assert rate.wait("a", now) > 0


class Bucket:
    """The same rule, counted naively: a bucket of tokens that fills at a steady rate."""

    def __init__(self, per_minute: int) -> None:
        self.size = float(per_minute)
        self.tokens = self.size
        self.at = 0.0

    def missing(self, now: float) -> float:
        self.tokens = min(self.size, self.tokens + (now - self.at) * self.size / 60)
        self.at = now
        return 1 - self.tokens


@given(
    st.integers(1, 50), st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=80)
)
def test_the_rate_is_that_of_a_bucket_of_tokens(
    per_minute: int, requests: list[tuple[str, float]]
) -> None:
    rate, now = AddressRate(per_minute), 0.0
    buckets = {"a": Bucket(per_minute), "b": Bucket(per_minute)}
    for address, pause in requests:
        now += pause
        bucket = buckets[address]
        missing, wait = bucket.missing(now), rate.wait(address, now)
        if missing > 0.26:
            assert wait == pytest.approx(missing * 60 / per_minute, abs=1e-3)
        elif missing < 0.24:
            assert wait == 0
        if wait == 0:
            bucket.tokens -= 1


def test_the_memory_for_addresses_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_gate, "_MOST_ADDRESSES", 10)
    rate = AddressRate(1)
    for number in range(1000):
        assert rate.wait(str(number), 0.0) == 0
        assert len(rate._due) <= 10  # noqa: SLF001


def test_a_busy_address_is_still_counted_after_idle_ones_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_gate, "_MOST_ADDRESSES", 10)
    rate = AddressRate(60)
    for _ in range(60):
        rate.wait("busy", 0.0)
    for number in range(9):
        rate.wait(str(number), 0.0)
    rate.wait("late", 1.5)
    assert [rate.wait("busy", 1.5) > 0 for _ in range(2)] == [False, True]


def test_processes_count_together_in_a_table() -> None:
    descriptor = make_table(2)
    tables = [AddressTable(descriptor, 2, own, b"key") for own in range(2)]
    rates = [AddressRate(4), AddressRate(4)]
    for rate, table in zip(rates, tables, strict=True):
        rate.shared = table
        table.hold("192.0.2.1", 3)
    assert [rates[number % 2].wait("192.0.2.1", 100.0) for number in range(4)] == [0.0] * 4
    assert all(rate.wait("192.0.2.1", 100.0) for rate in rates)
    assert not rates[0].wait("192.0.2.2", 100.0)
    tables[0].hold("192.0.2.1", -1)
    assert [table.elsewhere("192.0.2.1") for table in tables] == [3, 2]
    clear_row(descriptor, 0)
    assert [table.elsewhere("192.0.2.1") for table in tables] == [3, 0]
    os.close(descriptor)
