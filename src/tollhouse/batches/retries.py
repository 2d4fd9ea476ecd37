"""When an item that failed in passing is tried again, and when it has failed for good.

Every try counts. How long an item waits for the next one depends on whether others are answered:

    tries so far    beside others          beside nobody
    1               0.5 s                  5 s
    2               1 s                    30 s
    3               2 s                    3 min
    4               4 s                    15 min
    5               failed                 failed

A failure is beside others if

- a request of the same endpoint that began after it was answered, or
- others of the batch were answered before, its breaker is closed, and fewer than `_MANY` items have
  failed at the endpoint since an answer: what many items feel is an outage.

So an item that always fails is known within seconds, also where it is the last one, and an outage
of a quarter of an hour that many feel takes no item's last try. An item that failed beside a later
answer when few did is suspected: it opens no breaker. After two such failures it is to blame, and
waits for nobody. A 429 says nothing of the item: it has `LIMITED_TRIES`, after 1, 2, 4 seconds and
so on up to ten minutes, which is about two hours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from tollhouse.kernel.clock import Clock
    from tollhouse.kernel.errors import TollhouseError

TRIES: Final = 5
"""How often an item is tried."""
LIMITED_TRIES: Final = 20
"""How often an item is tried that gets nothing but 429s."""
_BLAMED_FROM: Final = 2
_MANY: Final = 3
"""So many items that fail, and none is answered meanwhile, are an outage."""
_BESIDE_ANSWERS: Final = (0.5, 1.0, 2.0, 4.0)
_WITHOUT_ANSWERS: Final = (5.0, 30.0, 180.0, 900.0)
_LONGEST_LIMITED: Final = 600.0
LONGEST_WAIT: Final = 900.0
"""Seconds that an item waits for its next try at most."""


@dataclass(frozen=True, slots=True)
class ItemFailures:
    """How an item failed so far."""

    failed: int = 0
    """Tries that failed, without those that got a 429."""
    limited: int = 0
    beside_answers: int = 0
    """Tries that failed when few did, and were followed by an answer to another item."""
    crashes: int = 0
    """How often the worker ended while the item ran alone."""
    soonest: float = 0.0
    """When it is tried again if others are answered; Unix seconds where it is stored."""
    latest: float = 0.0

    @property
    def are_final(self) -> bool:
        """Whether the item is not tried again."""
        return self.failed >= TRIES or self.limited >= LIMITED_TRIES

    @property
    def tries(self) -> int:
        """How often the item was tried."""
        return self.failed + self.limited

    @property
    def are_suspect(self) -> bool:
        """Whether the item may be the one to blame."""
        return self.beside_answers > 0

    @property
    def are_its_own(self) -> bool:
        """Whether the item is the one to blame."""
        return self.beside_answers >= _BLAMED_FROM

    def shifted(self, seconds: float) -> ItemFailures:
        """Return the same with instants of another clock."""
        return replace(self, soonest=self.soonest + seconds, latest=self.latest + seconds)


class RequestCounter:
    """Counts requests of some kind, and knows whether any that began lately was answered."""

    def __init__(self) -> None:
        self.begun = 0
        """The number of the one that began last."""
        self._answered = 0
        self._failing: set[object] = set()
        """Some of the items that failed since the last answer."""

    @property
    def any_answered(self) -> bool:
        """Whether any request was answered."""
        return self._answered > 0

    @property
    def few_fail(self) -> bool:
        """Whether too few items failed since the last answer to be an outage."""
        return len(self._failing) < _MANY

    def begin(self) -> int:
        """Note that a request begins; return its number."""
        self.begun += 1
        return self.begun

    def answered(self, request: int) -> None:
        """Note that a request was answered."""
        self._answered = max(self._answered, request)
        self._failing.clear()

    def note_failing(self, item: object) -> None:
        """Note that an item failed, and may not be the one to blame."""
        if self.few_fail:
            self._failing.add(item)

    def any_answered_after(self, request: int) -> bool:
        """Tell whether a request was answered that began after another one."""
        return self._answered > request


@dataclass(frozen=True, slots=True)
class _Waiting:
    """An item that failed; its instants by the monotonic clock."""

    failures: ItemFailures
    others: RequestCounter
    """Those whose answers speak against the item."""
    breaker: CircuitBreaker
    """The one of its batch."""
    begun: int
    """The last of the others that had begun when it failed."""
    few_failed: bool
    """Whether few others had failed then."""

    @staticmethod
    def at(failures: ItemFailures, others: RequestCounter, breaker: CircuitBreaker) -> _Waiting:
        """Return an item that failed just now."""
        return _Waiting(failures, others, breaker, others.begun, others.few_fail)

    @property
    def _is_before_an_answer(self) -> bool:
        return self.others.any_answered_after(self.begun)

    @property
    def _is_after_answers(self) -> bool:
        """Whether it has failed as one of few where others were answered before."""
        known = self.breaker.any_answered or self.failures.are_suspect
        return known and not self.breaker.is_open and self.others.few_fail

    @property
    def counted(self) -> ItemFailures:
        """The failures, the last one's circumstances included."""
        beside = self.failures.beside_answers + (self.few_failed and self._is_before_an_answer)
        return replace(self.failures, beside_answers=beside)

    @property
    def stored(self) -> ItemFailures:
        """The same for whoever takes it up again, and knows of no answers before."""
        beside = self.few_failed and (self._is_before_an_answer or self._is_after_answers)
        return replace(self.failures, beside_answers=self.failures.beside_answers + beside)

    @property
    def due_at(self) -> float:
        blamed = self.failures.are_its_own or self._is_before_an_answer or self._is_after_answers
        return self.failures.soonest if blamed else self.failures.latest


class RetrySchedule:
    """The items of a chunk that failed in passing and have no result yet."""

    def __init__(
        self,
        stored: Mapping[int, ItemFailures],
        others: RequestCounter,
        breaker: CircuitBreaker,
        clock: Clock,
    ) -> None:
        """Take up what was stored, by items' numbers; answers to `others` speak against those."""
        self._clock, self._breaker = clock, breaker
        self._waiting = {
            number: _Waiting.at(self._read(failures), others, breaker)
            for number, failures in stored.items()
        }

    def __contains__(self, number: int) -> bool:
        """Tell whether an item failed before."""
        return number in self._waiting

    def of(self, number: int) -> ItemFailures:
        """Return how an item failed so far."""
        waiting = self._waiting.get(number)
        return ItemFailures() if waiting is None else waiting.counted

    def failed(self, number: int, error: TollhouseError, others: RequestCounter) -> bool:
        """Note that a try failed; tell whether it was the last."""
        failures = after_failure(self.of(number), error, self._clock.monotonic())
        self._waiting[number] = _Waiting.at(failures, others, self._breaker)
        return failures.are_final

    def ended(self, number: int) -> None:
        """Forget an item that has its result."""
        self._waiting.pop(number, None)

    def next(self, held: Collection[int]) -> tuple[int, float] | None:
        """Return the item that is due first but not held, and in how many seconds; None if none."""
        waiting = ((each.due_at, at) for at, each in self._waiting.items() if at not in held)
        due_at, number = min(waiting, default=(0.0, -1))
        return None if number < 0 else (number, max(0.0, due_at - self._clock.monotonic()))

    def stored(self) -> Mapping[int, ItemFailures]:
        """Return what has to be known when the chunk is taken up again."""
        offset = self._unix_offset()
        return {at: each.stored.shifted(offset) for at, each in self._waiting.items()}

    def _read(self, failures: ItemFailures) -> ItemFailures:
        # The wall clock may have been set back since.
        last = self._clock.monotonic() + LONGEST_WAIT
        found = failures.shifted(-self._unix_offset())
        return replace(found, soonest=min(found.soonest, last), latest=min(found.latest, last))

    def _unix_offset(self) -> float:
        return self._clock.now().timestamp() - self._clock.monotonic()


def after_failure(before: ItemFailures, error: TollhouseError, now: float) -> ItemFailures:
    """Return an item's failures with one more, at an instant in seconds."""
    hint = float(error.retry_after or 0)
    if error.kind == "rate_limited":
        wait = max(hint, min(2.0**before.limited, _LONGEST_LIMITED))
        at = now + min(wait, LONGEST_WAIT)
        return replace(before, limited=before.limited + 1, soonest=at, latest=at)
    step = min(before.failed, TRIES - 2)
    return replace(
        before,
        failed=before.failed + 1,
        soonest=now + min(max(hint, _BESIDE_ANSWERS[step]), LONGEST_WAIT),
        latest=now + min(max(hint, _WITHOUT_ANSWERS[step]), LONGEST_WAIT),
    )


_SHORTEST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


class CircuitBreaker(RequestCounter):
    """Says whether an item of a batch may be begun: where nobody is answered, one probe at a time.

        closed    items are begun; three of them fail and none is answered meanwhile  ──> open
        open      nothing is begun for a while, then one probe
                      it is answered  ──> closed
                      it fails        ──> a pause twice as long, up to a minute

    An item that fails again and again counts once, and one that is suspected does not count: they
    say nothing of the others. And what keeps one batch waiting (its guardrail, say) keeps no other
    one.

    Source: M. Nygard, "Release It!" (2007), for the name and the three states.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._opened_after: int | None = None
        """The last request that had begun when it opened."""
        self._pause = _SHORTEST_PAUSE
        self._pause_ends = 0.0
        self._probe: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether nothing but probes may be begun."""
        return self._opened_after is not None

    @property
    def has_probe(self) -> bool:
        """Whether a probe is under way."""
        return self._probe is not None

    @property
    def pause_seconds(self) -> float:
        """How long not even a probe may be begun; 0 where one may be, or it is closed."""
        return max(0.0, self._pause_ends - self._clock.monotonic()) if self.is_open else 0.0

    @property
    def lets_pass(self) -> bool:
        """Whether an item may be begun now."""
        return not self.is_open or (not self.has_probe and not self.pause_seconds)

    def begin(self) -> int:
        """Note that an item is begun; return its request's number."""
        request = super().begin()
        if self.is_open:
            self._probe = request
        return request

    def ended(self, request: int) -> None:
        """Note that a request has ended, whatever came of it."""
        if self._probe == request:
            self._probe = None

    def answered(self, request: int) -> None:
        """Note that a request was answered: it closes, unless that began before it opened."""
        super().answered(request)
        if self._opened_after is None or request > self._opened_after:
            self._opened_after, self._pause = None, _SHORTEST_PAUSE

    def failed(
        self, request: int, item: object, error: TollhouseError, *, is_suspect: bool = False
    ) -> None:
        """Note that an item's request failed in a way that may be nobody's fault but a server's."""
        hint = min(float(error.retry_after or 0), LONGEST_WAIT)
        if not is_suspect:
            self.note_failing(item)
        if self._opened_after is None:
            if self.few_fail:
                return
            self._opened_after = self.begun
        elif request > self._opened_after:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        else:
            return
        self._pause_ends = self._clock.monotonic() + max(self._pause, hint)
