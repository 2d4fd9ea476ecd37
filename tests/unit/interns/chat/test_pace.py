"""How often an account may talk to interns."""

from __future__ import annotations

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


def test_accounts_do_not_count_for_each_other() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    assert [take(pace, clock, name) for name in "abab"] == [None, None, 60, 60]


def test_quiet_accounts_are_forgotten() -> None:
    pace, clock = ChatRateLimiter(1), FakeClock()
    for number in range(1_000):
        take(pace, clock, f"account-{number}")
    clock.advance(60)
    take(pace, clock, "another")
    assert len(pace._minutes) == 1  # noqa: SLF001 - nothing else shows it
