"""A model of admission in plain lists and sums.

The shipped code keeps running totals; this recomputes everything from what happened.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta

from tests.support.seams.accounting import AccountingRules, KeyLimit, Reset
from tollhouse.kernel.money import NANO_PER_CREDIT

CREDIT = NANO_PER_CREDIT
KEYS = ("k" * 64, "o" * 64)
PAYERS = {"i" * 64: KEYS[0], "j" * 64: KEYS[0]}
"""Keys of interns, and the keys that pay for them."""


def keys_of(key: str) -> tuple[str, ...]:
    """Return the keys whose limits hold for a request, its own first."""
    return (key, PAYERS[key]) if key in PAYERS else (key,)


@dataclass(frozen=True)
class ModelRequest:
    """A request for admission."""

    key: str
    estimate: int
    """What it takes of the in-flight budget, in nano-credits."""
    maximum: int
    """The most that it may cost."""
    minimum: int = 0
    """The cost of its input, for a request without an output limit."""
    free: bool = False
    open_ended: bool = False


@dataclass
class RunningRequest:
    """A request that was admitted and has not ended."""

    id: str
    key: str
    estimate: int
    weight: int
    """What it holds of the balance, and of the limit of each of its keys."""
    free: bool
    day: date
    began: float


@dataclass
class EndedRequest:
    """A request that ended with a charge."""

    id: str
    key: str
    cost: int
    free: bool
    day: date
    ended: float
    had_hold: bool


@dataclass
class Reservation:
    """The reservation of a batch."""

    key: str
    amount: int


@dataclass
class AdmissionModel:
    """One account with some keys."""

    rules: AccountingRules
    now: datetime
    monotonic: float = 0.0
    purchased: int = 0
    granted: int = 0
    limits: dict[str, KeyLimit] = field(default_factory=dict)
    running: dict[str, RunningRequest] = field(default_factory=dict)
    ended: list[EndedRequest] = field(default_factory=list)
    minute: list[float] = field(default_factory=list)
    batches: dict[str, Reservation] = field(default_factory=dict)

    # What there is

    @property
    def today(self) -> date:
        return self.now.astimezone(UTC).date()

    @property
    def used(self) -> int:
        return sum(each.cost for each in self.ended)

    @property
    def balance(self) -> int:
        return self.purchased + self.granted - self.used

    @property
    def reserved(self) -> int:
        return sum(each.amount for each in self.batches.values())

    def key_reserved(self, key: str) -> int:
        return sum(each.amount for each in self.batches.values() if key in keys_of(each.key))

    @property
    def available(self) -> int:
        return self.balance - self.reserved

    @property
    def promised(self) -> int:
        """What running requests and batches may cost."""
        return self.reserved + self.running_weight

    @property
    def running_weight(self) -> int:
        return sum(each.weight for each in self.running.values())

    @property
    def held(self) -> int:
        window = self.rules.settlement_seconds
        recent = (
            each.cost
            for each in self.ended
            if each.had_hold and self.monotonic < each.ended + window
        )
        return sum(each.estimate for each in self.running.values()) + sum(recent)

    @property
    def budget(self) -> int:
        part = self.available * self.rules.fraction.numerator // self.rules.fraction.denominator
        return max(0, min(part, self.rules.ceiling_nano))

    def key_used(self, key: str) -> int:
        reset = self.limits.get(key, KeyLimit()).reset
        mine = (each for each in self.ended if key in keys_of(each.key))
        return sum(each.cost for each in mine if self._in_window(each, reset))

    def _in_window(self, each: EndedRequest, reset: Reset | None) -> bool:
        match reset:
            case None:
                return True
            case Reset.DAILY:
                return each.day == self.today
            case Reset.WEEKLY:
                return each.day > self.today - timedelta(days=self.today.isoweekday())
            case Reset.MONTHLY:
                return (each.day.year, each.day.month) == (self.today.year, self.today.month)

    def key_held(self, key: str) -> int:
        return sum(each.weight for each in self.running.values() if key in keys_of(each.key))

    @property
    def free_today(self) -> int:
        running = sum(each.free for each in self.running.values())
        return running + sum(each.free and each.day == self.today for each in self.ended)

    @property
    def free_limit(self) -> int:
        enough = self.purchased >= self.rules.raised_from_nano
        return self.rules.free_per_day_raised if enough else self.rules.free_per_day

    # What happens

    def admit(self, id_: str, asked: ModelRequest) -> str | int | None:
        """Return why a request is refused, or what it may cost where that was lowered."""
        reason = self._free() if asked.free else None
        reason = reason or self._credits(asked)
        if reason is not None:
            return reason
        weight = 0 if asked.free else self._weight(asked)
        self.running[id_] = RunningRequest(
            id_, asked.key, asked.estimate, weight, asked.free, self.today, self.monotonic
        )
        if asked.free:
            self.minute.append(self.monotonic)
        return weight if asked.open_ended and weight < asked.maximum else None

    def _free(self) -> str | None:
        if self.free_today >= self.free_limit:
            return "free-models-per-day"
        latest = [each for each in self.minute if self.monotonic - each < 60]
        return "free-models-per-min" if len(latest) >= self.rules.free_per_minute else None

    def _left_of_key(self, key: str) -> int | None:
        limit = self.limits.get(key, KeyLimit()).limit_nano
        return None if limit is None else limit - self.key_used(key) - self.key_reserved(key)

    def _weight(self, asked: ModelRequest) -> int:
        if not asked.open_ended:
            return asked.maximum
        lefts = [self._left_of_key(each) for each in keys_of(asked.key)]
        known = [each for each in lefts if each is not None]
        return max(asked.minimum, min(asked.maximum, self.available, *known))

    def _credits(self, asked: ModelRequest) -> str | None:  # noqa: PLR0911 - one for each reason
        if asked.free:
            return "negative_balance" if self.balance < 0 else None
        estimate, weight = asked.estimate, self._weight(asked)
        has_budget = estimate > 0 and self.available < self.rules.threshold_nano
        for each in keys_of(asked.key):
            if (spent := self._spent(each, weight)) is not None:
                return spent
        if self.available <= 0:
            return "insufficient_credits"
        if weight > self.available:
            return "weight_exceeds_credits"
        if has_budget and estimate > self.budget:
            return "weight_exceeds_budget"
        for each in keys_of(asked.key):
            if self._is_held(each, weight):
                return "key_limit_held"
        if has_budget and self.held + estimate > self.budget:
            return "in_flight_budget_exhausted"
        return "credits_held" if self.running_weight + weight > self.available else None

    def _spent(self, key: str, weight: int) -> str | None:
        limit = self.limits.get(key, KeyLimit()).limit_nano
        used = self.key_used(key) + self.key_reserved(key)
        if limit is not None and used >= limit:
            return "key_limit_exhausted"
        return "weight_exceeds_key_limit" if limit is not None and used + weight > limit else None

    def _is_held(self, key: str, weight: int) -> bool:
        limit, held = self.limits.get(key, KeyLimit()).limit_nano, self.key_held(key)
        used = self.key_used(key) + self.key_reserved(key) + held
        return limit is not None and held > 0 and (used >= limit or used + weight > limit)

    def settle(self, id_: str, cost: int) -> EndedRequest:
        """End a request with a charge, whether it still holds something or not."""
        request = self.running.pop(id_)
        ended = EndedRequest(
            id_, request.key, cost, request.free, request.day, self.monotonic, had_hold=True
        )
        self.ended.append(ended)
        return ended

    def release(self, id_: str) -> None:
        """End a request without a charge."""
        del self.running[id_]

    def reserve(self, id_: str, key: str, amount: int) -> str | None:
        """Return why an amount cannot be reserved, or None."""
        if not amount and self.balance < 0:
            return "negative_balance"
        for each in keys_of(key):
            limit = self.limits.get(each, KeyLimit()).limit_nano
            used = self.key_used(each) + self.key_reserved(each)
            if amount and limit is not None and amount > limit - used:
                return "batch_exceeds_key_limit"
        if amount and amount > self.available:
            return "batch_exceeds_credits"
        self.batches[id_] = Reservation(key, amount)
        return None

    def charge(self, batch: str, id_: str, cost: int, by: int) -> EndedRequest:
        """Charge an item of a batch, and lower the batch's reservation."""
        reserved = self.batches[batch]
        reserved.amount = max(0, reserved.amount - by)
        ended = EndedRequest(
            id_, reserved.key, cost, free=False, day=self.today, ended=0.0, had_hold=False
        )
        self.ended.append(ended)
        return ended

    def lose_memory(self) -> None:
        """Forget what only memory holds, as after a kill."""
        self.running.clear()
        self.minute.clear()
        for each in self.ended:
            each.had_hold = False

    def advance(self, seconds: float) -> Sequence[str]:
        """Let time pass; return the requests whose holds are over."""
        self.now += timedelta(seconds=seconds)
        self.monotonic += seconds
        return [
            each.id
            for each in self.running.values()
            if self.monotonic >= each.began + self.rules.hold_seconds
        ]
