"""What admission reads of an account, a key or an end user, in one transaction each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from tollhouse.accounting import policy, repository
from tollhouse.accounting.admission.types import AccountFacts, KeyFacts, OwnerFacts
from tollhouse.accounting.leases import ACCOUNT, KEY
from tollhouse.accounting.owner import OwnerUse
from tollhouse.accounting.types import BudgetScope, KeyLimit
from tollhouse.accounting.uses import reserved_of, uses, uses_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from tollhouse.accounting.owner import Owner
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database, Read


@dataclass(frozen=True, slots=True)
class DatabaseAccountLoader:
    """Reads what admission knows of an account and a key from the database."""

    database: Database
    clock: Clock
    holder: str
    """Whose charges are numbered: this process' from its start on."""

    async def load(self, account_id: str, key_hash: str) -> tuple[AccountFacts, KeyFacts]:
        """Return what the books say now."""
        first = self._first()
        async with self.database.reading_apart() as read:
            account = await self._account(read, account_id, first)
            limits = await repository.key_limits_of(read, [key_hash])
            use = (await uses(read, KEY, [key_hash], first, whole=True))[key_hash]
            found = (await repository.owners_of_keys(read, [key_hash])).get(key_hash)
            owners: Sequence[OwnerFacts] = ()
            limits_end_users = False
            if found is not None:
                owners = await self._owners(read, account_id, found.all, first)
                limits_end_users = await repository.limits_end_users(read, found.workspace.id)
        limit = limits.get(key_hash, KeyLimit())
        reserved = use.held_for_batches(include_byok=limit.include_byok)
        return account, KeyFacts(limit, use.total, use.days, reserved, owners, limits_end_users)

    async def load_owner(self, account_id: str, owner: Owner) -> tuple[AccountFacts, OwnerFacts]:
        """Do the same of an end user."""
        first = self._first()
        async with self.database.reading_apart() as read:
            account = await self._account(read, account_id, first)
            [found] = await self._owners(read, account_id, [owner], first)
        return account, found

    def _first(self) -> date:
        # A clock that jumps back must still find the days that it has seen.
        return policy.first_day_of_windows(self.clock.now()) - timedelta(days=1)

    async def _account(self, read: Read, account_id: str, first: date) -> AccountFacts:
        account_type, free_limits_exempt = await repository.account_terms(read, account_id)
        free_requests, own_requests = await repository.requests_since(read, account_id, first)
        reserved = await reserved_of(read, ACCOUNT, [account_id])
        return AccountFacts(
            account_type,
            free_limits_exempt,
            await repository.credits_of(read, account_id),
            free_requests,
            reserved.get(account_id, (0, 0))[0],
            await repository.booked_seq(read, self.holder),
            own_requests,
            first,
        )

    @staticmethod
    async def _owners(
        read: Read, account_id: str, owners: Sequence[Owner], first: date
    ) -> Sequence[OwnerFacts]:
        """Return what the books say of owners: of those without a limit, that they have none."""
        limits = await repository.limits_of(read, owners)
        used = await uses_of(read, account_id, limits, first)
        found: list[OwnerFacts] = []
        for owner in owners:
            own = [each for each in limits if each.owner == owner]
            is_person = bool(own) and owner.scope is BudgetScope.MEMBER
            keys = await repository.keys_of(read, owner.id) if is_person else ()
            found.append(OwnerFacts(owner, own, used.get(owner, OwnerUse()), keys))
        return found
