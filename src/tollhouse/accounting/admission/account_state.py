"""An account in memory: its money, what is held of it, its free requests and its keys.

    balance   = balance in the books - charges that those do not have yet
    available = balance - what batches have reserved

Every method is one step without waiting, so that a check and the hold that follows it are one.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.in_flight import InFlight
from tollhouse.accounting.admission.key_state import KeyState
from tollhouse.accounting.admission.sliding_window import SlidingMinute
from tollhouse.accounting.admission.types import AccountFacts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from tollhouse.accounting.admission.types import AdmissionRequest, Rate
    from tollhouse.accounting.types import Credits


class Hold:
    """What one request under way holds."""

    __slots__ = (
        "account",
        "credits_nano",
        "expires",
        "free",
        "keys",
        "nano",
        "request",
    )

    def __init__(  # noqa: PLR0913 - each is a fact of the hold
        self,
        account: AccountState,
        request: AdmissionRequest,
        *,
        keys: Sequence[KeyState],
        nano: int,
        credits_nano: int,
        free: bool,
        expires: float,
    ) -> None:
        """Take what was decided."""
        self.account = account
        self.request = request
        self.keys = keys
        """Those whose limits it counts towards."""
        self.nano = nano
        """What it holds of each of them."""
        self.credits_nano = credits_nano
        """What it holds of the balance."""
        self.free = free
        """Whether it holds one of the day's free requests."""
        self.expires = expires


class AccountState:
    """What admission knows of one account."""

    __slots__ = (
        "_charged_nano",
        "_free_days",
        "_owned_nano",
        "_spendable_nano",
        "_unbooked_free",
        "_unbooked_nano",
        "facts",
        "free_held",
        "held_nano",
        "in_flight",
        "keys",
        "minutes",
    )

    def __init__(self) -> None:
        """Know nothing yet; `load` comes next."""
        self.facts = AccountFacts()
        self.in_flight = InFlight()
        self.held_nano = 0
        """What requests under way may cost at most, together."""
        self.keys: dict[str, KeyState] = {}
        self.minutes: dict[str | None, SlidingMinute] = {}
        self.free_held = 0
        self._owned_nano = 0
        """The balance in the books when the facts were read."""
        self._spendable_nano = 0
        """The same without what batches have reserved."""
        self._charged_nano = 0
        """Charges that the facts do not know of: taken since they were read, or not booked then."""
        self._unbooked_nano = 0
        self._free_days: Counter[date] = Counter()
        self._unbooked_free: Counter[date] = Counter()

    def load(self, facts: AccountFacts) -> None:
        """Take what the books say; what is on its way to them is added."""
        self.facts = facts
        self._owned_nano = facts.credits.balance_nano
        self._spendable_nano = self._owned_nano - facts.reserved_nano
        self._charged_nano = self._unbooked_nano
        self._free_days = Counter(facts.free_requests)
        self._free_days.update(self._unbooked_free)

    @property
    def credits(self) -> Credits:
        """The account's money, with the charges that are not booked yet."""
        booked = self.facts.credits
        return replace(booked, used_nano=booked.used_nano + self._charged_nano)

    @property
    def balance_nano(self) -> int:
        """What is left of its credits."""
        return self._owned_nano - self._charged_nano

    @property
    def available_nano(self) -> int:
        """What requests may spend: the balance without what batches have reserved."""
        return self._spendable_nano - self._charged_nano

    @property
    def is_new(self) -> bool:
        """Whether it never used anything."""
        return not self.facts.credits.used_nano and not self._charged_nano

    def idle(self, now: float) -> bool:
        """Tell whether nothing would be lost by forgetting it."""
        return (
            not self.in_flight.held_nano(now)
            and not self.held_nano
            and not self.free_held
            and not self._unbooked_nano
            and not self._unbooked_free
            and all(key.idle for key in self.keys.values())
            and all(minute.idle(now) for minute in self.minutes.values())
        )

    def free_used(self, today: date) -> int:
        """Return a day's limited requests to free models, those under way and later ones too."""
        return self.free_held + sum(n for day, n in self._free_days.items() if day >= today)

    def minute(self, rate: Rate) -> SlidingMinute:
        """Return the latest requests that a rate counts."""
        return self.minutes.setdefault(rate.model, SlidingMinute())

    def key(self, key_hash: str) -> KeyState:
        """Return one of its keys."""
        found = self.keys.get(key_hash)
        if found is None:
            found = self.keys[key_hash] = KeyState()
        return found

    # Money that moves

    def charged(self, cost_nano: int, *, free_day: date | None) -> None:
        """Count a generation that is on its way to the books.

        Args:
            cost_nano: What it cost.
            free_day: The UTC day that it counts to as a request to a free model; None: to none.
        """
        self._charged_nano += cost_nano
        self._unbooked_nano += cost_nano
        if free_day is not None:
            self._free_days[free_day] += 1
            self._unbooked_free[free_day] += 1

    def booked(self, cost_nano: int, *, free_day: date | None) -> None:
        """Learn that what was taken is in the books."""
        self._unbooked_nano -= cost_nano
        if free_day is not None:
            self._unbooked_free[free_day] -= 1
            if not self._unbooked_free[free_day]:
                del self._unbooked_free[free_day]
