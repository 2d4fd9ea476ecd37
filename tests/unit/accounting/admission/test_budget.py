"""The six rules of the in-flight budget, and the balance."""

from typing import Any

import pytest

from tests.support.seams.accounting import AccountingRules, Credits
from tests.support.seams.identity import AccountType
from tests.unit.accounting.admission.admission_fixture import CREDIT, AdmissionFixture, limits
from tollhouse.kernel.errors import PaymentRequired


async def refused(admission: AdmissionFixture, estimate: int = 0, **fields: Any) -> PaymentRequired:
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(estimate, **fields)
    return caught.value


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
    await admission.admit(2 * CREDIT, own_key=True)
    await admission.admit(CREDIT // 2)
    await admission.admit(free=True)
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


async def test_the_prefix_of_limit_source_is_a_setting() -> None:
    rules = AccountingRules(source_prefix="acme_", wait_seconds=0)
    error = await refused(AdmissionFixture(rules=rules), 1)
    assert error.metadata["limit_source"] == "acme_credits"
    assert {each["limit_source"] for each in limits(error)} == {
        "acme_credits",
        "acme_in_flight_budget",
    }


async def test_what_batches_have_reserved_counts_for_the_threshold() -> None:
    for reserved in (0, CREDIT):
        await AdmissionFixture(balance=501 * CREDIT, reserved_nano=reserved).admit(100 * CREDIT)
    admission = AdmissionFixture(balance=501 * CREDIT, reserved_nano=CREDIT + 1)
    error = await refused(admission, 100 * CREDIT)
    assert error.metadata["reason"] == "weight_exceeds_budget"
