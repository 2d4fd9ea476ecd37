"""The accounts in memory: what admission knows of them, and when it is read again.

    balance   = balance in the books - charges that those do not have yet
    available = balance - what batches have reserved

What is read is exact: charges are numbered, and each reading knows up to which number the books
have them. Those above it are added to what was read, until a later reading has them.
Methods of a state do not wait, so that a check and the hold that follows it are one step.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Final, Protocol

import structlog

from tollhouse.accounting.admission.types import AccountFacts, CreditLimit, KeyFacts, Rate, Source
from tollhouse.accounting.limits import resets_at, window_start
from tollhouse.accounting.types import Credits, GenerationRecord, KeyLimit, Spend
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.sliding_window import SlidingMinute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tollhouse.kernel.clock import Clock

MOST_REMEMBERED: Final = 50_000
LOAD_SECONDS: Final = 5.0
_NOT_READ: Final = "The account's credits cannot be read now; try again in a moment."
_log = structlog.get_logger(__name__)


@dataclass(slots=True, eq=False)
class InFlight:
    """Estimates of running requests; actual costs for the settlement window after their end.

    Source: the in-flight budget's third rule: the estimate is replaced by the actual cost for a
    short settlement window, then released.
    """

    running_nano: int = 0
    recent_nano: int = 0
    _recent: deque[tuple[float, int]] = field(default_factory=deque[tuple[float, int]])

    def held_nano(self, now: float) -> int:
        """Return everything that is held now; `now` in seconds of a clock that never jumps."""
        recent = self._recent
        while recent and recent[0][0] <= now:
            self.recent_nano -= recent.popleft()[1]
        return self.running_nano + self.recent_nano

    def begin(self, estimate_nano: int) -> None:
        """Hold a request's estimate."""
        self.running_nano += estimate_nano

    def end(self, estimate_nano: int, actual_nano: int, now: float, window: float) -> None:
        """Hold a request's actual cost in place of its estimate, for a window of seconds."""
        # Whoever has no budget never asks what is held: what is over would stay for ever.
        self.held_nano(now)
        self.running_nano -= estimate_nano
        if actual_nano:
            # Windows are equally long, so the first to come is the first to go.
            self._recent.append((now + window, actual_nano))
            self.recent_nano += actual_nano

    def seconds_until(self, excess_nano: int, now: float) -> float | None:
        """Return when so much less is held, if nothing else begins; None: not by waiting alone."""
        for until, nano in self._recent:
            excess_nano -= nano
            if excess_nano <= 0:
                return until - now
        return None

    def next_change(self, now: float) -> float | None:
        """Return when the next actual cost leaves; None where none will."""
        self.held_nano(now)
        return self._recent[0][0] if self._recent else None


@dataclass(slots=True, eq=False)
class KeyState:
    """What counts towards a key's limit: booked, on its way to the books, held, reserved.

    What its batches have reserved counts in whichever window. What interns use whose key it answers
    for counts as its own.
    """

    hash: str
    limit: KeyLimit = field(default_factory=KeyLimit)
    held_nano: int = 0
    reserved_nano: int = 0
    days: defaultdict[date, Spend] = field(default_factory=lambda: defaultdict(Spend))
    _total: Spend = field(default_factory=Spend)
    _start: date | None = None
    """Of the window that was looked at last."""
    _used: int | None = None
    """What counts in it; None where that has to be reckoned anew."""

    @property
    def idle(self) -> bool:
        """Whether nothing would be lost by forgetting it."""
        return not self.held_nano

    def load(self, facts: KeyFacts, unbooked: Iterable[GenerationRecord]) -> None:
        """Replace the facts by what the books say now, and add what is on its way to them."""
        self.limit = facts.limit
        self.reserved_nano = facts.reserved_nano
        self._total = facts.total
        self.days = defaultdict(Spend, facts.days)
        for record in unbooked:
            if self.hash in record.key_hashes:
                self._add(record.utc_day, record.spend)
        self._used = None

    def used_nano(self, today: date) -> int:
        """Return what counts towards the limit in the window of a day."""
        reset = self.limit.reset
        start = None if reset is None else window_start(reset, today)
        if start != self._start:
            self._start, self._used = start, None
        if self._used is None:
            spends = (spend for day, spend in self.days.items() if start is None or day >= start)
            self._used = self._nano(self._total if start is None else sum(spends, Spend()))
        return self._used

    def left_nano(self, limit_nano: int, today: date) -> int:
        """Return what is left of a limit for requests, those under way included."""
        return limit_nano - self.used_nano(today) - self.reserved_nano

    def credit_limit(self, today: date, source: Source) -> CreditLimit | None:
        """Return the limit as it stands; None where there is none."""
        if self.limit.limit_nano is None:
            return None
        return CreditLimit(
            source,
            self.limit.limit_nano,
            self.used_nano(today),
            self.held_nano + self.reserved_nano,
            None if self.limit.reset is None else resets_at(self.limit.reset, today),
        )

    def charged(self, day: date, spend: Spend) -> None:
        """Count what a generation cost that the books will count to a UTC day."""
        if self._used is not None and (self._start is None or day >= self._start):
            self._used += self._nano(spend)
        self._add(day, spend)

    def _add(self, day: date, spend: Spend) -> None:
        self._total += spend
        self.days[day] += spend

    def _nano(self, spend: Spend) -> int:
        own = spend.byok_usage_nano if self.limit.include_byok else 0
        return spend.usage_nano + own


@dataclass(slots=True, eq=False)
class AccountState:
    """What admission knows of one account: its money, holds, free requests and keys."""

    facts: AccountFacts = field(default_factory=AccountFacts)
    needs_credits: bool = True
    in_flight: InFlight = field(default_factory=InFlight)
    held_nano: int = 0
    """What requests under way may cost at most, together."""
    keys: dict[str, KeyState] = field(default_factory=dict[str, KeyState])
    minutes: dict[str | None, SlidingMinute] = field(
        default_factory=dict[str | None, SlidingMinute]
    )
    free_held: int = 0
    own_free: dict[str, date] = field(default_factory=dict[str, date])
    """Generations that cost no fee with own keys and are not counted as such yet, by their days."""
    _owned_nano: int = 0
    """The balance in the books when the facts were read."""
    _spendable_nano: int = 0
    """The same without what batches have reserved."""
    _charged_nano: int = 0
    """Charges that the facts do not know of: made since they were read, or not booked then."""
    _unbooked: deque[tuple[int, GenerationRecord]] = field(
        default_factory=deque[tuple[int, GenerationRecord]]
    )
    """Charges that are not known to be booked, and their numbers."""
    _free_days: Counter[date] = field(default_factory=Counter)
    _own_days: Counter[date] | None = None
    """Requests that own keys served; None where the books were not read."""

    def load(self, facts: AccountFacts, *, count_own: bool = True) -> Sequence[GenerationRecord]:
        """Replace the facts by what the books say now, and add what is on its way to them.

        Returns that. `count_own`: also requests with own keys. Where nobody else writes books, what
        this process counts from the first reading on is exact, also while a batch is being booked.
        """
        self.facts = facts
        self.needs_credits = facts.type.needs_credits
        self._owned_nano = facts.credits.balance_nano
        self._spendable_nano = self._owned_nano - facts.reserved_nano
        unbooked = [record for number, record in self._unbooked if number > facts.booked_seq]
        self._charged_nano = sum(record.cost_nano for record in unbooked)
        self._free_days = Counter(facts.free_requests)
        self._free_days.update(record.utc_day for record in unbooked if record.free_limited)
        if count_own or self._own_days is None:
            self._own_days = Counter(facts.own_requests)
            self._own_days.update(record.utc_day for record in unbooked if record.is_byok)
        return unbooked

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
            and not self._unbooked
            and not self.own_free
            and all(key.idle for key in self.keys.values())
            and all(minute.idle(now) for minute in self.minutes.values())
        )

    def free_used(self, today: date) -> int:
        """Return a day's limited requests to free models, those under way and later ones too."""
        return self.free_held + sum(n for day, n in self._free_days.items() if day >= today)

    def has_free_own(self, day: date, a_month: int) -> bool:
        """Tell whether another request with own keys, on some day, costs no fee."""
        first = day.replace(day=1)
        if not a_month or self._own_days is None or first < self.facts.counted_from:
            return False
        counted = (n for each, n in self._own_days.items() if each.replace(day=1) == first)
        running = (each.replace(day=1) == first for each in self.own_free.values())
        return sum(counted) + sum(running) < a_month

    def minute(self, rate: Rate) -> SlidingMinute:
        """Return the latest requests that a rate counts."""
        return self.minutes.setdefault(rate.model, SlidingMinute())

    def key(self, key_hash: str) -> KeyState:
        """Return one of its keys."""
        if (found := self.keys.get(key_hash)) is None:
            found = self.keys[key_hash] = KeyState(key_hash)
        return found

    def charged(self, record: GenerationRecord, number: int) -> None:
        """Count a generation on its way to the books."""
        self._charged_nano += record.cost_nano
        self._unbooked.append((number, record))
        day = record.utc_day
        if record.free_limited:
            self._free_days[day] += 1
        if record.is_byok:
            self.count_own(record)
        for key_hash in record.key_hashes:
            self.key(key_hash).charged(day, record.spend)

    def count_own(self, record: GenerationRecord) -> None:
        """Count a generation of own keys, in place of what it took of the allowance."""
        self.own_free.pop(record.id, None)
        if self._own_days is not None:
            self._own_days[record.utc_day] += 1

    def booked(self, number: int) -> None:
        """Learn that the charges up to a number are in the books."""
        while self._unbooked and self._unbooked[0][0] <= number:
            self._unbooked.popleft()


class AccountLoader(Protocol):
    """Reads an account and a key from the database."""

    async def load(self, account_id: str, key_hash: str) -> tuple[AccountFacts, KeyFacts]:
        """Return it with the number up to which the books have this process' charges."""
        ...


@dataclass(slots=True, eq=False)
class CachedAccount:
    """An account and how much of it was read since the latest change."""

    state: AccountState = field(default_factory=AccountState)
    changed: int = 0
    read: dict[str, tuple[int, float]] = field(default_factory=dict[str, tuple[int, float]])
    """Each key that was read: after which change, and when."""
    users: int = 0
    """How many wait for it to be read, or read it."""
    loading: asyncio.Lock = field(default_factory=asyncio.Lock)
    outdated: set[str] = field(default_factory=set[str])
    """Keys that are to be read again beside the next request of theirs."""
    refreshing: dict[str, asyncio.Task[None]] = field(default_factory=dict[str, asyncio.Task[None]])
    """Keys that are read again beside the requests."""

    def missing(self, key_hashes: Iterable[str]) -> str | None:
        """Return the first of some keys that was not read since the latest change, or None."""
        for key_hash in key_hashes:  # of every request: no generator
            found = self.read.get(key_hash)
            if found is None or found[0] != self.changed:
                return key_hash
        return None


class AccountCache:
    """Accounts and keys in memory, as many as are used."""

    def __init__(
        self,
        loader: AccountLoader,
        clock: Clock,
        *,
        max_age_seconds: float | None,
        on_change: Callable[[str], None],
    ) -> None:
        """Read nothing yet.

        What others charge nobody is told: facts may be `max_age_seconds` old where there may be
        others, None where there are none. `on_change` is called with the id of an account that has
        changed or was read again.
        """
        self._loader = loader
        self._clock = clock
        self._max_age = max_age_seconds
        self._on_change = on_change
        self._entries: dict[str, CachedAccount] = {}
        self._booked_seq = 0
        """The number of the last charge that was told as booked."""
        self._full = MOST_REMEMBERED
        """From how many on the idle ones are forgotten."""

    def known(self, account_id: str, key_hashes: Iterable[str]) -> AccountState | None:
        """Return an account whose facts and keys are fresh; None where it has to be read."""
        entry = self._entries.get(account_id)
        if entry is None or entry.missing(key_hashes) is not None:
            return None
        for key_hash in key_hashes:
            self._reload_if_due(entry, account_id, key_hash)
        return entry.state

    def is_read(self, account_id: str) -> bool:
        """Tell whether an account was read before, with any of its keys."""
        entry = self._entries.get(account_id)
        return entry is not None and bool(entry.read)

    def state(self, account_id: str) -> AccountState | None:
        """Return an account as it is known, however old that is."""
        entry = self._entries.get(account_id)
        return None if entry is None else entry.state

    def is_known(self, account_id: str) -> bool:
        """Tell whether an account was read before, however old that is."""
        return account_id in self._entries

    async def read(self, account_id: str, key_hashes: Iterable[str]) -> None:
        """Read an account, unless its facts and its keys are fresh: `known` returns it then.

        It raises `Unavailable` where it cannot be read, or changes faster than it is read.
        """
        entry = self._entry(account_id)
        entry.users += 1
        try:
            # The time limit holds for those who wait for another's reading, too.
            async with asyncio.timeout(LOAD_SECONDS), entry.loading:
                # What changed while one key was read makes the others be read again.
                while (missing := entry.missing(key_hashes)) is not None:
                    await self._read(entry, account_id, missing)
        except TimeoutError as error:
            raise Unavailable(_NOT_READ, retry_after=1) from error
        finally:
            entry.users -= 1

    def charged(self, record: GenerationRecord, number: int) -> None:
        """Count a charge that is in the journal."""
        self._entry(record.account_id).state.charged(record, number)

    def booked(self, records: Sequence[GenerationRecord], number: int) -> None:
        """Learn that charges are in the database, the last one with that number."""
        self._booked_seq = number
        for account_id in {record.account_id for record in records}:
            if (entry := self._entries.get(account_id)) is not None:
                entry.state.booked(number)

    def invalidate(self, account_id: str | None) -> None:
        """Have an account, or every one, read again before its next request."""
        for each in self._entries if account_id is None else (account_id,):
            if (entry := self._entries.get(each)) is not None:
                entry.changed += 1
                self._on_change(each)

    def refresh(self, account_id: str | None) -> None:
        """Have an account, or every one, read again beside the next request of each of its keys."""
        for each in self._entries if account_id is None else (account_id,):
            if (entry := self._entries.get(each)) is not None:
                entry.outdated.update(entry.read)

    def _entry(self, account_id: str) -> CachedAccount:
        entry = self._entries.get(account_id)
        if entry is None:
            if len(self._entries) >= self._full:
                self._forget_idle()
                self._full = max(MOST_REMEMBERED, len(self._entries) * 11 // 10)
            entry = self._entries[account_id] = CachedAccount()
        return entry

    def _forget_idle(self) -> None:
        now = self._clock.monotonic()
        for account_id, entry in list(self._entries.items()):
            if not entry.users and not entry.refreshing and entry.state.idle(now):
                del self._entries[account_id]

    async def _read(self, entry: CachedAccount, account_id: str, key_hash: str) -> None:
        change = entry.changed
        try:
            account, key = await self._loader.load(account_id, key_hash)
        except Exception as error:
            _log.error("account_not_read", account=account_id, error=type(error).__name__)
            raise Unavailable(_NOT_READ, retry_after=1) from error
        if account.booked_seq < self._booked_seq:
            # Some charges were booked meanwhile, and are in neither: who reads again finds them.
            return
        unbooked = entry.state.load(account, count_own=self._max_age is not None)
        entry.state.key(key_hash).load(key, unbooked)
        entry.read[key_hash] = (change, self._clock.monotonic())

    def _reload_if_due(self, entry: CachedAccount, account_id: str, key_hash: str) -> None:
        if key_hash in entry.outdated and key_hash not in entry.refreshing:
            entry.outdated.discard(key_hash)
            self._reload(entry, account_id, key_hash)
        if self._max_age is not None:
            _, read_at = entry.read[key_hash]
            if self._clock.monotonic() - read_at > self._max_age:
                self._reload(entry, account_id, key_hash)

    def _reload(self, entry: CachedAccount, account_id: str, key_hash: str) -> None:
        """Read again beside the requests, which go on with what is known."""
        if key_hash not in entry.refreshing:
            task = asyncio.create_task(self._reloaded(entry, account_id, key_hash))
            entry.refreshing[key_hash] = task

    async def _reloaded(self, entry: CachedAccount, account_id: str, key_hash: str) -> None:
        try:
            async with asyncio.timeout(LOAD_SECONDS), entry.loading:
                await self._read(entry, account_id, key_hash)
            self._on_change(account_id)
        except (TimeoutError, Unavailable):
            # The next request that finds it old, in a while, tries again.
            entry.read[key_hash] = (entry.read[key_hash][0], self._clock.monotonic())
        finally:
            del entry.refreshing[key_hash]
