"""Which limit speaks where several refuse, and that a preview says the same."""

from typing import Any

import pytest

from tests.support.seams.accounting import (
    FREE_PER_MINUTE,
    AccountingRules,
    Credits,
    KeyFacts,
    KeyLimit,
    Rate,
    Spend,
)
from tests.support.seams.identity import AccountType
from tests.unit.accounting.admission.admission_fixture import CREDIT, KEY, AdmissionFixture
from tollhouse.kernel.errors import PaymentRequired, RateLimited, TollhouseError, Unavailable

NONE_FREE = AccountingRules(wait_seconds=0, free_per_day=0, free_per_minute=0)
FREE: dict[str, Any] = {"free": True, "rate": Rate(FREE_PER_MINUTE, None, 0)}
BROKE = Credits(purchased_nano=CREDIT, used_nano=3 * CREDIT)


async def refused(admission: AdmissionFixture, estimate: int = 0, **fields: Any) -> TollhouseError:
    """Return the refusal of a request; a preview has told it before."""
    preview = await admission.controller.preview(admission.request(estimate, **fields))
    with pytest.raises(TollhouseError) as caught:
        await admission.admit(estimate, **fields)
    assert type(preview.error) is type(caught.value)
    assert preview.error is not None
    assert preview.error.message == caught.value.message
    assert preview.error.metadata == caught.value.metadata
    return caught.value


def spent_key(admission: AdmissionFixture) -> AdmissionFixture:
    admission.loader.keys[KEY] = KeyFacts(KeyLimit(CREDIT), Spend(CREDIT))
    return admission


async def test_the_limits_of_free_models_are_checked_before_all_credits() -> None:
    admission = spent_key(AdmissionFixture(rules=NONE_FREE, credits=BROKE))
    assert isinstance(await refused(admission, **FREE), RateLimited)


async def test_a_models_own_limit_is_checked_before_all_credits() -> None:
    admission = spent_key(AdmissionFixture(rules=NONE_FREE, credits=BROKE))
    rate = Rate("requests-per-min", "acme/large", 0)
    assert isinstance(await refused(admission, 1, rate=rate), RateLimited)


async def test_the_keys_limit_is_checked_before_the_balance() -> None:
    error = await refused(spent_key(AdmissionFixture(credits=BROKE)), 1)
    assert error.metadata["limit_source"] == "service_key_limit"


async def test_the_balance_is_checked_before_the_in_flight_budget() -> None:
    error = await refused(AdmissionFixture(credits=BROKE), CREDIT)
    assert error.metadata["reason"] == "insufficient_credits"


async def test_a_limit_that_waiting_cannot_lift_refuses_before_one_that_it_can() -> None:
    admission = AdmissionFixture(balance=4 * CREDIT, limit=KeyLimit(CREDIT))
    await admission.admit(CREDIT)
    error = await refused(admission, 3 * CREDIT)
    assert error.metadata["reason"] == "weight_exceeds_key_limit"
    assert error.retry_after is None


async def test_room_in_the_journal_is_asked_for_last() -> None:
    admission = AdmissionFixture()
    admission.journal_is_full = True
    assert isinstance(await refused(admission, 1), PaymentRequired)
    rich = AdmissionFixture(balance=4 * CREDIT)
    rich.journal_is_full = True
    assert isinstance(await refused(rich, 1), Unavailable)


async def too_small(admission: AdmissionFixture, estimate: int = 0, **fields: Any) -> set[str]:
    """Return the limits in which a request does not fit."""
    return set(
        (await admission.controller.preview(admission.request(estimate, **fields))).too_small
    )


async def test_a_request_that_fits_everywhere_is_too_large_for_nothing() -> None:
    assert (
        await too_small(AdmissionFixture(balance=4 * CREDIT, limit=KeyLimit(CREDIT)), CREDIT)
        == set()
    )


async def test_where_no_budget_holds_nothing_is_too_large_for_it() -> None:
    assert await too_small(AdmissionFixture(type=AccountType.INVOICE), 100 * CREDIT) == set()


async def test_a_key_without_enough_left_is_too_small_whether_spent_or_held() -> None:
    spent = spent_key(AdmissionFixture(balance=100 * CREDIT))
    assert await too_small(spent, 1) == {"key_limit"}
    held = AdmissionFixture(balance=100 * CREDIT, limit=KeyLimit(CREDIT))
    await held.admit(CREDIT)
    assert await too_small(held, 1) == {"key_limit"}


async def test_a_balance_of_nothing_is_too_small_and_so_is_its_budget() -> None:
    assert await too_small(AdmissionFixture(), 1) == {"credits", "in_flight_budget"}
    assert await too_small(AdmissionFixture()) == {"credits"}


async def test_a_budget_is_too_small_whether_as_a_whole_or_for_what_is_held() -> None:
    admission = AdmissionFixture(balance=4 * CREDIT)
    assert await too_small(admission, 2 * CREDIT + 1) == {"in_flight_budget"}
    await admission.admit(2 * CREDIT)
    assert await too_small(admission, 1) == {"in_flight_budget"}


async def test_a_request_without_a_limit_of_its_output_holds_the_least_that_is_left() -> None:
    admission = AdmissionFixture(balance=1_000 * CREDIT)
    intern = "a" * 64
    for key, limit in ((KEY, 10), (intern, 30)):
        admission.loader.keys[key] = KeyFacts(KeyLimit(limit))
    keys = {"key_hashes": (intern, KEY)}
    await admission.admit(20, open_ended=True, **keys)
    seen = await admission.controller.preview(admission.request(1, **keys))
    held = {cap.source: cap.held_nano for cap in seen.credit_limits if "limit" in cap.source}
    assert held == {"key_limit": 10, "payer_limit": 10}
    assert seen.too_small == {"payer_limit"}
