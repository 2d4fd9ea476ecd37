"""Holds, queues and what is remembered of the books."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.support.seams.accounting import (
    AccountFacts,
    AccountingRules,
    Credits,
    KeyLimit,
    accounts,
)
from tests.unit.accounting.admission.admission_fixture import ACCOUNT, CREDIT, KEY, AdmissionFixture
from tollhouse.kernel.clock import SystemClock
from tollhouse.kernel.errors import PaymentRequired, Unavailable

PATIENT = AccountingRules(wait_seconds=30, settlement_seconds=0)
BUDGET = 2 * CREDIT
"""That of a balance of four credits."""


def waiting_desk(rules: AccountingRules = PATIENT) -> AdmissionFixture:
    return AdmissionFixture(balance=2 * BUDGET, rules=rules, clock=SystemClock())


async def begun(*tasks: asyncio.Task[str]) -> Sequence[bool]:
    """Let everything happen that can; tell which of the requests have begun."""
    for _ in range(20):
        await asyncio.sleep(0)
    return [task.done() for task in tasks]


def ask(admission: AdmissionFixture, estimate: int, **fields: Any) -> asyncio.Task[str]:
    return asyncio.create_task(admission.admit(estimate, **fields))


async def test_a_hold_ends_once() -> None:
    admission = AdmissionFixture(balance=2 * BUDGET)
    first = await admission.admit(CREDIT)
    admission.settle(first, CREDIT)
    admission.controller.release(first)
    admission.controller.release(first)
    assert admission.controller.holds == 0
    admission.clock.advance(5)
    # The balance is three: one and a half are the budget, and nothing is held.
    await admission.admit(CREDIT + CREDIT // 2)


async def test_who_comes_while_others_wait_waits_behind_them() -> None:
    admission = waiting_desk()
    first = await admission.admit(CREDIT)
    large = ask(admission, BUDGET)
    await begun(large)
    small = ask(admission, 1)
    assert await begun(large, small) == [False, False]
    admission.controller.release(first)
    assert await begun(large, small) == [True, False]
    admission.controller.release(await large)
    assert await begun(small) == [True]


async def test_nobody_passes_those_who_wait_for_credits() -> None:
    admission = AdmissionFixture(balance=600 * CREDIT, rules=PATIENT, clock=SystemClock())
    first = await admission.admit(0, maximum_nano=400 * CREDIT)
    large = ask(admission, 0, maximum_nano=500 * CREDIT)
    await begun(large)
    small = ask(admission, 0, maximum_nano=CREDIT)
    assert await begun(large, small) == [False, False]
    admission.controller.release(first)
    assert await begun(large, small) == [True, True]


async def test_a_wait_ends_with_the_refusal() -> None:
    admission = waiting_desk(AccountingRules(wait_seconds=0.05, settlement_seconds=9))
    await admission.admit(BUDGET)
    with pytest.raises(PaymentRequired) as caught:
        await admission.admit(BUDGET)
    assert caught.value.retry_after == 9


async def test_a_wait_ends_at_once_when_waiting_can_no_longer_help() -> None:
    admission = waiting_desk()
    first = await admission.admit(BUDGET)
    second = ask(admission, BUDGET)
    assert await begun(second) == [False]
    admission.settle(first, 2 * BUDGET)
    assert await begun(second) == [True]
    error = second.exception()
    assert isinstance(error, PaymentRequired)
    assert error.metadata["reason"] == "insufficient_credits"


async def test_one_that_fits_begins_at_the_end_of_its_wait_though_others_wait_before_it() -> None:
    admission = waiting_desk(AccountingRules(wait_seconds=0.1, settlement_seconds=0))
    await admission.admit(CREDIT)
    large, small = ask(admission, BUDGET), ask(admission, 1)
    await asyncio.wait([large, small])
    assert isinstance(large.exception(), PaymentRequired)
    assert small.exception() is None


async def test_a_wait_ends_when_the_settlement_window_does() -> None:
    admission = waiting_desk(AccountingRules(wait_seconds=30, settlement_seconds=0.05))
    admission.settle(await admission.admit(BUDGET), BUDGET)
    # Two credits are left, the budget is one, and two are held for a moment.
    await asyncio.wait_for(admission.admit(CREDIT), 10)


async def test_who_waits_and_goes_away_leaves_the_queue() -> None:
    admission = waiting_desk()
    first = await admission.admit(BUDGET)
    second, third = ask(admission, BUDGET), ask(admission, 1)
    await begun(second, third)
    second.cancel()
    admission.controller.release(first)
    assert await begun(third) == [True]


async def test_credits_that_are_added_end_a_wait() -> None:
    admission = waiting_desk()
    await admission.admit(BUDGET)
    second = ask(admission, BUDGET)
    await begun(second)
    admission.loader.account = AccountFacts(credits=Credits(purchased_nano=100 * CREDIT))
    admission.controller.invalidate(ACCOUNT)
    assert await begun(second) == [True]


async def test_a_hold_whose_request_never_ends_expires() -> None:
    admission = AdmissionFixture(
        balance=2 * BUDGET, rules=AccountingRules(wait_seconds=0, hold_seconds=60)
    )
    lost = await admission.admit(BUDGET)
    admission.clock.advance(59)
    with pytest.raises(PaymentRequired):
        await admission.admit(BUDGET)
    admission.clock.advance(1)
    with capture_logs() as logs:
        await admission.admit(CREDIT)
    assert [(each["event"], each["generation"]) for each in logs] == [("hold_expired", lost)]
    # Its charge, if one comes after all, counts once.
    admission.settle(lost, 3 * CREDIT)
    admission.clock.advance(5)
    with pytest.raises(PaymentRequired):
        await admission.admit(CREDIT)


async def test_without_room_for_its_charge_nothing_begins() -> None:
    admission = AdmissionFixture(balance=2 * BUDGET)
    admission.journal_is_full = True
    with pytest.raises(Unavailable):
        await admission.admit(1)
    assert admission.controller.holds == 0
    admission.journal_is_full = False
    await admission.admit(BUDGET)


async def test_who_would_wait_for_credits_does_not_begin_at_once() -> None:
    admission = waiting_desk()
    first = await admission.admit(BUDGET)
    assert admission.controller.try_admit(admission.request(CREDIT)) is None
    waiting = ask(admission, BUDGET)
    await begun(waiting)
    admission.controller.release(first)
    assert admission.controller.try_admit(admission.request(1)) is None, "it would overtake"
    await waiting
    with pytest.raises(PaymentRequired):
        admission.controller.try_admit(admission.request(3 * BUDGET))


async def test_a_change_during_the_reading_makes_it_read_again() -> None:
    admission = waiting_desk()

    async def change_once() -> None:
        if not admission.loader.reads:
            admission.controller.invalidate(ACCOUNT)

    admission.loader.before_load = change_once
    await admission.admit(1)
    assert admission.loader.reads == 2


async def test_books_that_cannot_be_read_refuse_with_503() -> None:
    admission = waiting_desk()

    async def fail() -> None:
        raise OSError

    admission.loader.before_load = fail
    with capture_logs() as logs, pytest.raises(Unavailable):
        await admission.admit(1)
    assert logs[0]["event"] == "account_not_read"


async def test_books_that_do_not_answer_refuse_with_503(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "LOAD_SECONDS", 0.01)
    admission = waiting_desk()

    async def never() -> None:
        await asyncio.Event().wait()

    admission.loader.before_load = never
    with pytest.raises(Unavailable):
        await admission.admit(1)


async def test_old_facts_are_read_again_beside_the_requests() -> None:
    admission = AdmissionFixture(balance=0, max_age_seconds=1)
    await admission.admit(free=True)
    admission.loader.account = AccountFacts(credits=Credits(purchased_nano=2 * BUDGET))
    admission.clock.advance(2)
    with pytest.raises(PaymentRequired):
        await admission.admit(1)
    await begun()
    await admission.admit(1)
    assert admission.loader.reads == 2


async def test_old_facts_that_cannot_be_read_again_serve_on() -> None:
    admission = AdmissionFixture(balance=2 * BUDGET, max_age_seconds=1)
    await admission.admit(1)

    async def fail() -> None:
        raise OSError

    admission.loader.before_load = fail
    admission.clock.advance(2)
    with capture_logs() as logs:
        await admission.admit(1)
        await begun()
    assert [each["event"] for each in logs] == ["account_not_read"]
    await admission.admit(1)


async def test_idle_accounts_are_forgotten_when_there_are_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "MOST_REMEMBERED", 2)
    admission = AdmissionFixture(balance=2 * BUDGET)
    busy = await admission.admit(1)
    admission.controller.release(await admission.admit(1, account_id="idle"))
    await admission.admit(1, account_id="third")
    assert admission.loader.reads == 3
    await admission.admit(1)
    assert admission.loader.reads == 3, "an account with a hold is not forgotten"
    admission.controller.release(busy)
    await admission.admit(1, account_id="idle")
    assert admission.loader.reads == 4


async def test_a_booked_charge_of_a_forgotten_account_hides_no_other() -> None:
    admission = AdmissionFixture(balance=9 * CREDIT)
    known = await admission.admit(CREDIT)
    admission.settle(known, CREDIT)
    strange = admission.record("gen-0", CREDIT, account_id="forgotten")
    admission.controller.booked([strange, admission.record(known, CREDIT)], 2)
    admission.loader.account = AccountFacts(
        credits=Credits(purchased_nano=9 * CREDIT, used_nano=CREDIT), booked_seq=2
    )
    admission.controller.invalidate(ACCOUNT)
    seen = await admission.controller.preview(admission.request(1))
    assert [cap.used_nano for cap in seen.credit_limits if cap.source == "credits"] == [CREDIT]


async def test_one_that_competes_for_nothing_does_not_queue_behind_those_that_wait() -> None:
    admission = AdmissionFixture(
        balance=1_000 * CREDIT, rules=PATIENT, limit=KeyLimit(CREDIT), clock=SystemClock()
    )
    await admission.admit(CREDIT)
    waiting = ask(admission, CREDIT)
    assert await begun(waiting) == [False]
    other = asyncio.create_task(admission.admit(CREDIT, key_hashes=("o" * 64,)))
    free = asyncio.create_task(admission.admit(free=True))
    assert await begun(other, free) == [True, True]
    waiting.cancel()


async def test_one_that_wants_what_others_wait_for_queues_behind_them_whatever_its_key_is() -> None:
    admission = AdmissionFixture(
        balance=1_000 * CREDIT, rules=PATIENT, limit=KeyLimit(3 * CREDIT), clock=SystemClock()
    )
    first = await admission.admit(2 * CREDIT)
    large = ask(admission, 2 * CREDIT)
    assert await begun(large) == [False]
    small = asyncio.create_task(admission.admit(CREDIT, key_hashes=("i" * 64, KEY)))
    assert await begun(large, small) == [False, False]
    admission.controller.release(first)
    assert await begun(large, small) == [True, True]


async def test_who_waits_for_anothers_reading_waits_no_longer_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "LOAD_SECONDS", 0.5)
    admission = waiting_desk()

    async def never() -> None:
        await asyncio.Event().wait()

    admission.loader.before_load = never
    asked = [ask(admission, 1) for _ in range(200)]
    # One after the other they would take a hundred seconds.
    _, pending = await asyncio.wait(asked, timeout=50)
    assert not pending
    assert all(isinstance(each.exception(), Unavailable) for each in asked)


async def test_each_key_is_read_again_when_it_is_old_however_busy_another_is() -> None:
    admission = AdmissionFixture(balance=BUDGET, max_age_seconds=1)
    await admission.admit(free=True)
    await admission.admit(free=True, key_hashes=("o" * 64,))
    for _ in range(4):
        admission.clock.advance(2)
        await admission.admit(free=True)
        await begun()
    reads = admission.loader.reads
    await admission.admit(free=True, key_hashes=("o" * 64,))
    await begun()
    assert admission.loader.reads == reads + 1


@pytest.mark.parametrize("readings", [1, 2], ids=["untold", "told, and missing in a reading"])
async def test_a_charge_that_is_in_the_books_counts_once(readings: int) -> None:
    admission = AdmissionFixture(balance=100 * CREDIT)
    known = await admission.admit(CREDIT)
    admission.settle(known, CREDIT)
    booked = AccountFacts(
        credits=Credits(purchased_nano=100 * CREDIT, used_nano=CREDIT), booked_seq=1
    )
    if readings > 1:
        admission.controller.booked([admission.record(known, CREDIT)], 1)
        earlier = [admission.loader.account, booked]

        async def next_facts() -> None:
            admission.loader.account = earlier.pop(0)

        admission.loader.before_load = next_facts
    else:
        admission.loader.account = booked
    admission.controller.invalidate(ACCOUNT)
    preview = await admission.controller.preview(admission.request(1))
    assert next(cap for cap in preview.credit_limits if cap.source == "credits").used_nano == CREDIT
    assert admission.loader.reads == 1 + readings


async def test_keys_that_go_stale_faster_than_they_are_read_refuse_with_503(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounts, "LOAD_SECONDS", 0.1)
    admission = waiting_desk()

    async def changing() -> None:
        if admission.loader.reads % 2 == 0:  # each is read twice, and the other is stale then
            admission.controller.invalidate(ACCOUNT)
        await asyncio.sleep(0)

    admission.loader.before_load = changing
    async with asyncio.timeout(30):
        with pytest.raises(Unavailable) as caught:
            await admission.admit(1, key_hashes=("a" * 64, KEY))
    assert caught.value.retry_after == 1


async def test_charges_out_of_a_reservation_keep_no_request_waiting_and_are_known_soon() -> None:
    admission = AdmissionFixture(balance=10 * CREDIT)
    await admission.admit(1)
    gate = asyncio.Event()

    async def wait() -> None:
        await gate.wait()

    admission.loader.before_load = wait
    admission.loader.account = AccountFacts(credits=Credits(purchased_nano=0))
    admission.controller.refresh(ACCOUNT)
    await admission.admit(1)
    assert admission.loader.reads == 1
    gate.set()
    await begun()
    assert admission.loader.reads == 2
    with pytest.raises(PaymentRequired, match="no credits left"):
        await admission.admit(1)
