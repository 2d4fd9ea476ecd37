"""Random operations on an account, run on the model and on the shipped code at once.

    class Machine(AdmissionStateMachine):
        def open(self, model: AdmissionModel) -> SystemUnderTest: ...

After each step both must agree; at each admission the model itself must be consistent.
"""

from datetime import datetime
from fractions import Fraction
from typing import Protocol

from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

from tests.support.clock import START
from tests.support.seams.accounting import AccountingRules, KeyLimit, Reset
from tests.unit.accounting.admission.admission_model import (
    CREDIT,
    KEYS,
    PAYERS,
    AdmissionModel,
    EndedRequest,
    ModelRequest,
    RunningRequest,
)

ALL_KEYS = (*KEYS, *PAYERS)
AMOUNTS = st.one_of(
    st.integers(0, 20), st.integers(0, 8).map(lambda n: n * CREDIT // 2), st.just(CREDIT)
)


class SystemUnderTest(Protocol):
    """The shipped code under test."""

    def admit(self, id_: str, asked: ModelRequest) -> str | int | None:
        """Return why a request is refused, or what it may cost where that was lowered."""
        ...

    def settle(self, ended: EndedRequest, arrived: datetime) -> None:
        """Put a charge into the journal."""
        ...

    def release(self, id_: str) -> None:
        """End a request without a charge."""
        ...

    def book(self) -> None:
        """Book the journal's charges in the database."""
        ...

    def kill(self) -> None:
        """End the process at once, and start another one."""
        ...

    def credit(self, amount: int, *, paid: bool) -> None:
        """Add credits."""
        ...

    def limit(self, key: str, limit: KeyLimit) -> None:
        """Change a key's limit."""
        ...

    def reserve(self, batch: str, key: str, amount: int) -> str | None:
        """Return why credits cannot be reserved for a batch; None where they are."""
        ...

    def charge(self, batch: str, ended: EndedRequest, arrived: datetime, by: int) -> None:
        """Book an item of a batch past the journal, and lower what the batch has reserved."""
        ...

    def end(self, batch: str) -> None:
        """End a batch."""
        ...

    def advance(self, seconds: float) -> None:
        """Let time pass, and expire holds."""
        ...

    def counters(self) -> tuple[int, ...]:
        """Return what `counters_of` does."""
        ...

    def close(self) -> None:
        """Verify the ledger and release everything."""
        ...


class AdmissionStateMachine(RuleBasedStateMachine):
    """One account, two keys, one of which answers for two interns; any number of requests."""

    requests = Bundle("requests")
    expired = Bundle("expired")
    batches = Bundle("batches")

    def __init__(self) -> None:
        super().__init__()
        self.number = 0
        self.model = AdmissionModel(AccountingRules(), START)
        self.arrived: dict[str, datetime] = {}
        self.system: SystemUnderTest | None = None

    def open(self, model: AdmissionModel) -> SystemUnderTest:
        """Return the shipped code in the model's state."""
        raise NotImplementedError

    @property
    def under_test(self) -> SystemUnderTest:
        assert self.system is not None
        return self.system

    @initialize(
        balance=st.one_of(st.integers(0, 40), st.sampled_from([CREDIT, 10 * CREDIT, 600 * CREDIT])),
        fraction=st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(1, 3)]),
        window=st.sampled_from([0.0, 5.0]),
        per_day=st.integers(0, 6),
    )
    def begin(self, balance: int, fraction: Fraction, window: float, per_day: int) -> None:
        rules = AccountingRules(
            fraction=fraction,
            settlement_seconds=window,
            wait_seconds=0,
            hold_seconds=600,
            free_per_minute=4,
            free_per_day=per_day,
            free_per_day_raised=per_day + 3,
        )
        self.model = AdmissionModel(rules, START)
        self.system = self.open(self.model)
        if balance:
            self.credit(balance, paid=True)

    def next_id(self) -> str:
        """Return the id of another generation."""
        self.number += 1
        return f"gen-1773311400-{self.number:020x}"

    @rule(
        target=requests,
        key=st.sampled_from(ALL_KEYS),
        estimate=AMOUNTS,
        beyond=st.just(0) | AMOUNTS,
        least=AMOUNTS,
        free=st.sampled_from([False, False, False, True]),
        open_ended=st.booleans(),
    )
    def admit(
        self,
        key: str,
        estimate: int,
        beyond: int,
        least: int,
        free: bool,  # noqa: FBT001
        open_ended: bool,  # noqa: FBT001
    ) -> object:
        id_ = self.next_id()
        most = estimate + beyond
        asked = ModelRequest(
            key, estimate, most, min(least, most) * open_ended, open_ended=open_ended
        )
        if free:
            asked = ModelRequest(key, 0, 0, free=True)
        available, held = self.model.available, self.model.held
        expected = self.model.admit(id_, asked)
        assert self.under_test.admit(id_, asked) == expected
        lowered = isinstance(expected, int)
        event(f"admission: {'lowered' if lowered else expected or 'begins'}")
        if isinstance(expected, str):
            return multiple()
        if not free:
            assert self.model.running_weight <= available > 0, "more may be spent than there is"
            if asked.estimate and available < self.model.rules.threshold_nano:
                assert held + asked.estimate <= available, "more was held than there is"
        self.arrived[id_] = self.model.now
        return id_

    @rule(id_=consumes(requests), cost=AMOUNTS)
    def settle(self, id_: str, cost: int) -> None:
        request = self.model.running.get(id_)
        if request is None:
            return
        # Replies may cost more than was estimated: their prompt was longer, say.
        ended = self.model.settle(id_, 0 if request.free else cost)
        self.under_test.settle(ended, self.arrived[id_])

    @rule(id_=consumes(requests))
    def settle_at_its_estimate(self, id_: str) -> None:
        request = self.model.running.get(id_)
        if request is not None:
            ended = self.model.settle(id_, request.estimate)
            self.under_test.settle(ended, self.arrived[id_])

    @rule(id_=consumes(requests))
    def release(self, id_: str) -> None:
        if id_ in self.model.running:
            self.model.release(id_)
            self.under_test.release(id_)

    @rule()
    def book(self) -> None:
        self.under_test.book()

    @precondition(lambda self: self.model.ended)
    @rule()
    def kill(self) -> None:
        self.model.lose_memory()
        self.under_test.kill()

    @rule(amount=st.integers(1, 30) | st.just(9 * CREDIT), paid=st.booleans())
    def credit(self, amount: int, paid: bool) -> None:  # noqa: FBT001
        self.under_test.credit(amount, paid=paid)
        if paid:
            self.model.purchased += amount
        else:
            self.model.granted += amount

    @rule(
        key=st.sampled_from(ALL_KEYS),
        nano=st.none() | AMOUNTS,
        reset=st.none() | st.sampled_from(Reset),
    )
    def limit(self, key: str, nano: int | None, reset: Reset | None) -> None:
        limit = KeyLimit(nano, reset)
        self.model.limits[key] = limit
        self.under_test.limit(key, limit)

    @rule(target=batches, key=st.sampled_from(ALL_KEYS), amount=AMOUNTS)
    def reserve(self, key: str, amount: int) -> object:
        # Whoever reserves waits for the charges before.
        self.under_test.book()
        batch = f"batch-{self.next_id()}"
        expected = self.model.reserve(batch, key, amount)
        found = self.under_test.reserve(batch, key, amount)
        assert found == expected
        event(f"reservation: {expected or 'begins'}")
        if expected is not None:
            return multiple()
        assert self.model.balance >= 0
        return batch

    @rule(batch=batches, cost=AMOUNTS, by=AMOUNTS)
    def charge(self, batch: str, cost: int, by: int) -> None:
        ended = self.model.charge(batch, self.next_id(), cost, by)
        self.under_test.charge(batch, ended, self.model.now, by)

    @rule(batch=consumes(batches))
    def end(self, batch: str) -> None:
        del self.model.batches[batch]
        self.under_test.end(batch)

    @rule(
        target=expired,
        seconds=st.sampled_from([0.001, 1.0, 4.999, 5.0, 30.0, 60.0, 700.0, 86_400.0, 604_800.0]),
    )
    def advance(self, seconds: float) -> object:
        over = self.model.advance(seconds)
        late = [self.model.running.pop(id_) for id_ in over]
        self.under_test.advance(seconds)
        return multiple(*late)

    @rule(request=consumes(expired), cost=st.integers(1, 20))
    def settle_late(self, request: RunningRequest, cost: int) -> None:
        ended = EndedRequest(
            request.id,
            request.key,
            0 if request.free else cost,
            request.free,
            request.day,
            self.model.monotonic,
            had_hold=False,
        )
        self.model.ended.append(ended)
        self.under_test.settle(ended, self.arrived[ended.id])

    @invariant()
    def counters_agree(self) -> None:
        if self.system is not None:
            model = self.model
            expected = (
                model.balance,
                model.held,
                model.promised,
                model.free_today,
                len(model.running),
            )
            assert self.system.counters() == expected

    def teardown(self) -> None:
        if self.system is not None:
            self.system.close()
