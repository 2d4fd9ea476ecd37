"""What batches have reserved: it lowers what requests may spend, and is named where it refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.accounting.admission.admission_fixture import (
    ACCOUNT,
    CREDIT,
    KEY,
    AdmissionFixture,
    limits,
)
from tollhouse.accounting.admission.types import AccountFacts, KeyFacts
from tollhouse.accounting.limits import AccountingRules
from tollhouse.accounting.types import Credits, KeyLimit, Reset, Spend
from tollhouse.kernel.errors import PaymentRequired


def with_key(limit: KeyLimit, *, reserved: int, used: int = 0) -> AdmissionFixture:
    """Return an admission controller whose key has batches."""
    admission = AdmissionFixture(balance=9_000 * CREDIT, limit=limit)
    admission.loader.keys[KEY] = KeyFacts(limit, Spend(used), reserved_nano=reserved)
    return admission


async def refused(admission: AdmissionFixture, estimate: int = 0, **fields: Any) -> PaymentRequired:
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(estimate, **fields)
    return caught.value


class TestOfTheBalance:
    async def test_leaves_the_rest_to_requests(self) -> None:
        admission = AdmissionFixture(balance=10 * CREDIT, reserved_nano=6 * CREDIT)
        await admission.admit(2 * CREDIT)
        error = await refused(admission, 1)
        assert error.metadata["reason"] == "in_flight_budget_exhausted"

    @pytest.mark.parametrize("reserved", [10 * CREDIT, 11 * CREDIT])
    async def test_all_of_it_refuses_what_is_paid(self, reserved: int) -> None:
        admission = AdmissionFixture(balance=10 * CREDIT, reserved_nano=reserved)
        error = await refused(admission, 1)
        assert error.metadata["reason"] == "insufficient_credits"
        assert error.message == (
            "The account has no credits left (balance 10); batches have reserved "
            f"{reserved // CREDIT} credits."
        )
        assert error.metadata["remedy_hint"] == "Add credits, or wait for batches to end."
        await admission.admit(free=True)

    async def test_counts_for_the_threshold_of_the_budget(self) -> None:
        admission = AdmissionFixture(balance=501 * CREDIT)
        await admission.admit(100 * CREDIT)
        admission = AdmissionFixture(balance=501 * CREDIT, reserved_nano=CREDIT)
        await admission.admit(100 * CREDIT)
        admission = AdmissionFixture(balance=501 * CREDIT, reserved_nano=CREDIT + 1)
        error = await refused(admission, 100 * CREDIT)
        assert error.metadata["reason"] == "weight_exceeds_budget"

    async def test_is_named_where_the_budget_refuses(self) -> None:
        admission = AdmissionFixture(balance=10 * CREDIT, reserved_nano=6 * CREDIT)
        assert (await refused(admission, 3 * CREDIT)).message == (
            "The request would hold 3 credits and the whole in-flight budget is 2; batches have "
            "reserved 6 credits."
        )
        await admission.admit(2 * CREDIT)
        assert (await refused(admission, CREDIT)).message == (
            "Requests under way or just ended hold 2 of an in-flight budget of 2 credits; this one "
            "needs 1; batches have reserved 6 credits."
        )

    async def test_is_held_of_the_credits_and_not_of_the_budget(self) -> None:
        admission = AdmissionFixture(balance=10 * CREDIT, reserved_nano=6 * CREDIT)
        await admission.admit(CREDIT)
        budget, credit = limits(await refused(admission, 2 * CREDIT))
        assert (budget["limit"], budget["held"], budget["remaining"]) == (2, 1, 1)
        assert (credit["limit"], credit["held"], credit["remaining"]) == (10, 7, 3)

    async def test_counts_beside_charges_on_their_way_to_the_books(self) -> None:
        rules = AccountingRules(wait_seconds=0, settlement_seconds=0)
        admission = AdmissionFixture(balance=10 * CREDIT, reserved_nano=6 * CREDIT, rules=rules)
        admission.settle(await admission.admit(CREDIT), 3 * CREDIT)
        error = await refused(admission, CREDIT)
        assert error.message.endswith("budget is 0.5; batches have reserved 6 credits.")


class TestOfAKeysLimit:
    async def test_leaves_the_rest_to_requests(self) -> None:
        admission = with_key(KeyLimit(10), reserved=6)
        await admission.admit(4)
        assert (await refused(admission, 1)).metadata["reason"] == "key_limit_held"

    async def test_all_of_it_refuses_what_is_paid(self) -> None:
        admission = with_key(KeyLimit(5 * CREDIT), reserved=3 * CREDIT, used=2 * CREDIT)
        error = await refused(admission, 1)
        assert error.metadata["reason"] == "key_limit_exhausted"
        assert error.message == (
            "The key's limit of 5 credits is used up (2 used); batches have reserved 3 credits."
        )
        assert error.metadata["remedy_hint"] == (
            "Raise the key's limit, or wait for batches to end."
        )
        await admission.admit(free=True)

    async def test_stays_when_the_window_starts_anew(self) -> None:
        admission = with_key(KeyLimit(5 * CREDIT, Reset.DAILY), reserved=5 * CREDIT)
        error = await refused(admission, 1)
        assert error.metadata["remedy_hint"] == (
            "Raise the key's limit, or wait for its reset at 2026-03-13T00:00:00Z, or wait for "
            "batches to end."
        )
        admission.clock.advance(86_400)
        await refused(admission, 1)

    async def test_is_named_where_a_request_is_too_heavy(self) -> None:
        admission = with_key(KeyLimit(5 * CREDIT), reserved=3 * CREDIT)
        error = await refused(admission, 3 * CREDIT)
        assert error.metadata["reason"] == "weight_exceeds_key_limit"
        assert error.message == (
            "The request may cost 3 credits; 2 are left of the key's limit; batches have reserved "
            "3 credits."
        )

    async def test_is_named_where_requests_hold_the_rest(self) -> None:
        admission = with_key(KeyLimit(5 * CREDIT), reserved=3 * CREDIT)
        await admission.admit(CREDIT)
        error = await refused(admission, 2 * CREDIT)
        assert error.message == (
            "Requests under way hold 1 credits of the key's limit; 1 are left; batches have "
            "reserved 3 credits."
        )
        cap = limits(error)[0]
        assert (cap["limit"], cap["held"], cap["remaining"]) == (5, 4, 1)

    async def test_leaves_less_to_one_without_an_output_limit(self) -> None:
        admission = with_key(KeyLimit(5 * CREDIT), reserved=4 * CREDIT)
        await admission.admit(2 * CREDIT, open_ended=True)
        cap = limits(await refused(admission, 1))[0]
        assert (cap["held"], cap["remaining"]) == (5, 0)


async def settled(admission: AdmissionFixture, reads: int) -> None:
    """Wait until the books were read so often."""
    while admission.loader.reads < reads:
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)


class TestChargedOutOfAReservation:
    async def test_keeps_no_request_waiting_for_the_books(self) -> None:
        admission = AdmissionFixture(balance=9_000 * CREDIT)
        await admission.admit(1)
        gate = asyncio.Event()

        async def wait() -> None:
            await gate.wait()

        admission.loader.before_load = wait
        admission.controller.refresh(ACCOUNT)
        await admission.admit(1)
        assert admission.loader.reads == 1
        gate.set()
        await settled(admission, 2)

    async def test_is_known_soon_after_the_next_request(self) -> None:
        admission = AdmissionFixture(balance=10 * CREDIT)
        await admission.admit(1)
        admission.loader.account = AccountFacts(credits=Credits(purchased_nano=0))
        admission.controller.refresh(ACCOUNT)
        await admission.admit(1)
        await settled(admission, 2)
        assert (await refused(admission, 1)).metadata["reason"] == "insufficient_credits"
