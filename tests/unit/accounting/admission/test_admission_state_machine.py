"""The arithmetic of admission in memory, against the model."""

import asyncio
from dataclasses import replace
from datetime import date, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.support.builders import charge, generation_record
from tests.support.clock import FakeClock
from tests.support.seams.accounting import (
    FREE_PER_DAY,
    FREE_PER_MINUTE,
    AdmissionContext,
    AdmissionController,
    AdmissionPreview,
    AdmissionRequest,
    Admitted,
    Budget,
    BudgetScope,
    Credits,
    GenerationRecord,
    KeyFacts,
    KeyLimit,
    Rate,
    Spend,
    key_status,
    key_usage,
    reservation_refusal,
)
from tests.unit.accounting.admission.admission_fixture import ACCOUNT, FakeAccountLoader
from tests.unit.accounting.admission.admission_model import (
    PAYERS,
    AdmissionModel,
    EndedRequest,
    ModelRequest,
    keys_of,
)
from tests.unit.accounting.admission.admission_state_machine import (
    ALL_KEYS,
    AdmissionStateMachine,
    SystemUnderTest,
)
from tollhouse.kernel.errors import PaymentRequired, RateLimited

STEPS = 200
EXAMPLES_IN_TEST = 25
EXAMPLES_IN_SOAK = 1_000


def request_of(model: AdmissionModel, id_: str, asked: ModelRequest) -> AdmissionRequest:
    """Return the admission request of one of the machine's requests."""
    free, key = asked.free, asked.key
    rate = Rate(FREE_PER_MINUTE, None, model.rules.free_per_minute) if free else None
    return AdmissionRequest(
        id_,
        ACCOUNT,
        keys_of(key),
        model.now,
        asked.estimate,
        asked.maximum,
        asked.minimum,
        open_ended=asked.open_ended,
        paid=not free,
        free=free,
        only_free=free,
        rate=rate,
    )


def preview_request(model: AdmissionModel, key: str) -> AdmissionRequest:
    """Return an admission request that meets all limits of an account."""
    request = request_of(model, "preview", ModelRequest(key, 1, 1))
    request.free = True
    return request


def counters_of(seen: AdmissionPreview, model: AdmissionModel, holds: int) -> tuple[int, ...]:
    """Return what is counted.

    That is the balance, what is held of the budget, what is held of the balance, the day's free
    requests, and the number of holds.
    """
    credit = next(cap for cap in seen.credit_limits if cap.source == "credits")
    budget = [cap for cap in seen.credit_limits if cap.source == "in_flight_budget"]
    # Above the threshold there is no budget to look at.
    held = budget[0].held_nano + budget[0].used_nano if budget else model.held
    free = next(cap for cap in seen.request_limits if cap.bucket == FREE_PER_DAY)
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
    """An admission controller over accounts in memory."""

    def __init__(
        self, model: AdmissionModel, controller: type[AdmissionController] = AdmissionController
    ) -> None:
        self.model = model
        self.clock = FakeClock()
        self.loader = FakeAccountLoader()
        self.pending: list[GenerationRecord] = []
        self.charges = 0
        self.batches: dict[str, tuple[str, int]] = {}
        self.controller_type = controller
        self.controller = self._open()
        self.loop = asyncio.new_event_loop()

    def _open(self) -> AdmissionController:
        return self.controller_type(self.model.rules, self.loader, self.clock)

    def admit(self, id_: str, asked: ModelRequest) -> str | int | None:
        request = request_of(self.model, id_, asked)
        try:
            admitted = self.loop.run_until_complete(self.controller.admit(request))
        except (PaymentRequired, RateLimited) as error:
            return reason_of(error)
        return admitted.spendable_nano

    def settle(self, ended: EndedRequest, arrived: datetime) -> None:
        record = record_of(ended, arrived)
        self.pending.append(record)
        self.charges += 1
        self.controller.charged(record, self.charges)

    def release(self, id_: str) -> None:
        self.controller.release(id_)

    def book(self) -> None:
        group, self.pending = self.pending, []
        for record in group:
            self._add(record)
        self.loader.account = replace(self.loader.account, booked_seq=self.charges)
        self.controller.booked(group, self.charges)

    def _add(self, record: GenerationRecord) -> None:
        account, cost, day = self.loader.account, record.cost_nano, record.utc_day
        free: dict[date, int] = dict(account.free_requests)
        if record.free_limited:
            free[day] = free.get(day, 0) + 1
        self.loader.account = replace(
            account, credits=_with(account.credits, used=cost), free_requests=free
        )
        for key_hash in keys_of(record.key_hash):
            key = self.loader.keys.get(key_hash, KeyFacts())
            days = dict(key.days)
            days[day] = days.get(day, Spend()) + Spend(cost)
            self.loader.keys[key_hash] = replace(key, total=key.total + Spend(cost), days=days)

    def kill(self) -> None:
        group, self.pending = self.pending, []
        for record in group:
            self._add(record)
        self.charges = 0
        self.loader.account = replace(self.loader.account, booked_seq=0)
        self.controller = self._open()

    def credit(self, amount: int, *, paid: bool) -> None:
        account = self.loader.account
        more = _with(account.credits, purchased=amount * paid, granted=amount * (not paid))
        self.loader.account = replace(account, credits=more)
        self.controller.invalidate(ACCOUNT)

    def limit(self, key: str, limit: KeyLimit) -> None:
        known = self.loader.keys.get(key, KeyFacts())
        self.loader.keys[key] = replace(known, limit=limit)
        self.controller.invalidate(ACCOUNT)

    def reserve(self, batch: str, key: str, amount: int) -> str | None:
        account = replace(
            self.loader.account, reserved_nano=sum(amount for _, amount in self.batches.values())
        )
        own = map(self._own_budget, keys_of(key))
        limits = [each for each in own if each is not None]
        balance = account.fill(Budget(BudgetScope.ACCOUNT))
        refused = reservation_refusal(amount, [*limits, balance], "")
        if refused is not None:
            return refused.reason
        self.batches[batch] = (key, amount)
        self._reserved()
        return None

    def _own_budget(self, key: str) -> Budget | None:
        now, known = self.clock.now(), self.loader.keys.get(key, KeyFacts())
        usage = key_usage(known.total, known.days, now, None)
        return key_status(known.limit, usage, now.date(), known.reserved_nano).own_budget

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
        self.loader.account = replace(self.loader.account, reserved_nano=total)
        for key in ALL_KEYS:
            known = self.loader.keys.get(key, KeyFacts())
            own = sum(amount for owner, amount in self.batches.values() if key in keys_of(owner))
            self.loader.keys[key] = replace(known, reserved_nano=own)
        self.controller.invalidate(ACCOUNT)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._preview()

    def counters(self) -> tuple[int, ...]:
        return self._preview()

    def _preview(self) -> tuple[int, ...]:
        request = preview_request(self.model, "k" * 64)
        seen = self.loop.run_until_complete(self.controller.preview(request))
        return counters_of(seen, self.model, self.controller.holds)

    def close(self) -> None:
        self.loop.close()


def _with(credits_: Credits, *, purchased: int = 0, granted: int = 0, used: int = 0) -> Credits:
    return Credits(
        credits_.purchased_nano + purchased,
        credits_.granted_nano + granted,
        credits_.used_nano + used,
    )


class InMemoryMachine(AdmissionStateMachine):
    """The shipped admission controller."""

    def open(self, model: AdmissionModel) -> SystemUnderTest:
        return InMemory(model)


class ForgetfulController(AdmissionController):
    """Drops the release of every request that failed; a hold ends when it expires, at last."""

    def release(self, generation_id: str) -> None:
        hold = self._holds.get(generation_id)
        if hold is not None and hold.now + self._rules.hold_seconds <= self._clock.monotonic():
            super().release(generation_id)


class StingyController(AdmissionController):
    """Counts what an intern used to its own key alone, until the books are read again."""

    def charged(self, record: GenerationRecord, number: int) -> None:
        super().charged(msgspec.structs.replace(record, payer_hash=None), number)


class ClingingController(AdmissionController):
    """Never ends what an intern's request holds of its payer's limit."""

    def _end(self, hold: AdmissionContext, actual_nano: int) -> None:
        hold.counted = hold.counted[:1]
        super()._end(hold, actual_nano)


class CarelessController(AdmissionController):
    """Looks at an intern's own limit alone."""

    async def admit(self, request: AdmissionRequest) -> Admitted:
        only_own = request.key_hashes[:1]
        return await super().admit(msgspec.structs.replace(request, key_hashes=only_own))


class OverdrawingController(AdmissionController):
    """Forgets what running requests may cost beyond the cap of a request."""

    async def admit(self, request: AdmissionRequest) -> Admitted:
        return await super().admit(
            msgspec.structs.replace(request, maximum_nano=request.estimate_nano, minimum_nano=0)
        )


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
def test_many_steps(soak_factor: int) -> None:
    examples = EXAMPLES_IN_SOAK // 5 * soak_factor
    run_state_machine_as_test(InMemoryMachine, settings=lives(examples))


@pytest.fixture
def quick() -> settings:
    """Find a fault without looking for its shortest form."""
    return settings(lives(EXAMPLES_IN_SOAK), phases=[Phase.generate])


class FaultyMachine(AdmissionStateMachine):
    """An admission controller with a fault that was put there."""

    controller: type[AdmissionController]

    def open(self, model: AdmissionModel) -> SystemUnderTest:
        return InMemory(model, self.controller)


def with_fault(faulty: type[AdmissionController]) -> type[FaultyMachine]:
    class Machine(FaultyMachine):
        controller = faulty

    return Machine


SEEDS = {
    ForgetfulController: 11,
    ClingingController: 11,
    CarelessController: 11,
    OverdrawingController: 11,
    StingyController: 7,
}
"""A seed with which a fault is found within seconds: what others need depends on luck."""


@pytest.mark.parametrize("controller", SEEDS)
def test_the_machine_finds_a_fault_that_was_put_there(
    quick: settings, controller: type[AdmissionController]
) -> None:
    machine = seed(SEEDS[controller])(with_fault(controller))
    with pytest.raises(AssertionError):
        run_state_machine_as_test(machine, settings=quick)
