"""The accounts in memory: read when they are first needed, and again when something changed.

    fresh(account, keys)  -> the account, with facts no older than the latest change
    charged(record)       a charge is in the journal: it counts from now on
    booked(records)       charges are in the database, where the next reading finds them
    invalidate(account)   its credits, limits or type changed: read it before its next request
    refresh(account)      something changed and left as much to spend: read it beside requests

What is read is exact, since it is read while no group of charges is half way into the database.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.accounting.admission.account_state import AccountState
from tollhouse.accounting.days import spend_of, utc_day
from tollhouse.kernel.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tollhouse.accounting.admission.ports import AccountLoader
    from tollhouse.accounting.types import GenerationRecord
    from tollhouse.kernel.clock import Clock

MOST_REMEMBERED: Final = 50_000
LOAD_SECONDS: Final = 5.0
_NOT_READ: Final = "The account's credits cannot be read now; try again in a moment."
_log = structlog.get_logger(__name__)


class CachedAccount:
    """An account and how much of it was read since the latest change."""

    __slots__ = ("changed", "loading", "outdated", "read", "refreshing", "state", "users")

    def __init__(self) -> None:
        """Know nothing yet."""
        self.state = AccountState()
        self.changed = 0
        """Counts the changes."""
        self.read: dict[str, tuple[int, float]] = {}
        """Each key that was read: after which change, and when."""
        self.users = 0
        """Who waits for it to be read, or reads it."""
        self.loading = asyncio.Lock()
        self.outdated: set[str] = set()
        """Keys that are to be read again beside the next request of theirs."""
        self.refreshing: dict[str, asyncio.Task[None]] = {}
        """Keys that are read again beside the requests."""

    def knows(self, key_hash: str) -> bool:
        """Tell whether the account and a key were read since the latest change."""
        found = self.read.get(key_hash)
        return found is not None and found[0] == self.changed

    def missing(self, key_hashes: Iterable[str]) -> str | None:
        """Return the first of some keys that was not; None where all were."""
        for key_hash in key_hashes:  # of every request: no generator
            if not self.knows(key_hash):
                return key_hash
        return None


class AccountCache:
    """Accounts and keys in memory, as many as are used."""

    def __init__(
        self,
        loader: AccountLoader,
        clock: Clock,
        *,
        max_age_seconds: float | None = None,
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Read nothing yet.

        Args:
            loader: Reads an account and a key from the database.
            clock: The time.
            max_age_seconds: How old facts may be, where another process may change them too; None
                where this one is told of every change.
            on_change: Called with an account's id when it was read again.
        """
        self._loader = loader
        self._clock = clock
        self._max_age = max_age_seconds
        self._on_change = on_change
        self._entries: dict[str, CachedAccount] = {}
        self._full = MOST_REMEMBERED
        """From how many on the idle ones are forgotten."""

    def known(self, account_id: str, *key_hashes: str) -> AccountState | None:
        """Return an account whose facts and keys are fresh; None where it has to be read."""
        entry = self._entries.get(account_id)
        if entry is None or entry.missing(key_hashes) is not None:
            return None
        for key_hash in key_hashes:
            self._reload_if_due(entry, account_id, key_hash)
        return entry.state

    async def fresh(self, account_id: str, *key_hashes: str) -> AccountState:
        """Return an account, read now unless its facts and its keys are fresh.

        Raises:
            Unavailable: It cannot be read, or goes stale faster than it is read.
        """
        entry = self._entry(account_id)
        entry.users += 1
        try:
            # The time limit holds for those who wait for another's reading, too.
            async with asyncio.timeout(LOAD_SECONDS), entry.loading:
                # What reading one has let go stale of another is read again.
                while (missing := entry.missing(key_hashes)) is not None:
                    await self._read(entry, account_id, missing)
        except TimeoutError as error:
            raise Unavailable(_NOT_READ, retry_after=1) from error
        finally:
            entry.users -= 1
        return entry.state

    def charged(self, record: GenerationRecord) -> None:
        """Count a charge that is in the journal."""
        day = utc_day(record)
        state = self._entry(record.account_id).state
        free_day = day if record.free_limited else None
        state.charged(record.charge.cost_nano, free_day=free_day)
        for key_hash in record.key_hashes:
            state.key(key_hash).charged(day, spend_of(record))

    def booked(self, records: Sequence[GenerationRecord]) -> None:
        """Learn that charges are in the database."""
        for record in records:
            entry = self._entries.get(record.account_id)
            if entry is None:
                continue
            state, day = entry.state, utc_day(record)
            free_day = day if record.free_limited else None
            state.booked(record.charge.cost_nano, free_day=free_day)
            for key_hash in record.key_hashes:
                state.key(key_hash).booked(day, spend_of(record))

    def invalidate(self, account_id: str) -> None:
        """Have an account read again before its next request."""
        entry = self._entries.get(account_id)
        if entry is not None:
            entry.changed += 1
            self._on_change(account_id)

    def invalidate_all(self) -> None:
        """Have every account read again before its next request."""
        for account_id in self._entries:
            self.invalidate(account_id)

    def refresh(self, account_id: str) -> None:
        """Have an account read again beside the next request of each of its keys."""
        entry = self._entries.get(account_id)
        if entry is not None:
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
        entry.state.load(account)
        entry.state.key(key_hash).load(key)
        entry.read[key_hash] = (change, self._clock.monotonic())

    def _reload_if_due(self, entry: CachedAccount, account_id: str, key_hash: str) -> None:
        """Have a known key read again beside the requests, where that is due."""
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
