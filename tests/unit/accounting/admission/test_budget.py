"""The six rules of the in-flight budget, and the balance."""

from __future__ import annotations

import asyncio
from fractions import Fraction
from typing import Any

import pytest

from tests.support.waiting import take_turns
from tests.unit.accounting.admission.admission_fixture import CREDIT, AdmissionFixture, limits
from tollhouse.accounting.limits import AccountingRules
from tollhouse.accounting.types import Credits, KeyLimit
from tollhouse.identity.types import AccountType
from tollhouse.kernel.errors import PaymentRequired

FULL = AccountingRules(fraction=Fraction(1), wait_seconds=0)


async def refused(admission: AdmissionFixture, estimate: int = 0, **fields: Any) -> PaymentRequired:
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(estimate, **fields)
    return caught.value


async def test_requests_fit_until_their_estimates_fill_the_budget() -> None:
    admission = AdmissionFixture(balance=10 * CREDIT)
    for _ in range(5):
        await admission.admit(CREDIT)
    error = await refused(admission, CREDIT)
    assert error.metadata["reason"] == "in_flight_budget_exhausted"
    assert error.metadata["limit_source"] == "service_in_flight_budget"
    assert error.retry_after == 5


async def test_the_actual_cost_stays_for_the_settlement_window() -> None:
    admission = AdmissionFixture(balance=10 * CREDIT)
    first = await admission.admit(2 * CREDIT)
    admission.settle(first, 2 * CREDIT)
    # The balance is 8 now, the budget 4, and 2 of it are taken by what has ended.
    await admission.admit(2 * CREDIT)
    assert (await refused(admission, 1)).metadata["reason"] == "in_flight_budget_exhausted"
    admission.clock.advance(5)
    await admission.admit(2 * CREDIT)


async def test_a_402_with_nothing_running_is_possible_and_passes() -> None:
    admission = AdmissionFixture(balance=10 * CREDIT)
    for _ in range(2):
        admission.settle(await admission.admit(2 * CREDIT), 2 * CREDIT)
    error = await refused(admission, 2 * CREDIT)
    assert error.metadata["limit_source"] == "service_in_flight_budget"
    assert admission.controller.holds == 0
    assert error.retry_after == 5
    admission.clock.advance(error.retry_after)
    await admission.admit(2 * CREDIT)


async def test_retry_after_is_when_enough_of_what_has_ended_leaves() -> None:
    admission = AdmissionFixture(balance=20 * CREDIT)
    for _ in range(3):
        admission.settle(await admission.admit(2 * CREDIT), 2 * CREDIT)
        admission.clock.advance(1)
    # Balance 14, budget 7, held 6: two credits fit once the first has left.
    assert (await refused(admission, 2 * CREDIT)).retry_after == 2


async def test_a_failed_request_frees_what_it_held() -> None:
    admission = AdmissionFixture(balance=4 * CREDIT)
    first = await admission.admit(2 * CREDIT)
    await refused(admission, CREDIT)
    admission.controller.release(first)
    await admission.admit(2 * CREDIT)


async def test_a_request_heavier_than_the_whole_budget_is_refused_for_good() -> None:
    admission = AdmissionFixture(balance=3 * CREDIT)
    error = await refused(admission, 2 * CREDIT, open_ended=True)
    assert error.metadata["reason"] == "weight_exceeds_budget"
    assert error.metadata["limit_source"] == "service_credits"
    assert "max_tokens" in str(error.metadata["remedy_hint"])
    assert "no max_tokens" in error.message
    assert error.retry_after is None


async def test_it_is_told_at_once_although_others_could_be_waited_for() -> None:
    admission = AdmissionFixture(balance=3 * CREDIT, rules=AccountingRules(wait_seconds=3_600))
    await admission.admit(CREDIT)
    assert (await refused(admission, 2 * CREDIT)).metadata["reason"] == "weight_exceeds_budget"


async def test_the_budget_has_a_ceiling() -> None:
    admission = AdmissionFixture(balance=499 * CREDIT)
    for _ in range(25):
        await admission.admit(2 * CREDIT)
    assert (await refused(admission, 1)).metadata["reason"] == "in_flight_budget_exhausted"


async def test_no_budget_applies_from_the_threshold_on() -> None:
    admission = AdmissionFixture(balance=500 * CREDIT)
    for _ in range(100):
        await admission.admit(2 * CREDIT)


@pytest.mark.parametrize("kind", [each for each in AccountType if each is not AccountType.PREPAID])
async def test_it_applies_to_prepaid_accounts_alone(kind: AccountType) -> None:
    admission = AdmissionFixture(balance=20 * CREDIT, type=kind)
    for _ in range(10):
        await admission.admit(2 * CREDIT)


async def test_it_does_not_apply_to_free_models_own_keys_and_mere_fees() -> None:
    admission = AdmissionFixture(balance=CREDIT)
    await admission.admit(CREDIT // 2)
    await admission.admit(free=True)
    await admission.admit(2 * CREDIT, own_key=True)
    await admission.admit(0, paid=True)


async def test_new_accounts_are_held_to_it_where_that_is_switched_on() -> None:
    rules = AccountingRules(new_accounts=True, wait_seconds=0)
    admission = AdmissionFixture(balance=1_000 * CREDIT, rules=rules)
    for _ in range(25):
        await admission.admit(2 * CREDIT)
    await refused(admission, CREDIT)
    used = AdmissionFixture(
        rules=rules, credits=Credits(purchased_nano=1_000 * CREDIT, used_nano=1)
    )
    for _ in range(50):
        await used.admit(2 * CREDIT)


async def test_without_credits_nothing_paid_begins() -> None:
    error = await refused(AdmissionFixture(balance=0), paid=True)
    assert error.metadata["reason"] == "insufficient_credits"
    assert error.metadata["limit_source"] == "service_credits"
    assert error.retry_after is None
    await AdmissionFixture(balance=0).admit(free=True)


async def test_a_negative_balance_refuses_free_models_too() -> None:
    admission = AdmissionFixture(credits=Credits(purchased_nano=CREDIT, used_nano=2 * CREDIT))
    error = await refused(admission, free=True)
    assert error.metadata["reason"] == "negative_balance"
    assert error.metadata["limit_source"] == "service_credits"


async def test_a_subscription_needs_credits() -> None:
    admission = AdmissionFixture(type=AccountType.SUBSCRIPTION)
    assert (await refused(admission, 1)).metadata["reason"] == "insufficient_credits"


async def test_charges_count_before_they_are_booked_and_once_afterwards() -> None:
    admission = AdmissionFixture(balance=4 * CREDIT, rules=FULL)
    record = admission.record(await admission.admit(2 * CREDIT), 2 * CREDIT)
    admission.controller.charged(record)
    admission.clock.advance(5)
    await refused(admission, 2 * CREDIT + 1)
    admission.controller.booked([record])
    admission.loader.account = type(admission.loader.account)(
        credits=Credits(purchased_nano=4 * CREDIT, used_nano=2 * CREDIT)
    )
    admission.controller.invalidate("account")
    await refused(admission, 2 * CREDIT + 1)
    await admission.admit(2 * CREDIT)


async def test_every_402_lists_the_limits_and_the_binding_one_first() -> None:
    admission = AdmissionFixture(balance=10 * CREDIT)
    admission.settle(await admission.admit(2 * CREDIT), CREDIT)
    await admission.admit(2 * CREDIT)
    error = await refused(admission, 2 * CREDIT)
    assert limits(error) == [
        {
            "limit_source": "service_in_flight_budget",
            "payer": False,
            "limit": 4.5,
            "used": 1.0,
            "held": 2.0,
            "remaining": 1.5,
            "resets_at": None,
        },
        {
            "limit_source": "service_credits",
            "payer": False,
            "limit": 10.0,
            "used": 1.0,
            "held": 2.0,
            "remaining": 7.0,
            "resets_at": None,
        },
    ]
    assert error.metadata["error_type"] == "payment_required"
    assert error.metadata["remedy_hint"]


async def test_the_prefix_of_limit_source_is_a_setting() -> None:
    rules = AccountingRules(source_prefix="acme_", wait_seconds=0)
    error = await refused(AdmissionFixture(rules=rules), 1)
    assert error.metadata["limit_source"] == "acme_credits"
    assert {each["limit_source"] for each in limits(error)} == {
        "acme_credits",
        "acme_in_flight_budget",
    }


async def test_half_of_the_least_balance_is_a_budget_of_nothing() -> None:
    error = await refused(AdmissionFixture(balance=1), 1)
    assert error.metadata["reason"] == "weight_exceeds_budget"


async def test_a_request_that_the_balance_cannot_cover_is_refused_for_good() -> None:
    admission = AdmissionFixture(balance=4 * CREDIT)
    error = await refused(admission, 2 * CREDIT, maximum_nano=100 * CREDIT)
    assert error.metadata["reason"] == "weight_exceeds_credits"
    assert error.retry_after is None
    assert error.message == (
        "The request may cost 100 credits; 4 are left of the account's balance."
    )


@pytest.mark.parametrize("balance", [4 * CREDIT, 600 * CREDIT])
async def test_requests_at_once_cannot_overdraw_the_balance(balance: int) -> None:
    admission = AdmissionFixture(balance=balance)
    each = balance // 4
    running = [await admission.admit(0, maximum_nano=each) for _ in range(4)]
    error = await refused(admission, 0, maximum_nano=each)
    assert (error.metadata["reason"], error.retry_after) == ("credits_held", 5)
    admission.controller.release(running[0])
    await admission.admit(0, maximum_nano=each)


async def test_nobody_passes_those_who_wait_for_credits() -> None:
    admission = AdmissionFixture(rules=AccountingRules(wait_seconds=5), balance=600 * CREDIT)
    first = await admission.admit(0, maximum_nano=400 * CREDIT)
    large = asyncio.ensure_future(admission.admit(0, maximum_nano=500 * CREDIT))
    await take_turns()
    small = asyncio.ensure_future(admission.admit(0, maximum_nano=CREDIT))
    await take_turns()
    assert (large.done(), small.done()) == (False, False)
    admission.controller.release(first)
    await asyncio.gather(large, small)


async def test_a_prompt_that_the_balance_cannot_cover_is_refused() -> None:
    admission = AdmissionFixture(balance=CREDIT)
    error = await refused(admission, 1, maximum_nano=9, minimum_nano=2 * CREDIT, open_ended=True)
    assert error.message.startswith("The request's prompt alone may cost 2 credits")


async def test_without_a_limit_of_output_no_more_can_be_spent_than_is_left() -> None:
    admission = AdmissionFixture(balance=CREDIT, limit=KeyLimit(CREDIT // 2))
    request = admission.request(1, maximum_nano=9 * CREDIT, minimum_nano=1, open_ended=True)
    assert (await admission.controller.admit(request)).spendable_nano == CREDIT // 2
    admission.controller.release(request.generation_id)
    request = admission.request(1, maximum_nano=CREDIT // 2, minimum_nano=1, open_ended=True)
    assert (await admission.controller.admit(request)).spendable_nano is None
