"""The own keys of accounts in memory, opened, for requests that use them.

    known(account)      a look-up; None where they have to be read first
    read(account)       reads and opens them
    invalidate(account) something about them changed: in force before the change is answered
    refused(key, ...)   keeps why a provider did not take one, for its owner
    accepted(key)       forgets that, if there is anything to forget

Most accounts have none, which is remembered, too.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.secret import Secret
from tollhouse.provider_keys import policy, repository
from tollhouse.provider_keys.service import sealed_name
from tollhouse.provider_keys.types import OwnKey
from tollhouse.storage.notifications import Topic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.kernel.clock import Clock
    from tollhouse.provider_keys.types import ProviderKey
    from tollhouse.storage.database import Database
    from tollhouse.vault.service import VaultService

_MOST_REMEMBERED: Final = 50_000
_NOT_READ: Final = "The account's own provider keys cannot be read now; try again in a moment."
_NOT_OPENED: Final = "It cannot be opened: the vault's key is not there."
_NOT_ONE_TEXT: Final = "This installation cannot use a key of this form with its provider yet."
_log = structlog.get_logger(__name__)


@dataclass(eq=False, repr=False)
class OwnKeys:
    """What inference uses of own keys; it is remembered until there is a notification."""

    database: Database
    vault: VaultService
    clock: Clock
    _remembered: dict[str, Sequence[OwnKey]] = field(default_factory=dict[str, "Sequence[OwnKey]"])
    _changes: int = 0
    _notes: set[asyncio.Task[None]] = field(default_factory=set[asyncio.Task[None]])
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock)
    """So that what was learned last is kept."""
    _failing: set[str] = field(default_factory=set[str])
    """Ids of keys whose owners are shown why they were not taken."""

    def __post_init__(self) -> None:
        self.database.notifications.subscribe(Topic.OWN_KEYS, self.invalidate)

    def known(self, account_id: str) -> Sequence[OwnKey] | None:
        """Return an account's enabled keys in the order of asking; None: `read` them first."""
        return self._remembered.get(account_id)

    async def read(self, account_id: str) -> Sequence[OwnKey]:
        """Return the same as the database has it now, and remember it where all of it opened.

        Raises `Unavailable` where it cannot be read: nobody knows what its rules forbid.
        """
        changes = self._changes
        try:
            async with self.database.reading() as read:
                stored = await repository.enabled_of_account(read, account_id)
        except Exception as error:
            _log.error("own_keys_not_read", account=account_id, error=type(error).__name__)
            raise Unavailable(_NOT_READ, retry_after=1) from error
        same = {each.stored.id: each for each in self._remembered.get(account_id, ())}
        opened = [await self._opened(each, same.get(each.id)) for each in stored]
        keys = tuple(key for key, _ in opened)
        self._failing.update(each.id for each in stored if each.last_error is not None)
        if changes == self._changes and all(is_final for _, is_final in opened):
            if len(self._remembered) >= _MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[account_id] = keys
        return keys

    def invalidate(self, account_id: str | None) -> None:
        """Have an account's keys, or all, read again before the next request."""
        self._changes += 1
        if account_id is None:
            self._remembered.clear()
        else:
            self._remembered.pop(account_id, None)

    def refused(self, key: OwnKey, reason: str) -> None:
        """Keep why a provider did not take a key; without waiting for that."""
        _log.warning(
            "own_key_refused",
            own_key=key.stored.id,
            provider=key.stored.provider,
            reason=reason,
        )
        self._failing.add(key.stored.id)
        self._keep(key.stored, reason)

    def accepted(self, key: OwnKey) -> None:
        """Forget why a provider did not take a key, since it does now; without waiting for that."""
        if self._failing and key.stored.id in self._failing:
            self._failing.discard(key.stored.id)
            self._keep(key.stored, None)

    def _keep(self, key: ProviderKey, reason: str | None) -> None:
        task = asyncio.get_running_loop().create_task(self._note(key, reason))
        self._notes.add(task)
        task.add_done_callback(self._notes.discard)

    async def close(self) -> None:
        """Wait for what is being kept."""
        if self._notes:
            await asyncio.wait(self._notes)

    async def _note(self, key: ProviderKey, reason: str | None) -> None:
        try:
            async with self._noting, self.database.writing() as write:
                now = self.clock.now()
                await repository.note_error(write, key.id, key.version, reason, now)
        except Exception:  # noqa: BLE001 - the edge of the task; the log has the reason
            _log.warning("own_key_error_not_kept", own_key=key.id, exc_info=True)

    async def _opened(self, stored: ProviderKey, before: OwnKey | None) -> tuple[OwnKey, bool]:
        """Return a key opened, and whether another try would not change that."""
        if before is not None and _is_same(before.stored, stored):
            return before, before.secret is not None
        try:
            text = await self.vault.open_beside(
                stored.vault_id, sealed_name(stored.id), stored.sealed
            )
        except Unavailable:
            key = OwnKey(stored, None)
            self.refused(key, _NOT_OPENED)
            return key, False
        single = policy.single_text(text.reveal())
        key = OwnKey(stored, None if single is None else Secret(single))
        if single is None and stored.last_error is None:
            self.refused(key, _NOT_ONE_TEXT)
        return key, True


def _is_same(one: ProviderKey, other: ProviderKey) -> bool:
    return (one.version, one.rules) == (other.version, other.rules)
