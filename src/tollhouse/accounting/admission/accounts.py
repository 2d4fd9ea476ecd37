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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import structlog

from tollhouse.accounting.admission.types import AccountFacts, KeyFacts, OwnerFacts
from tollhouse.accounting.limits import INTERVALS, Budget
from tollhouse.accounting.owner import Owner, end_user
from tollhouse.accounting.policy import free_requests_a_day
from tollhouse.accounting.types import (
    NO_SPEND,
    BudgetScope,
    GenerationRecord,
    KeyLimit,
    Reset,
    Spend,
)
from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.sliding_window import SlidingMinute

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from tollhouse.accounting.admission.types import AdmissionRequest
    from tollhouse.accounting.limits import AccountingRules
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


class AccountState:
    """What admission knows of one account: its money, holds, free requests and keys."""

    def __init__(self, account_id: str) -> None:
        """Know nothing before something is loaded."""
        self.id = account_id
        self.facts = AccountFacts()
        self.balance = Budget(BudgetScope.ACCOUNT, owner_id=account_id)
        self.free = Budget(BudgetScope.FREE_REQUESTS, owner_id=account_id)
        """Limited requests to free models of a UTC day."""
        self.in_flight = InFlight()
        self.keys: dict[str, Budget] = {}
        """What each key may use; what interns use whose key it answers for counts as its own."""
        self.owners: dict[Owner, dict[Reset | None, Budget]] = {}
        """Those that have a limit, or had one on which requests may draw that still run."""
        self.end_users_of: set[str] = set()
        """Workspaces of which some end user has a limit."""
        self.minutes: defaultdict[str | None, SlidingMinute] = defaultdict(SlidingMinute)
        """The latest requests that a rate counts, by its model."""
        self.own_free: dict[str, date] = {}
        """Generations that cost no fee with own keys, and are not counted as such yet."""
        self._own_days: Counter[date] | None = None
        """Requests that own keys served; None where the books were not read."""
        self._owners_of: dict[str, Sequence[Owner]] = {}
        """Who made a key, and its workspace."""
        self._people: dict[str, str] = {}
        """Who made a key, of those who have a limit."""
        self._drawn: dict[tuple[str, ...], tuple[Sequence[Budget], ...]] = {}
        """What requests with some keys draw on: the people's, all others, and both together."""
        self._unbooked: deque[tuple[int, GenerationRecord]] = deque()
        """Charges that are not known to be booked, and their numbers."""

    def load(
        self, facts: AccountFacts, rules: AccountingRules, *, count_own: bool
    ) -> Sequence[GenerationRecord]:
        """Replace the facts by what the books say now, and add what is on its way to them.

        Returns that. `count_own`: also requests with own keys. Where nobody else writes books, what
        this process counts from the first reading on is exact, also while a batch is being booked.
        """
        unbooked = [record for number, record in self._unbooked if number > facts.booked_seq]
        self.facts = facts
        facts.fill(self.balance, unbooked)
        limit = KeyLimit(free_requests_a_day(facts.credits, rules), Reset.DAILY)
        days = {day: Spend(n) for day, n in facts.free_requests.items()}
        self.free.load(limit, NO_SPEND, days, 0)
        for record in unbooked:
            if record.free_limited:
                self.free.charged(record, 1)
        if count_own or self._own_days is None:
            self._own_days = Counter(facts.own_requests)
            self._own_days.update(record.utc_day for record in unbooked if record.is_byok)
        return unbooked

    def load_key(
        self, key_hash: str, facts: KeyFacts, unbooked: Sequence[GenerationRecord]
    ) -> None:
        """Replace what is known of a key, who made it, and its workspace, by what the books say."""
        used = [record for record in unbooked if key_hash in record.key_hashes]
        self._key(key_hash).load(facts.limit, facts.total, facts.days, facts.reserved_nano, used)
        self._owners_of[key_hash] = [each.owner for each in facts.owners]
        for each in facts.owners:
            self.load_owner(each, unbooked)
            if each.owner.scope is BudgetScope.WORKSPACE:
                has_limits = facts.limits_end_users
                (self.end_users_of.add if has_limits else self.end_users_of.discard)(each.owner.id)
        self._drawn.clear()

    def load_owner(self, facts: OwnerFacts, unbooked: Sequence[GenerationRecord]) -> None:
        """Replace what is known of an owner by what the books say."""
        owner, use = facts.owner, facts.use
        limits = {each.reset: each for each in facts.limits}
        if owner not in self.owners and not limits:
            return
        self._people.update(dict.fromkeys(facts.keys, owner.id))
        used = [record for record in unbooked if owner in self._owners(record)]
        budgets = self.owners.setdefault(owner, {})
        for reset in {*budgets, *limits}:
            limit = limits.get(reset, KeyLimit(reset=reset))
            reserved = use.held_for_batches(include_byok=limit.include_byok)
            if (budget := budgets.get(reset)) is None:
                budget = budgets[reset] = Budget(owner.scope, owner_id=owner.id)
            budget.load(limit, use.total, use.days, reserved, used)
        self._drawn.clear()

    def budgets(self, request: AdmissionRequest) -> Sequence[Budget]:
        """Return all that limit a request, in the order in which they are enforced."""
        found = self._drawn.get(request.key_hashes)
        if found is None:
            found = self._drawn[request.key_hashes] = self._drawn_on(request.key_hashes)
        people, others, every = found
        if request.end_user is not None and self.limits_end_user(request.end_user):
            return (*people, *self._limited(request.end_user), *others)
        return every

    def _drawn_on(self, keys: tuple[str, ...]) -> tuple[Sequence[Budget], ...]:
        owners = [self._owners_of.get(key, ()) for key in keys]
        people = [each for of in owners for each in of if each.scope is BudgetScope.MEMBER]
        places = [each for each in owners[0] if each.scope is BudgetScope.WORKSPACE] if keys else []
        first = [budget for each in people for budget in self._limited(each)]
        others = [budget for each in places for budget in self._limited(each)]
        others += [*map(self._key, keys), self.balance]
        return first, others, (*first, *others)

    def _limited(self, owner: Owner) -> Sequence[Budget]:
        """Return the budgets of an owner that have a limit, the shortest interval first."""
        budgets = self.owners.get(owner, {})
        found = [budgets[reset] for reset in INTERVALS if reset in budgets]
        return [budget for budget in found if budget.is_limited]

    def limits_end_user(self, end_user: Owner) -> bool:
        """Tell whether a request has to know what an end user may use."""
        return end_user.id.partition(":")[0] in self.end_users_of

    def _key(self, key_hash: str) -> Budget:
        if (found := self.keys.get(key_hash)) is None:
            found = self.keys[key_hash] = Budget(BudgetScope.KEY_LIMIT, owner_id=key_hash)
        return found

    def _owners(self, record: GenerationRecord) -> set[Owner]:
        """Return who may have budgets that a generation counts towards."""
        found = {Owner(BudgetScope.WORKSPACE, record.workspace_id)}
        if record.external_user:
            found.add(end_user(record.workspace_id, record.external_user))
        people = (self._people.get(key_hash) for key_hash in record.key_hashes)
        found |= {Owner(BudgetScope.MEMBER, person) for person in people if person is not None}
        return found

    def charged(self, record: GenerationRecord, number: int) -> None:
        """Count a generation on its way to the books."""
        self._unbooked.append((number, record))
        if record.free_limited:
            self.free.charged(record, 1)
        if record.is_byok:
            self.count_own(record)
        self.balance.charged(record)
        for key_hash in record.key_hashes:
            if (key := self.keys.get(key_hash)) is not None:
                key.charged(record)
        if self.owners:
            for owner in self._owners(record) & self.owners.keys():
                for budget in self.owners[owner].values():
                    budget.charged(record)

    def booked(self, number: int) -> None:
        """Learn that the charges up to a number are in the books."""
        while self._unbooked and self._unbooked[0][0] <= number:
            self._unbooked.popleft()

    def idle(self, now: float) -> bool:
        """Tell whether nothing would be lost by forgetting it."""
        owned = [budget for budgets in self.owners.values() for budget in budgets.values()]
        budgets = (self.balance, self.free, *self.keys.values(), *owned)
        return (
            not (self.in_flight.held_nano(now) or self._unbooked or self.own_free)
            and not any(budget.held_nano for budget in budgets)
            and all(minute.idle(now) for minute in self.minutes.values())
        )

    # Requests

    def has_free_own(self, day: date, a_month: int) -> bool:
        """Tell whether another request with own keys, on some day, costs no fee."""
        first = day.replace(day=1)
        if not a_month or self._own_days is None or first < self.facts.counted_from:
            return False
        counted = (n for each, n in self._own_days.items() if each.replace(day=1) == first)
        running = (each.replace(day=1) == first for each in self.own_free.values())
        return sum(counted) + sum(running) < a_month

    def count_own(self, record: GenerationRecord) -> None:
        """Count a generation of own keys, in place of what it took of the allowance."""
        self.own_free.pop(record.id, None)
        if self._own_days is not None:
            self._own_days[record.utc_day] += 1


Name = str | Owner
"""What is read beside an account: a key, by its hash, or an end user."""


class AccountLoader(Protocol):
    """Reads an account with the number up to which the books have this process' charges."""

    async def load(self, account_id: str, key_hash: str) -> tuple[AccountFacts, KeyFacts]:
        """Return it and a key."""
        ...

    async def load_owner(self, account_id: str, owner: Owner) -> tuple[AccountFacts, OwnerFacts]:
        """Return it and an end user."""
        ...


class Reading(NamedTuple):
    """When something was read."""

    changed: int
    """After which change of the account,"""
    hinted: int
    """after which hint,"""
    at: float


class CachedAccount:
    """An account in memory, and what was read of it when."""

    def __init__(self, account_id: str) -> None:
        """Have nothing read."""
        self.state = AccountState(account_id)
        self.changed = 0
        """Raised with every change of it that the next request has to know."""
        self.hinted = 0
        """Raised with every one that requests need not wait for."""
        self.read: dict[Name, Reading] = {}
        self.users = 0
        """How many wait for it to be read, or read it."""
        self.loading = asyncio.Lock()
        self.refreshing: dict[Name, asyncio.Task[None]] = {}
        """Those that are read again beside the requests."""

    def names(self, key_hashes: Sequence[str], end_user: Owner | None) -> Sequence[Name]:
        """Return what has to be known: an end user where some of its workspace have limits."""
        if end_user is None or not self.state.limits_end_user(end_user):
            return key_hashes
        return (*key_hashes, end_user)

    def is_known(self, name: Name) -> bool:
        """Tell whether something was read since the latest change."""
        found = self.read.get(name)
        return found is not None and found.changed == self.changed


class AccountCache:
    """Accounts and keys in memory, as many as are used."""

    def __init__(
        self,
        rules: AccountingRules,
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
        self._rules = rules
        self._loader = loader
        self._clock = clock
        self._max_age = max_age_seconds
        self._on_change = on_change
        self._entries: dict[str, CachedAccount] = {}
        self._booked_seq = 0
        """The number of the last charge that was told as booked."""
        self._full = MOST_REMEMBERED
        """From how many on the idle ones are forgotten."""

    def known(
        self, account_id: str, key_hashes: Sequence[str], end_user: Owner | None = None
    ) -> AccountState | None:
        """Return an account whose facts and keys are fresh; None where it has to be read.

        What is merely old is read again beside the requests, which go on with what is known.
        """
        entry = self._entries.get(account_id)
        if entry is None:
            return None
        for name in key_hashes if end_user is None else entry.names(key_hashes, end_user):
            reading = entry.read.get(name)
            if reading is None or reading.changed != entry.changed:
                return None
            old = self._max_age is not None and self._clock.monotonic() - reading.at > self._max_age
            if (old or reading.hinted != entry.hinted) and name not in entry.refreshing:
                entry.refreshing[name] = asyncio.create_task(self._reloaded(entry, name))
        return entry.state

    def state(self, account_id: str) -> AccountState | None:
        """Return an account that was read before, however long ago."""
        entry = self._entries.get(account_id)
        return entry.state if entry is not None and entry.read else None

    async def read(
        self, account_id: str, key_hashes: Sequence[str], end_user: Owner | None = None
    ) -> None:
        """Read an account, unless its facts and its keys are fresh: `known` returns it then.

        It raises `Unavailable` where it cannot be read, or changes faster than it is read.
        """
        entry = self._entry(account_id)
        entry.users += 1
        try:
            # The time limit holds for those who wait for another's reading, too.
            async with asyncio.timeout(LOAD_SECONDS), entry.loading:
                # What changed while one key was read makes the others be read again.
                while missing := [
                    name for name in entry.names(key_hashes, end_user) if not entry.is_known(name)
                ]:
                    await self._read(entry, missing[0])
        except TimeoutError as error:
            raise Unavailable(_NOT_READ, retry_after=1) from error
        finally:
            entry.users -= 1

    def charged(self, record: GenerationRecord, number: int) -> None:
        """Count a charge that is in the journal."""
        entry = self._entries.get(record.account_id) or self._entry(record.account_id)
        entry.state.charged(record, number)

    def booked(self, records: Sequence[GenerationRecord], number: int) -> None:
        """Learn that charges are in the database, the last one with that number."""
        self._booked_seq = number
        for account_id in {record.account_id for record in records}:
            if (entry := self._entries.get(account_id)) is not None:
                entry.state.booked(number)

    def invalidate(self, account_id: str | None) -> None:
        """Have an account, or every one, read again before its next request."""
        for entry in self._those(account_id):
            entry.changed += 1
            self._on_change(entry.state.id)

    def refresh(self, account_id: str | None) -> None:
        """Have an account, or every one, read again beside the next request of each of its keys."""
        for entry in self._those(account_id):
            entry.hinted += 1

    def _those(self, account_id: str | None) -> Sequence[CachedAccount]:
        if account_id is None:
            return [*self._entries.values()]
        return [self._entries[account_id]] if account_id in self._entries else []

    def _entry(self, account_id: str) -> CachedAccount:
        entry = self._entries.get(account_id)
        if entry is None:
            if len(self._entries) >= self._full:
                self._forget_idle()
                self._full = max(MOST_REMEMBERED, len(self._entries) * 11 // 10)
            entry = self._entries[account_id] = CachedAccount(account_id)
        return entry

    def _forget_idle(self) -> None:
        now = self._clock.monotonic()
        for account_id, entry in list(self._entries.items()):
            if not entry.users and not entry.refreshing and entry.state.idle(now):
                del self._entries[account_id]

    async def _read(self, entry: CachedAccount, name: Name) -> None:
        account, changed, hinted = entry.state, entry.changed, entry.hinted
        try:
            if isinstance(name, Owner):
                facts, found = await self._loader.load_owner(account.id, name)
            else:
                facts, found = await self._loader.load(account.id, name)
        except Exception as error:
            _log.error("account_not_read", account=account.id, error=type(error).__name__)
            raise Unavailable(_NOT_READ, retry_after=1) from error
        if facts.booked_seq < self._booked_seq:
            # Some charges were booked meanwhile, and are in neither: who reads again finds them.
            return
        unbooked = account.load(facts, self._rules, count_own=self._max_age is not None)
        if isinstance(found, OwnerFacts):
            account.load_owner(found, unbooked)
        else:
            account.load_key(str(name), found, unbooked)
        entry.read[name] = Reading(changed, hinted, self._clock.monotonic())

    async def _reloaded(self, entry: CachedAccount, name: Name) -> None:
        try:
            async with asyncio.timeout(LOAD_SECONDS), entry.loading:
                await self._read(entry, name)
            self._on_change(entry.state.id)
        except (TimeoutError, Unavailable):
            # The next request that finds it old, in a while, tries again.
            now = self._clock.monotonic()
            entry.read[name] = entry.read[name]._replace(hinted=entry.hinted, at=now)
        finally:
            del entry.refreshing[name]
