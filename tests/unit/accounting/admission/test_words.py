"""What a refusal for want of credits tells a person: why, in numbers, and what helps."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.clock import FakeClock
from tests.unit.accounting.admission.admission_fixture import CREDIT, AdmissionFixture
from tollhouse.accounting.limits import AccountingRules
from tollhouse.accounting.types import Credits, KeyLimit, Reset
from tollhouse.kernel.errors import PaymentRequired

AT_ONCE = AccountingRules(wait_seconds=0, settlement_seconds=0)


async def words(admission: AdmissionFixture, estimate: int, **fields: Any) -> tuple[str, object]:
    """Return the message and the remedy with which a request is refused."""
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(estimate, **fields)
    return caught.value.message, caught.value.metadata["remedy_hint"]


async def test_of_a_key_s_limit_that_is_used_up() -> None:
    admission = AdmissionFixture(balance=999 * CREDIT, limit=KeyLimit(2 * CREDIT))
    admission.settle(await admission.admit(2 * CREDIT), 3 * CREDIT)
    assert await words(admission, 1) == (
        "The key's limit of 2 credits is used up (3 used).",
        "Raise the key's limit.",
    )


async def test_of_a_key_s_limit_that_starts_anew() -> None:
    clock = FakeClock()
    admission = AdmissionFixture(
        balance=999 * CREDIT, limit=KeyLimit(CREDIT, Reset.DAILY), clock=clock
    )
    admission.settle(await admission.admit(CREDIT), CREDIT)
    tomorrow = clock.now().date().toordinal() + 1
    midnight = f"{clock.now().date().fromordinal(tomorrow)}T00:00:00Z"
    _, remedy = await words(admission, 1)
    assert remedy == f"Raise the key's limit, or wait for its reset at {midnight}."


async def test_of_a_request_that_is_heavier_than_what_its_key_has_left() -> None:
    admission = AdmissionFixture(balance=999 * CREDIT, limit=KeyLimit(2 * CREDIT))
    assert await words(admission, 5 * CREDIT // 2) == (
        "The request may cost 2.5 credits; 2 are left of the key's limit.",
        "Lower max_tokens or the prompt's size, or raise the key's limit.",
    )


async def test_of_a_key_s_limit_that_requests_under_way_hold() -> None:
    admission = AdmissionFixture(balance=999 * CREDIT, limit=KeyLimit(4 * CREDIT))
    await admission.admit(5 * CREDIT // 2)
    remedy = "Wait for them and send the request again, or raise the key's limit."
    assert await words(admission, 2 * CREDIT) == (
        "Requests under way hold 2.5 credits of the key's limit; 1.5 are left.",
        remedy,
    )
    admission.settle(await admission.admit(CREDIT), 3 * CREDIT)
    assert await words(admission, CREDIT) == (
        "Requests under way hold 2.5 credits of the key's limit; 0 are left.",
        remedy,
    )


async def test_of_an_account_without_credits() -> None:
    assert await words(AdmissionFixture(), 1) == (
        "The account has no credits left (balance 0).",
        "Add credits.",
    )


async def test_of_a_negative_balance_at_a_free_model() -> None:
    admission = AdmissionFixture(credits=Credits(used_nano=CREDIT // 2))
    assert await words(admission, 0, free=True) == (
        "The account's balance is negative (-0.5); that refuses free models, too.",
        "Add credits.",
    )


@pytest.mark.parametrize(
    ("open_ended", "why"), [(False, ""), (True, ", since it names no max_tokens,")]
)
async def test_of_a_request_that_is_heavier_than_the_budget(*, open_ended: bool, why: str) -> None:
    admission = AdmissionFixture(balance=4 * CREDIT)
    assert await words(admission, 3 * CREDIT, open_ended=open_ended) == (
        f"The request would hold 3 credits{why} and the whole in-flight budget is 2.",
        (
            "Set max_tokens or lower it, shorten the prompt, or add credits; the same request "
            "again does not help."
        ),
    )


async def test_of_a_budget_that_requests_under_way_hold() -> None:
    admission = AdmissionFixture(balance=4 * CREDIT)
    await admission.admit(3 * CREDIT // 2)
    assert await words(admission, CREDIT) == (
        (
            "Requests under way or just ended hold 1.5 of an in-flight budget of 2 credits; "
            "this one needs 1."
        ),
        "Wait a moment and send the request again, lower max_tokens, or add credits.",
    )


async def test_waiting_is_advised_for_a_second_at_least() -> None:
    admission = AdmissionFixture(balance=999 * CREDIT, limit=KeyLimit(1), rules=AT_ONCE)
    await admission.admit(1)
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(1)
    assert caught.value.retry_after == 1
