"""A key's own limit."""

from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.support.seams.accounting import KeyFacts, KeyLimit, Reset, Spend, key_status, key_usage
from tests.unit.accounting.admission.admission_fixture import CREDIT, KEY, AdmissionFixture
from tollhouse.kernel.errors import PaymentRequired

RICH = 1_000 * CREDIT


def limited_key(limit: KeyLimit, clock: FakeClock | None = None, **days: int) -> AdmissionFixture:
    """Return an admission controller with a key that has used so much on some days."""
    admission = AdmissionFixture(balance=RICH, limit=limit, clock=clock)
    spent = {date.fromisoformat(day.replace("_", "-")[1:]): Spend(n) for day, n in days.items()}
    total = sum(spent.values(), Spend())
    admission.loader.keys[KEY] = KeyFacts(limit, total, spent)
    return admission


async def refused(admission: AdmissionFixture, estimate: int = 0, **fields: Any) -> PaymentRequired:
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(estimate, **fields)
    assert caught.value.metadata["limit_source"] == "service_key_limit"
    return caught.value


@pytest.mark.parametrize("include", [False, True])
async def test_use_with_own_provider_keys_counts_where_it_is_included(*, include: bool) -> None:
    admission = limited_key(KeyLimit(10, include_byok=include))
    admission.loader.keys[KEY] = KeyFacts(
        KeyLimit(10, include_byok=include), Spend(byok_usage_nano=10)
    )
    if include:
        await refused(admission, own_key=True)
        await refused(admission, 1)
    else:
        await admission.admit(own_key=True)
        await admission.admit(10)


@pytest.mark.parametrize("reset", Reset)
@pytest.mark.parametrize("days_back", [1, 2.3, 10, 40])
async def test_a_gateway_that_sees_the_clock_set_back_agrees_with_a_new_one_and_the_keys_counters(
    reset: Reset, days_back: float
) -> None:
    clock = FakeClock()
    admission = limited_key(KeyLimit(100, reset), clock)
    days: Counter[date] = Counter()

    async def uses(nano: int) -> None:
        admission.settle(await admission.admit(nano), nano)
        days[clock.now().date()] += nano

    async def agree() -> None:
        spent = {day: Spend(nano) for day, nano in days.items()}
        usage = key_usage(Spend(days.total()), spent, clock.now(), None)
        budget = key_status(KeyLimit(100, reset), usage, clock.now().date()).own_budget
        new = limited_key(KeyLimit(100, reset), clock)
        new.loader.keys[KEY] = KeyFacts(KeyLimit(100, reset), usage.total, spent)
        seen = [await each.controller.preview(each.request(1)) for each in (admission, new)]
        assert budget is not None
        assert {each.credit_limits[0].used_nano for each in seen} == {budget.spend_nano}

    await uses(1)
    clock.set(clock.now() - timedelta(days=days_back))
    await uses(2)
    await agree()
    clock.set(clock.now() + timedelta(days=days_back))
    await uses(4)
    await agree()


async def test_days_that_count_once_the_clock_is_set_back_are_read() -> None:
    clock = FakeClock()
    admission = limited_key(KeyLimit(10, Reset.MONTHLY), clock)
    await admission.admit(1)
    clock.set(clock.now() - timedelta(days=40))
    earlier = {clock.now().date(): Spend(9)}
    admission.loader.keys[KEY] = KeyFacts(KeyLimit(10, Reset.MONTHLY), Spend(9), earlier)
    await refused(admission, 2)


async def test_a_request_from_before_midnight_has_nothing_read_again() -> None:
    clock = FakeClock(datetime(2026, 3, 11, 23, 59, 59, tzinfo=UTC))
    admission = limited_key(KeyLimit(10, Reset.DAILY), clock)
    late = admission.request(1)
    clock.advance(2)
    await admission.admit(1)
    await admission.controller.admit(late)
    await admission.admit(1)
    assert admission.loader.reads == 1


async def test_a_request_from_before_midnight_counts_once_in_the_week() -> None:
    clock = FakeClock(datetime(2026, 3, 11, 23, 59, 59, tzinfo=UTC))
    admission = limited_key(KeyLimit(10, Reset.WEEKLY), clock)
    late = admission.request(4)
    clock.advance(2)
    admission.controller.release(await admission.admit(1))
    await admission.controller.admit(late)
    admission.settle(late.generation_id, 4, created_at=late.now)
    admission.controller.invalidate("account")
    await admission.admit(6)
    await refused(admission, 1)


async def test_what_was_spent_with_the_clock_set_back_leaves_with_its_window() -> None:
    clock = FakeClock()
    admission = limited_key(KeyLimit(10, Reset.DAILY), clock)
    admission.settle(await admission.admit(1), 1)
    clock.set(clock.now() - timedelta(days=1))
    admission.settle(await admission.admit(9), 9)
    admission.controller.invalidate("account")
    clock.set(clock.now() + timedelta(days=2))
    await admission.admit(10)


@pytest.mark.parametrize("reset", [None, *Reset])
@pytest.mark.parametrize("days_back", [0, 1, 2.3, 40])
async def test_with_the_clock_set_back_a_limit_and_the_keys_counters_agree(
    reset: Reset | None, days_back: float
) -> None:
    clock = FakeClock()
    clock.set(clock.now() - timedelta(days=days_back))
    admission = limited_key(
        KeyLimit(100, reset), clock, d2026_03_12=7, d2026_03_11=5, d2026_03_01=3
    )
    seen = await admission.controller.preview(admission.request(1))
    facts = admission.loader.keys[KEY]
    usage = key_usage(facts.total, facts.days, clock.now(), None)
    budget = key_status(facts.limit, usage, clock.now().date()).own_budget
    assert budget is not None
    assert seen.credit_limits[0].used_nano == budget.spend_nano > 0


async def test_what_others_hold_of_a_limit_does_not_bind_who_does_not_count_for_it() -> None:
    admission = limited_key(KeyLimit(CREDIT))
    await admission.admit(CREDIT)
    await admission.admit(CREDIT, own_key=True)
