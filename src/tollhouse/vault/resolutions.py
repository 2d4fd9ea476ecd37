"""What names mean for interns, remembered until something of it changes.

Every change is told (`forget`), so that it counts at once in this process. Where others write to
the database, too, what is remembered is good for `max_age_seconds` and no longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database
    from tollhouse.storage.transaction import Read
    from tollhouse.vault.service import VaultService
    from tollhouse.vault.types import Recipient, Resolved

MOST_REMEMBERED: Final = 1_000


class _Known(NamedTuple):
    resolved: Mapping[str, Resolved]
    read_at: float


class Resolutions:
    """Resolves names for interns, from memory where that is good enough."""

    def __init__(
        self,
        database: Database,
        service: VaultService,
        clock: Clock,
        *,
        max_age_seconds: float | None,
    ) -> None:
        """Remember nothing yet.

        Args:
            database: Where the secrets are.
            service: Resolves.
            clock: The time.
            max_age_seconds: For how long what was read may serve; None where nobody else writes.
        """
        self._database = database
        self._service = service
        self._clock = clock
        self._max_age = max_age_seconds
        self._known: dict[str, _Known] = {}
        self._changes = 0

    async def of(self, intern_id: str) -> Mapping[str, Resolved]:
        """Return what each name means for an intern; see `VaultService.resolve`.

        Raises:
            NotFound: There is no such intern, or the vault that it borrows is gone.
        """
        return await self._remembered(
            intern_id, lambda read: self._service.resolve(read, intern_id)
        )

    async def of_recipient(self, who: Recipient) -> Mapping[str, Resolved]:
        """Return what each name means for an intern, or for a program of a workspace's.

        Raises:
            NotFound: There is no such intern, or the vault that it borrows is gone.
        """
        if who.intern_id is not None:
            return await self.of(who.intern_id)
        return await self._remembered(
            who.workspace_id,
            lambda read: self._service.resolve_shared(read, who.workspace_id),
        )

    async def _remembered(
        self, whose: str, resolve: Callable[[Read], Awaitable[Mapping[str, Resolved]]]
    ) -> Mapping[str, Resolved]:
        known = self._known.get(whose)
        now = self._clock.monotonic()
        if known is not None and (self._max_age is None or now - known.read_at <= self._max_age):
            return known.resolved
        before = self._changes
        async with self._database.reading() as read:
            resolved = await resolve(read)
        if before == self._changes:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            self._known[whose] = _Known(resolved, now)
        return resolved

    def forget(self, vault_id: str) -> None:
        """Forget everything: a vault has changed, and may be lent to many.

        A reading that is under way is not remembered either.
        """
        del vault_id
        self._changes += 1
        self._known.clear()
