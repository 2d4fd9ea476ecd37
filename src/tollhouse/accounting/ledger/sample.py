"""The ledger's invariant: a few accounts are verified, the next time the ones after them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tollhouse.accounting.ledger.service import LedgerService
    from tollhouse.accounting.ledger.types import Difference
    from tollhouse.storage.database import Database

ACCOUNTS: Final = 5
"""How many are looked at each time."""


class LedgerSampler:
    """Looks at accounts in turn, and after the last one begins anew."""

    def __init__(self, ledger: LedgerService, database: Database) -> None:
        """Take where to look; the first account is the first one."""
        self._ledger = ledger
        self._database = database
        self._last = ""

    async def differences(self) -> list[Difference]:
        """Verify the next accounts, each in a snapshot of its own, and return what differs."""
        async with self._database.reading() as read:
            chosen = await self._ledger.accounts_after(read, self._last, ACCOUNTS)
        found: list[Difference] = []
        for account_id in chosen:
            async with self._database.reading() as read:
                scope = await self._ledger.scope_of(read, account_id)
                found += (await self._ledger.verify(read, scope)).differences
        self._last = chosen[-1] if len(chosen) == ACCOUNTS else ""
        return found
