"""How often an account may talk to interns."""

from __future__ import annotations

import pytest

from tests.support.clock import FakeClock
from tollhouse.interns.chat.service import ChatRateLimiter
from tollhouse.kernel.clock import Now
from tollhouse.kernel.errors import RateLimited


def take(pace: ChatRateLimiter, clock: FakeClock, account: str = "a") -> int | None:
    """Return `Retry-After` of a refusal; None where the chat may begin."""
    try:
        pace.take(account, Now.by(clock))
    except RateLimited as error:
        return error.retry_after
    return None


def test_so_many_may_begin_in_a_minute() -> None:
    pace, clock = ChatRateLimiter(2), FakeClock()
    assert [take(pace, clock) for _ in range(3)] == [None, None, 60]


def test_the_wait_is_until_the_oldest_is_a_minute_old() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    take(pace, clock)
    clock.advance(59.5)
    assert take(pace, clock) == 1
    clock.advance(0.5)
    assert take(pace, clock) is None


def test_accounts_do_not_count_for_each_other() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    assert [take(pace, clock, name) for name in "abab"] == [None, None, 60, 60]


def test_a_refusal_says_the_limit() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    take(pace, clock)
    with pytest.raises(RateLimited) as caught:
        pace.take("a", Now.by(clock))
    assert (caught.value.window.limit, caught.value.window.remaining) == (1, 0)


def test_quiet_accounts_are_forgotten() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    for number in range(1_000):
        take(pace, clock, f"account-{number}")
    clock.advance(60)
    take(pace, clock, "another")
    assert len(pace._minutes) == 1  # noqa: SLF001 - nothing else shows it
