"""The limit of the key that answers for an intern: it holds beside that of the intern's own key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.waiting import take_turns
from tests.unit.accounting.admission.admission_fixture import (
    ACCOUNT,
    CREDIT,
    KEY,
    AdmissionFixture,
    limits,
)
from tollhouse.accounting.admission import accounts
from tollhouse.accounting.admission.types import KeyFacts
from tollhouse.accounting.limits import AccountingRules
from tollhouse.accounting.types import KeyLimit, Spend
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import PaymentRequired, Unavailable

RICH = 1_000 * CREDIT
ADA, BOB = "a" * 64, "b" * 64
"""Keys of two interns; `KEY` answers for both."""


def front_desk(
    payers: int | None,
    own: int | None = None,
    *,
    reserved: int = 0,
    rules: AccountingRules | None = None,
) -> AdmissionFixture:
    """Return an admission controller at which the payer and Ada's own key have limits."""
    clock = None if rules is None else SystemClock()
    admission = AdmissionFixture(balance=RICH, limit=KeyLimit(payers), rules=rules, clock=clock)
    admission.loader.keys[KEY] = KeyFacts(KeyLimit(payers), reserved_nano=reserved)
    admission.loader.keys[ADA] = KeyFacts(KeyLimit(own))
    return admission


async def admit(admission: AdmissionFixture, key: str, estimate: int = 1, **fields: Any) -> str:
    return await admission.admit(estimate, key_hashes=(key, KEY), **fields)


async def refused(
    admission: AdmissionFixture, key: str, estimate: int = 1, **fields: Any
) -> PaymentRequired:
    with pytest.raises(PaymentRequired) as caught:
        await admit(admission, key, estimate, **fields)
    return caught.value


def settle(admission: AdmissionFixture, id_: str, key: str, cost: int) -> Any:
    record = admission.record(id_, cost, key_hash=key, payer_hash=KEY)
    admission.controller.charged(record)
    return record


async def test_what_an_intern_used_is_used_of_its_payers_limit() -> None:
    admission = front_desk(10)
    settle(admission, await admit(admission, ADA, 10), ADA, 10)
    error = await refused(admission, BOB)
    assert error.metadata["reason"] == "key_limit_exhausted"
    assert error.metadata["limit_source"] == "service_key_limit"
    assert error.message.startswith("The limit of the key that answers for this intern of ")
    with pytest.raises(PaymentRequired):
        await admission.admit(1)


async def test_what_the_payer_itself_used_counts_for_its_interns() -> None:
    admission = front_desk(10)
    admission.settle(await admission.admit(10), 10)
    assert (await refused(admission, ADA)).metadata["reason"] == "key_limit_exhausted"


async def test_two_interns_at_once_cannot_spend_the_same_rest() -> None:
    admission = front_desk(10)
    await admit(admission, ADA, 5)
    await admit(admission, BOB, 5)
    for key in (ADA, BOB):
        error = await refused(admission, key, 5)
        assert error.metadata["reason"] == "key_limit_held"
        assert error.message == (
            "Requests under way hold 0.00000001 credits of the limit of the key that answers for "
            "this intern; 0 are left."
        )


async def test_a_request_that_ends_gives_back_what_it_held_of_both() -> None:
    admission = front_desk(10, own=10)
    admission.controller.release(await admit(admission, ADA, 10))
    settle(admission, await admit(admission, ADA, 10), ADA, 4)
    admission.controller.release(await admission.admit(6))
    await admit(admission, ADA, 6)


async def test_each_limit_refuses_what_the_other_would_allow() -> None:
    error = await refused(front_desk(10, own=3), ADA, 5)
    assert "of the key's limit" in error.message
    error = await refused(front_desk(3, own=10), ADA, 5)
    assert "left of the limit of the key that answers for this intern" in error.message


async def test_its_own_limit_is_looked_at_first() -> None:
    error = await refused(front_desk(0, own=0), ADA)
    assert error.message.startswith("The key's limit of 0 credits")
    assert [each["payer"] for each in limits(error)] == [False, True, False]


async def test_the_binding_limit_comes_first_and_says_whose_it_is() -> None:
    error = await refused(front_desk(3, own=10), ADA, 5)
    assert [(each["limit_source"], each["payer"]) for each in limits(error)] == [
        ("service_key_limit", True),
        ("service_key_limit", False),
        ("service_credits", False),
    ]


async def test_a_request_without_a_limit_of_its_output_holds_the_least_that_is_left() -> None:
    admission = front_desk(10, own=30)
    await admit(admission, ADA, 20, open_ended=True)
    seen = await admission.controller.preview(admission.request(1, key_hashes=(ADA, KEY)))
    held = {cap.source: cap.held_nano for cap in seen.credit_limits if "limit" in cap.source}
    assert held == {"key_limit": 10, "payer_limit": 10}
    assert seen.too_small == {"payer_limit"}


async def test_what_batches_have_reserved_of_the_payers_limit_is_not_left() -> None:
    error = await refused(front_desk(10, reserved=6), ADA, 5)
    assert error.metadata["reason"] == "weight_exceeds_key_limit"
    assert "batches have reserved" in error.message


async def test_nothing_is_counted_twice_against_the_account() -> None:
    admission = AdmissionFixture(balance=100, limit=KeyLimit(None))
    id_ = await admit(admission, ADA, 20)
    seen = await admission.controller.preview(admission.request(1))
    held = {cap.source: cap.held_nano for cap in seen.credit_limits}
    assert (held["credits"], held["in_flight_budget"]) == (20, 20)
    settle(admission, id_, ADA, 20)
    seen = await admission.controller.preview(admission.request(1))
    assert next(cap.used_nano for cap in seen.credit_limits if cap.source == "credits") == 20


async def test_what_is_booked_is_counted_once() -> None:
    admission = front_desk(10)
    record = settle(admission, await admit(admission, ADA, 4), ADA, 4)
    admission.loader.keys[KEY] = KeyFacts(KeyLimit(10), Spend(4))
    admission.loader.keys[ADA] = KeyFacts(KeyLimit(None), Spend(4))
    admission.controller.booked([record])
    admission.controller.invalidate("account")
    await admit(admission, BOB, 6)


async def test_a_payers_limit_that_is_changed_holds_at_once() -> None:
    admission = front_desk(10)
    await admit(admission, ADA, 1)
    admission.loader.keys[KEY] = KeyFacts(KeyLimit(0))
    admission.controller.invalidate("account")
    await refused(admission, ADA)


async def test_what_others_hold_of_the_payers_limit_is_waited_for() -> None:
    admission = front_desk(10, rules=AccountingRules(wait_seconds=30, settlement_seconds=0))
    first = await admit(admission, ADA, 10)
    second = asyncio.create_task(admit(admission, BOB, 5))
    await take_turns()
    assert not second.done()
    admission.controller.release(first)
    await second


async def test_keys_that_go_stale_faster_than_they_are_read_refuse_with_503(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "LOAD_SECONDS", 0.1)
    admission = front_desk(None)

    async def changing() -> None:
        if admission.loader.reads % 2 == 0:  # each is read twice, and the other is stale then
            admission.controller.invalidate(ACCOUNT)
        await asyncio.sleep(0)

    admission.loader.before_load = changing
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable) as caught:
            await admit(admission, ADA)
    assert caught.value.retry_after == 1
