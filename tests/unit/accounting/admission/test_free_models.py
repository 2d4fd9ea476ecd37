"""The limits of free models, and those that a model may have of its own."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from tests.support.clock import START, FakeClock
from tests.support.seams.accounting import (
    FREE_PER_DAY,
    FREE_PER_MINUTE,
    AccountFacts,
    AccountingRules,
    Credits,
    Rate,
)
from tests.unit.accounting.admission.admission_fixture import CREDIT, AdmissionFixture
from tollhouse.kernel.errors import RateLimited, Unavailable

FREE = Rate(FREE_PER_MINUTE, None, 20)
MIDNIGHT = datetime(2026, 3, 13, tzinfo=UTC)


async def ask(admission: AdmissionFixture, **fields: Any) -> str:
    return await admission.admit(**({"free": True, "rate": FREE} | fields))


async def answer(admission: AdmissionFixture, times: int = 1, **fields: Any) -> None:
    """Ask and be answered, three seconds apart: never more than 20 a minute."""
    for _ in range(times):
        admission.settle(await ask(admission, **fields), 0, free_limited=True)
        admission.clock.advance(3)


async def limited(admission: AdmissionFixture, **fields: Any) -> RateLimited:
    with pytest.raises(RateLimited) as caught:
        await ask(admission, **fields)
    return caught.value


async def test_twenty_in_a_minute() -> None:
    admission = AdmissionFixture()
    for _ in range(20):
        await ask(admission)
    error = await limited(admission)
    assert "free-models-per-min" in error.message
    assert (error.window.limit, error.window.remaining) == (20, 0)
    assert error.window.resets_at == START + timedelta(seconds=60)
    admission.clock.advance(60)
    await ask(admission)


async def test_fifty_in_a_utc_day() -> None:
    admission = AdmissionFixture()
    await answer(admission, 50)
    error = await limited(admission)
    assert "free-models-per-day" in error.message
    assert "1000" in error.message
    assert (error.window.limit, error.window.remaining) == (50, 0)
    assert error.window.resets_at == MIDNIGHT
    admission.clock.advance((MIDNIGHT - admission.clock.now()).total_seconds())
    await ask(admission)


@pytest.mark.parametrize(
    ("credits_", "limit"),
    [
        (Credits(purchased_nano=9 * CREDIT - 1), 50),
        (Credits(purchased_nano=9 * CREDIT), 1_000),
        (Credits(granted_nano=100 * CREDIT), 50),
        (Credits(purchased_nano=10 * CREDIT, used_nano=10 * CREDIT), 1_000),
        (Credits(purchased_nano=10 * CREDIT, refunded_nano=2 * CREDIT), 50),
    ],
)
async def test_a_thousand_a_day_from_nine_purchased_credits_on(
    credits_: Credits, limit: int
) -> None:
    admission = AdmissionFixture(credits=credits_)
    seen = await admission.controller.preview(admission.request(free=True))
    assert [cap.limit for cap in seen.request_limits] == [limit]


async def test_own_provider_keys_are_not_limited_and_do_not_count() -> None:
    admission = AdmissionFixture(rules=AccountingRules(free_per_day=1))
    for _ in range(60):
        await ask(admission, own_key=True)
    await ask(admission)
    await limited(admission)
    await ask(admission, own_key=True)


async def test_as_many_requests_with_own_keys_as_a_month_allows_cost_no_fee() -> None:
    rules = AccountingRules(wait_seconds=0, own_fee=Fraction(1, 20), free_own_a_month=2)
    before = START.date().replace(day=1) - timedelta(days=1)
    booked = {START.date(): 1, before: 7}
    admission = AdmissionFixture(rules=rules, own_requests=booked, counted_from=before)

    async def fee(at: datetime = START) -> Fraction:
        wanted = admission.request(20, own_key=True, now=at)
        return (await admission.controller.preview(wanted)).own_fee

    assert await fee() == 0
    running = await admission.admit(20, own_key=True)
    assert await fee() == rules.own_fee
    admission.controller.release(running)
    assert [await fee(), await fee(START - timedelta(days=31))] == [0, rules.own_fee]
    admission.settle(await admission.admit(20, own_key=True), 0, is_byok=True)
    assert [await fee(), await fee(START + timedelta(days=31))] == [rules.own_fee, 0]


async def test_a_request_with_paid_models_beside_goes_on_without_the_free_one() -> None:
    admission = AdmissionFixture(balance=CREDIT, rules=AccountingRules(free_per_day=1))
    both = {"free": True, "only_free": False, "paid": True}
    assert (await admission.controller.admit(admission.request(1, **both))).may_use_free
    assert not (await admission.controller.admit(admission.request(1, **both))).may_use_free


class Others:
    """Stands for other processes, which leave so many free requests of the day and of a minute."""

    def __init__(self, of_the_day: int, of_a_minute: int, *, answer: bool = True) -> None:
        self.left = {"day": of_the_day, "minute": of_a_minute}
        self.answer = answer
        self.held = 0

    def take(self, claim: Any) -> bool:
        self.held += len(claim.amounts)
        return True

    async def take_token(self, *_: object) -> float:
        if not self.answer:
            raise Unavailable("The database does not answer.")
        self.left["minute"] -= 1
        return 0.0 if self.left["minute"] >= 0 else 30.0

    async def wait(self, *_: object) -> bool:
        self.left["day"] -= 1
        self.held += self.left["day"] >= 0
        return self.left["day"] >= 0

    def end(self, claim: Any, *_: object) -> None:
        self.held -= len(claim.amounts)


OWN_THEN_FREE: dict[str, Any] = {
    **dict.fromkeys(("free", "only_free", "free_later", "either_way"), True),
    "paid": False,
    "rate": FREE,
}


@pytest.mark.parametrize("shared", [None, Others(1, 1)])
async def test_what_own_keys_serve_takes_nothing_and_what_they_do_not_takes_one(
    shared: Others | None,
) -> None:
    admission = AdmissionFixture(rules=AccountingRules(free_per_day=1), shared=shared)
    for _ in range(3):
        admission.controller.release(await admission.admit(**OWN_THEN_FREE))
    first, second = [await admission.admit(**OWN_THEN_FREE) for _ in range(2)]
    may_use_free = admission.controller.may_use_free
    assert [await may_use_free(first), await may_use_free(first)] == [True, True]
    assert [await may_use_free(second), await may_use_free(second)] == [False, False]
    if shared is not None:
        assert shared.held == 1
        admission.controller.release(first)
        assert shared.held == 0


@pytest.mark.parametrize("others", [Others(1, 0), Others(0, 1), Others(1, 1, answer=False)])
async def test_a_free_model_is_not_asked_after_own_keys_where_others_leave_nothing(
    others: Others,
) -> None:
    admission = AdmissionFixture(shared=others)
    asked = await admission.admit(**OWN_THEN_FREE)
    assert not await admission.controller.may_use_free(asked)
    assert others.held == 0


async def test_a_clock_that_jumps_back_gives_no_second_day() -> None:
    admission = AdmissionFixture(rules=AccountingRules(free_per_day=3))
    await answer(admission, 1)
    admission.clock.set(admission.clock.now() - timedelta(days=1))
    await answer(admission, 2)
    await limited(admission)


async def test_a_preview_knows_what_other_processes_have_charged() -> None:
    admission = AdmissionFixture(max_age_seconds=60, shared=Others(9, 9))
    seen = await admission.controller.preview(admission.request(free=True))
    assert seen.request_limits[-1].used == 0
    day = admission.clock.now().date()
    admission.loader.account = AccountFacts(free_requests={day: 3})
    seen = await admission.controller.preview(admission.request(free=True))
    assert seen.request_limits[-1].used == 3


async def test_a_preview_shows_what_is_left_of_both_limits() -> None:
    admission = AdmissionFixture()
    await answer(admission, 2)
    await ask(admission)
    seen = await admission.controller.preview(admission.request(free=True, rate=FREE))
    minute, day = seen.request_limits
    assert (minute.bucket, minute.limit, minute.used, minute.held) == (FREE_PER_MINUTE, 20, 3, 0)
    assert minute.remaining == 17
    assert minute.resets_at == START + timedelta(seconds=60)
    assert (day.bucket, day.limit, day.used, day.held) == (FREE_PER_DAY, 50, 2, 1)
    assert day.remaining == 47
    assert day.resets_at == MIDNIGHT


async def test_what_is_left_of_a_limit_that_was_lowered_is_not_negative() -> None:
    admission = AdmissionFixture(rules=AccountingRules(free_per_day=1))
    today = admission.clock.now().date()
    admission.loader.account = AccountFacts(free_requests={today: 3})
    seen = await admission.controller.preview(admission.request(free=True))
    assert [cap.remaining for cap in seen.request_limits] == [0]


async def test_less_than_a_second_too_early_is_too_early() -> None:
    admission = AdmissionFixture(rules=AccountingRules(free_per_minute=1))
    await ask(admission, rate=Rate(FREE_PER_MINUTE, None, 1))
    admission.clock.advance(59.5)
    await limited(admission, rate=Rate(FREE_PER_MINUTE, None, 1))
    admission.clock.advance(0.5)
    await ask(admission, rate=Rate(FREE_PER_MINUTE, None, 1))


async def test_credits_are_no_remedy_for_who_bought_them() -> None:
    bought = AdmissionFixture(balance=10 * CREDIT, rules=AccountingRules(free_per_day_raised=0))
    assert (await limited(bought)).message == (
        "Rate limit exceeded: free-models-per-day. Wait for the next UTC day."
    )


async def test_what_an_exempt_account_asked_does_not_count_once_it_is_exempt_no_more() -> None:
    once = Rate(FREE_PER_MINUTE, None, 1)
    admission = AdmissionFixture(free_limits_exempt=True)
    await admission.admit(free=True, rate=once)
    admission.loader.account = AccountFacts()
    admission.controller.invalidate("account")
    await admission.admit(free=True, rate=once)


async def test_with_the_clock_set_back_requests_of_later_days_count() -> None:
    clock = FakeClock()
    admission = AdmissionFixture(clock=clock, free_requests={clock.now().date(): 3})
    clock.set(clock.now() - timedelta(days=2.3))
    seen = await admission.controller.preview(admission.request(free=True))
    assert [cap.used for cap in seen.request_limits] == [3]


async def test_paid_models_have_no_limit_of_requests() -> None:
    admission = AdmissionFixture(balance=1_000 * CREDIT)
    for _ in range(2_000):
        await admission.admit(1)


async def test_models_with_limits_of_their_own_are_counted_apart() -> None:
    admission = AdmissionFixture(balance=CREDIT)
    large, small = (Rate("requests-per-min", f"acme/{name}", 1) for name in ("large", "small"))
    await admission.admit(1, rate=large)
    with pytest.raises(RateLimited, match="requests-per-min"):
        await admission.admit(1, rate=large)
    await admission.admit(1, rate=small)
