"""The arithmetic of admission in memory, against the model."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.unit.accounting.admission import admission_state_machine
from tests.unit.accounting.admission.admission_fixture import ACCOUNT, FakeAccountLoader
from tests.unit.accounting.admission.admission_model import CREDIT, PAYERS, ModelRequest, keys_of
from tests.unit.accounting.admission.admission_state_machine import (
    ALL_KEYS,
    AdmissionStateMachine,
    SystemUnderTest,
)
from tollhouse.accounting.admission.desk import Desk
from tollhouse.accounting.admission.reserve import KeyMeans, Means, refusal
from tollhouse.accounting.admission.types import (
    FREE_PER_DAY,
    FREE_PER_MINUTE,
    Admitted,
    Claim,
    KeyFacts,
    Preview,
    Rate,
)
from tollhouse.accounting.budgets import key_budget
from tollhouse.accounting.days import utc_day
from tollhouse.accounting.policy import key_usage
from tollhouse.accounting.types import Credits, GenerationRecord, KeyLimit, Spend
from tollhouse.kernel.errors import PaymentRequired, RateLimited
from tollhouse.testing.builders import charge, generation_record
from tollhouse.testing.clock import FakeClock

if TYPE_CHECKING:
    from datetime import date, datetime

    from tests.unit.accounting.admission.admission_model import AdmissionModel, EndedRequest
    from tollhouse.accounting.admission.account import Hold

STEPS = 200
EXAMPLES_IN_TEST = 25
EXAMPLES_IN_SOAK = 1_000


def claim_of(model: AdmissionModel, id_: str, asked: ModelRequest) -> Claim:
    """Return the claim of one of the machine's requests."""
    free, key = asked.free, asked.key
    rate = Rate(FREE_PER_MINUTE, None, model.rules.free_per_minute) if free else None
    return Claim(
        id_,
        ACCOUNT,
        key,
        model.now,
        asked.estimate,
        asked.maximum,
        asked.minimum,
        open_ended=asked.open_ended,
        paid=not free,
        free=free,
        only_free=free,
        rate=rate,
        payer_hash=PAYERS.get(key),
    )


def preview_claim(model: AdmissionModel, key: str) -> Claim:
    """Return a claim that meets all limits of an account."""
    claim = claim_of(model, "preview", ModelRequest(key, 1, 1))
    claim.free = True
    return claim


def counters_of(seen: Preview, model: AdmissionModel, holds: int) -> tuple[int, ...]:
    """Return what is counted.

    That is the balance, what is held of the budget, what is held of the balance, the day's free
    requests, and the number of holds.
    """
    credit = next(cap for cap in seen.caps if cap.source == "credits")
    budget = [cap for cap in seen.caps if cap.source == "in_flight_budget"]
    # Above the threshold there is no budget to look at.
    held = budget[0].held_nano + budget[0].used_nano if budget else model.held
    free = next(cap for cap in seen.requests if cap.bucket == FREE_PER_DAY)
    balance = credit.limit_nano - credit.used_nano
    return balance, held, credit.held_nano, free.used + free.held, holds


def reason_of(error: PaymentRequired | RateLimited) -> str:
    """Return the machine's word for a refusal."""
    if isinstance(error, PaymentRequired):
        return str(error.metadata["reason"])
    return next(
        each for each in ("free-models-per-day", "free-models-per-min") if each in error.message
    )


def record_of(
    ended: EndedRequest, arrived: datetime, account_id: str = ACCOUNT
) -> GenerationRecord:
    """Return the record of one of the machine's requests."""
    return generation_record(
        id=ended.id,
        account_id=account_id,
        key_hash=ended.key,
        payer_hash=PAYERS.get(ended.key),
        charge=charge(ended.cost),
        free_limited=ended.free,
        created_at=arrived,
    )


class InMemory:
    """A desk over books in memory."""

    def __init__(self, model: AdmissionModel, desk: type[Desk] = Desk) -> None:
        self.model = model
        self.clock = FakeClock()
        self.standing = FakeAccountLoader()
        self.pending: list[GenerationRecord] = []
        self.batches: dict[str, tuple[str, int]] = {}
        self.desk_type = desk
        self.desk = self._open()
        self.loop = asyncio.new_event_loop()

    def _open(self) -> Desk:
        return self.desk_type(self.model.rules, self.standing, self.clock)

    def admit(self, id_: str, asked: ModelRequest) -> str | int | None:
        claim = claim_of(self.model, id_, asked)
        try:
            admitted = self.loop.run_until_complete(self.desk.admit(claim))
        except (PaymentRequired, RateLimited) as error:
            return reason_of(error)
        return admitted.spendable_nano

    def settle(self, ended: EndedRequest, arrived: datetime) -> None:
        record = record_of(ended, arrived)
        self.pending.append(record)
        self.desk.taken(record)

    def release(self, id_: str) -> None:
        self.desk.release(id_)

    def book(self) -> None:
        group, self.pending = self.pending, []
        for record in group:
            self._add(record)
        self.desk.booked(group)

    def _add(self, record: GenerationRecord) -> None:
        account, cost, day = self.standing.account, record.charge.cost_nano, utc_day(record)
        free: dict[date, int] = dict(account.free_requests)
        if record.free_limited:
            free[day] = free.get(day, 0) + 1
        self.standing.account = replace(
            account, credits=_with(account.credits, used=cost), free_requests=free
        )
        for key_hash in keys_of(record.key_hash):
            key = self.standing.keys.get(key_hash, KeyFacts())
            days = dict(key.days)
            days[day] = days.get(day, Spend()) + Spend(cost)
            self.standing.keys[key_hash] = replace(key, total=key.total + Spend(cost), days=days)

    def kill(self) -> None:
        group, self.pending = self.pending, []
        for record in group:
            self._add(record)
        self.desk = self._open()

    def credit(self, amount: int, *, paid: bool) -> None:
        account = self.standing.account
        more = _with(account.credits, purchased=amount * paid, granted=amount * (not paid))
        self.standing.account = replace(account, credits=more)
        self.desk.stale(ACCOUNT)

    def limit(self, key: str, limit: KeyLimit) -> None:
        known = self.standing.keys.get(key, KeyFacts())
        self.standing.keys[key] = replace(known, limit=limit)
        self.desk.stale(ACCOUNT)

    def reserve(self, batch: str, key: str, amount: int) -> str | None:
        payer = PAYERS.get(key)
        means = Means(
            self.standing.account.credits,
            needs_credits=True,
            reserved_nano=sum(amount for _, amount in self.batches.values()),
            key=self._means(key),
            payer=None if payer is None else self._means(payer),
        )
        refused = refusal(amount, means)
        if refused is not None:
            return refused.reason
        self.batches[batch] = (key, amount)
        self._reserved()
        return None

    def _means(self, key: str) -> KeyMeans:
        now, known = self.clock.now(), self.standing.keys.get(key, KeyFacts())
        usage = key_usage(known.total, known.days, now, None)
        return KeyMeans(key_budget(known.limit, usage, now.date()), known.reserved_nano)

    def charge(self, batch: str, ended: EndedRequest, arrived: datetime, by: int) -> None:
        key, amount = self.batches[batch]
        self.batches[batch] = (key, max(0, amount - by))
        self._add(record_of(ended, arrived))
        self._reserved()

    def end(self, batch: str) -> None:
        del self.batches[batch]
        self._reserved()

    def _reserved(self) -> None:
        """Write what is reserved into the books."""
        total = sum(amount for _, amount in self.batches.values())
        self.standing.account = replace(self.standing.account, reserved_nano=total)
        for key in ALL_KEYS:
            known = self.standing.keys.get(key, KeyFacts())
            own = sum(amount for owner, amount in self.batches.values() if key in keys_of(owner))
            self.standing.keys[key] = replace(known, reserved_nano=own)
        self.desk.stale(ACCOUNT)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._preview()

    def counters(self) -> tuple[int, ...]:
        return self._preview()

    def _preview(self) -> tuple[int, ...]:
        claim = preview_claim(self.model, "k" * 64)
        seen = self.loop.run_until_complete(self.desk.preview(claim))
        return counters_of(seen, self.model, self.desk.holds)

    def close(self) -> None:
        self.loop.close()


def _with(credits_: Credits, *, purchased: int = 0, granted: int = 0, used: int = 0) -> Credits:
    return Credits(
        credits_.purchased_nano + purchased,
        credits_.granted_nano + granted,
        credits_.used_nano + used,
    )


class InMemoryMachine(AdmissionStateMachine):
    """The shipped desk."""

    def open(self, model: AdmissionModel) -> SystemUnderTest:
        return InMemory(model)


class ForgetfulDesk(Desk):
    """Drops the release of every request that failed; a hold ends when it expires, at last."""

    def release(self, generation_id: str) -> None:
        hold = self._holds.get(generation_id)
        if hold is not None and hold.expires <= self._clock.monotonic():
            super().release(generation_id)


class StingyDesk(Desk):
    """Counts what an intern used to its own key alone, until the books are read again."""

    def taken(self, record: GenerationRecord) -> None:
        super().taken(replace(record, payer_hash=None))


class ClingingDesk(Desk):
    """Never ends what an intern's request holds of its payer's limit."""

    def _end(self, hold: Hold, actual_nano: int) -> None:
        hold.keys = hold.keys[:1]
        super()._end(hold, actual_nano)


class CarelessDesk(Desk):
    """Looks at an intern's own limit alone."""

    async def admit(self, claim: Claim) -> Admitted:
        return await super().admit(replace(claim, payer_hash=None))


class OverdrawingDesk(Desk):
    """Forgets what running requests may cost beyond the cap of a request."""

    async def admit(self, claim: Claim) -> Admitted:
        return await super().admit(replace(claim, most_nano=claim.estimate_nano, least_nano=0))


def lives(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


def test_the_desk_and_the_model_agree_whatever_happens() -> None:
    run_state_machine_as_test(InMemoryMachine, settings=lives(EXAMPLES_IN_TEST))


@pytest.mark.soak
def test_a_hundred_thousand_steps(soak_factor: int) -> None:
    examples = EXAMPLES_IN_SOAK // 2 * soak_factor
    run_state_machine_as_test(InMemoryMachine, settings=lives(examples))


@pytest.fixture
def quick() -> settings:
    """Find a fault without looking for its shortest form."""
    return settings(lives(EXAMPLES_IN_SOAK), phases=[Phase.generate], derandomize=True)


class FaultyMachine(AdmissionStateMachine):
    """A desk with a fault that was put there."""

    desk: type[Desk]

    def open(self, model: AdmissionModel) -> SystemUnderTest:
        return InMemory(model, self.desk)


def with_fault(faulty: type[Desk]) -> type[FaultyMachine]:
    class Machine(FaultyMachine):
        desk = faulty

    return Machine


@pytest.mark.parametrize("desk", [ForgetfulDesk, ClingingDesk, CarelessDesk, OverdrawingDesk])
def test_the_machine_finds_a_fault_that_was_put_there(quick: settings, desk: type[Desk]) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(with_fault(desk), settings=quick)


@pytest.mark.soak
def test_the_machine_finds_a_fault_that_few_lives_show(quick: settings) -> None:
    with pytest.raises(AssertionError):
        run_state_machine_as_test(with_fault(StingyDesk), settings=quick)


@pytest.mark.parametrize("desk", [Desk, StingyDesk])
def test_a_life_of_the_machine_that_shows_that_fault(
    desk: type[Desk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        admission_state_machine, "event", str
    )  # Hypothesis takes none outside of its tests
    intern, payer = next(iter(PAYERS.items()))
    machine = with_fault(desk)()
    machine.begin(600 * CREDIT, Fraction(1), 0.0, 0)
    machine.limit(payer, 2 * CREDIT, None)
    first = str(machine.admit(intern, 0, CREDIT, 0, free=False, open_ended=False))
    machine.settle(first, CREDIT)
    with pytest.raises(AssertionError) if desk is StingyDesk else nullcontext():
        machine.admit(intern, 0, 2 * CREDIT, 0, free=False, open_ended=False)
    machine.teardown()
