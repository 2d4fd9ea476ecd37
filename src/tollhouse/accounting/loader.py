"""What admission reads of an account, a key or an end user, in one transaction each."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import date, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from tollhouse.accounting import policy, repository
from tollhouse.accounting.admission.types import AccountFacts, KeyFacts, OwnerFacts
from tollhouse.accounting.leases import KEY
from tollhouse.accounting.owner import OwnerUse
from tollhouse.accounting.types import BudgetScope, Credits, KeyLimit
from tollhouse.accounting.uses import uses, uses_of
from tollhouse.identity.types import AccountType
from tollhouse.storage.tables.accounting import account_days, account_totals, holders, reservations
from tollhouse.storage.tables.identity import accounts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.accounting.owner import Owner
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database, Read


_reserved = sa.select(sa.func.coalesce(sa.func.sum(reservations.c.amount_nano), 0)).where(
    reservations.c.account_id == accounts.c.id
)


async def account_of(read: Read, account_id: str, holder: str | None = None) -> AccountFacts:
    """Return what the books say of an account and a holder, without what was asked for each day."""
    booked = sa.select(holders.c.booked_seq).where(holders.c.id == holder)
    totals = [account_totals.c[each.name] for each in fields(Credits)]
    query = (
        sa.select(
            accounts.c.type,
            accounts.c.free_limits_exempt,
            _reserved.scalar_subquery().label("reserved_nano"),
            sa.func.coalesce(booked.scalar_subquery(), 0).label("booked_seq"),
            *(sa.func.coalesce(total, 0).label(total.name) for total in totals),
        )
        .select_from(accounts.outerjoin(account_totals))
        .where(accounts.c.id == account_id)
    )
    row = (await read.execute(query)).one()
    return AccountFacts(
        AccountType(row.type),
        row.free_limits_exempt,
        Credits(*row[-len(totals) :]),
        # PostgreSQL's sums of whole numbers are decimals.
        reserved_nano=int(row.reserved_nano),
        booked_seq=row.booked_seq,
    )


async def requests_since(
    read: Read, account_id: str, first: date
) -> tuple[dict[date, int], dict[date, int]]:
    """Return an account's requests of each UTC day from `first` on.

    First those to free models that are limited, then those that own provider keys served.
    """
    query = sa.select(account_days).where(
        account_days.c.account_id == account_id, account_days.c.day >= first.isoformat()
    )
    rows = [(date.fromisoformat(row.day), row) for row in await read.execute(query)]
    free = {day: row.free_requests for day, row in rows}
    return free, {day: row.byok_requests for day, row in rows}


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
            limit = (await repository.key_limits_of(read, [key_hash])).get(key_hash, KeyLimit())
            use = OwnerUse()  # nobody asks what a key has used that has no limit
            if limit.limit_nano is not None:
                whole = limit.reset is None
                use = (await uses(read, KEY, [key_hash], first, whole=whole))[key_hash]
            found = (await repository.owners_of_keys(read, [key_hash])).get(key_hash, ())
            owners = await self._owners(read, account_id, found, first)
            workspaces = [each.id for each in found if each.scope is BudgetScope.WORKSPACE]
            limits_end_users = await repository.limits_end_users(read, workspaces)
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
        free, own = await requests_since(read, account_id, first)
        found = await account_of(read, account_id, self.holder)
        return replace(found, free_requests=free, own_requests=own, counted_from=first)

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
