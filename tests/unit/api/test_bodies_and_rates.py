from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tollhouse.api import request_gate
from tollhouse.api.request_bodies import ClientGone, read_body
from tollhouse.api.request_gate import AddressRate
from tollhouse.kernel.errors import PayloadTooLarge, status_of

GONE: dict[str, Any] = {"type": "http.disconnect"}


class Channel:
    """An ASGI channel that gives prepared messages and counts them."""

    def __init__(self, messages: Iterable[dict[str, Any]]) -> None:
        self.left = deque(messages)
        self.taken = 0

    async def __call__(self) -> dict[str, Any]:
        self.taken += 1
        return self.left.popleft()


def pieces(*bodies: bytes) -> Channel:
    last = len(bodies) - 1
    return Channel(
        {"type": "http.request", "body": body, "more_body": number < last}
        for number, body in enumerate(bodies)
    )


# The body


@pytest.mark.parametrize(
    "bodies", [[b""], [b"abc"], [b"a", b"bc"], [b"", b"abc", b""], [b"a", b"b", b"c"], [b"", b""]]
)
async def test_a_body_is_gathered(bodies: list[bytes]) -> None:
    assert await read_body(pieces(*bodies), {}, 3) == b"".join(bodies)


@pytest.mark.parametrize("bodies", [[b"abcd"], [b"ab", b"cd"], [b"abc", b"d"], [b"", b"abcd"]])
async def test_a_body_over_the_limit_is_refused(bodies: list[bytes]) -> None:
    with pytest.raises(PayloadTooLarge) as caught:
        await read_body(pieces(*bodies), {}, 3)
    assert status_of(caught.value) == 413
    assert "3 bytes" in caught.value.message


async def test_a_declared_length_over_the_limit_is_refused_before_anything_is_read() -> None:
    channel = pieces(b"abcd")
    with pytest.raises(PayloadTooLarge):
        await read_body(channel, {b"content-length": b"4"}, 3)
    assert channel.taken == 0


async def test_a_body_in_pieces_is_refused_as_soon_as_it_is_over_the_limit() -> None:
    channel = pieces(*[b"ab"] * 100)
    with pytest.raises(PayloadTooLarge):
        await read_body(channel, {b"transfer-encoding": b"chunked"}, 3)
    assert channel.taken == 2


@pytest.mark.parametrize("length", [b"", b"-1", b"+9", b"9.0", b"0x9", b"nine", b"\xb2"])
async def test_a_declared_length_that_is_no_number_does_not_matter(length: bytes) -> None:
    assert await read_body(pieces(b"abc"), {b"content-length": length}, 3) == b"abc"


async def test_a_declared_length_that_lies_does_not_help() -> None:
    with pytest.raises(PayloadTooLarge):
        await read_body(pieces(b"ab", b"cd"), {b"content-length": b"1"}, 3)


@pytest.mark.parametrize("before", [[], [b""], [b"a"], [b"a", b"b"]])
async def test_a_client_that_leaves_before_the_end_is_gone(before: list[bytes]) -> None:
    messages = [{"type": "http.request", "body": body, "more_body": True} for body in before]
    with pytest.raises(ClientGone):
        await read_body(Channel([*messages, GONE]), {}, 3)


# The rate of an address


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


@settings(deadline=None, max_examples=100)
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=80),
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
