"""A key's limit, in memory: what is booked, what is on its way to the books, what is held.

What its batches have reserved counts beside that, in whichever window. What interns use whose key
it answers for counts as its own.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from tollhouse.accounting.admission.types import CreditLimit, KeyFacts
from tollhouse.accounting.types import KeyLimit, Spend
from tollhouse.accounting.windows import resets_at, window_start

if TYPE_CHECKING:
    from datetime import date

    from tollhouse.accounting.admission.types import Source


class KeyState:
    """What counts towards a key's limit."""

    __slots__ = (
        "_start",
        "_total",
        "_unbooked",
        "_used",
        "days",
        "held_nano",
        "limit",
        "reserved_nano",
    )

    def __init__(self) -> None:
        """Know nothing yet; `load` comes next."""
        self.limit = KeyLimit()
        self.held_nano = 0
        self.reserved_nano = 0
        self.days: defaultdict[date, Spend] = defaultdict(Spend)
        self._total = Spend()
        self._unbooked: defaultdict[date, Spend] = defaultdict(Spend)
        self._start: date | None = None
        """Of the window that was looked at last."""
        self._used: int | None = None
        """What counts in it; None where that has to be reckoned anew."""

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not self.held_nano and not self._unbooked

    def load(self, facts: KeyFacts) -> None:
        """Take what the books say; what is on its way to them is added."""
        self.limit = facts.limit
        self.reserved_nano = facts.reserved_nano
        self._total = facts.total
        self.days = defaultdict(Spend, facts.days)
        for day, spend in self._unbooked.items():
            self._add(day, spend)
        self._used = None

    def used_nano(self, today: date) -> int:
        """Return what counts towards the limit in the window of a day."""
        start = window_start(self.limit.reset, today)
        if start != self._start:
            self._start, self._used = start, None
        if self._used is None:
            self._used = self._counted(start)
        return self._used

    def credit_limit(self, today: date, source: Source = "key_limit") -> CreditLimit | None:
        """Return the limit as it stands; None where there is none."""
        if self.limit.limit_nano is None:
            return None
        return CreditLimit(
            source,
            self.limit.limit_nano,
            self.used_nano(today),
            self.held_nano + self.reserved_nano,
            resets_at(self.limit.reset, today),
        )

    def charged(self, day: date, spend: Spend) -> None:
        """Count what a generation cost, before it is booked.

        Args:
            day: The UTC day that the books will count it to.
            spend: What it adds.
        """
        self._unbooked[day] += spend
        if self._used is not None and self._is_in(self._start, day):
            self._used += self._nano(spend)
        self._add(day, spend)

    def booked(self, day: date, spend: Spend) -> None:
        """Learn that what was taken is in the books."""
        self._unbooked[day] -= spend
        if self._unbooked[day] == Spend():
            del self._unbooked[day]

    def _add(self, day: date, spend: Spend) -> None:
        self._total += spend
        self.days[day] += spend

    def _counted(self, start: date | None) -> int:
        if start is None:
            return self._nano(self._total)
        since = (spend for day, spend in self.days.items() if self._is_in(start, day))
        return self._nano(sum(since, Spend()))

    @staticmethod
    def _is_in(start: date | None, day: date) -> bool:
        """Tell whether a day lies in the window that began on another, or before all time."""
        return start is None or day >= start

    def _nano(self, spend: Spend) -> int:
        own = spend.byok_usage_nano if self.limit.include_byok else 0
        return spend.usage_nano + own
