"""Reads an account and a key from the database, for admission."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tollhouse.accounting import repository
from tollhouse.accounting.admission.types import AccountFacts, KeyFacts
from tollhouse.accounting.policy import first_day_needed
from tollhouse.accounting.types import KeyLimit, Spend
from tollhouse.identity.types import Manager

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from tollhouse.identity.service import IdentityService
    from tollhouse.kernel.clock import Clock
    from tollhouse.storage.database import Database


class DatabaseAccountLoader:
    """Reads the facts from the database, between two groups of charges."""

    def __init__(
        self,
        database: Database,
        identity: IdentityService,
        clock: Clock,
        between_groups: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        """Take what it needs.

        Args:
            database: Where the books are.
            identity: Knows how accounts pay.
            clock: The time.
            between_groups: Keeps charges from being booked meanwhile.
        """
        self._database = database
        self._identity = identity
        self._clock = clock
        self._between_groups = between_groups

    async def load(self, account_id: str, key_hash: str) -> tuple[AccountFacts, KeyFacts]:
        """Return what the books say now.

        Raises:
            Exception: The database cannot be reached or read.
        """
        now = self._clock.now()
        # A clock that jumps back must still find the days that it has seen.
        first = first_day_needed(now) - timedelta(days=1)
        async with self._between_groups(), self._database.reading_apart() as read:
            account = await self._identity.account(
                read, Manager(account_id, None, operator=False), account_id
            )
            total, _ = (await repository.key_totals_of(read, [key_hash])).get(
                key_hash, (Spend(), None)
            )
            limits = await repository.key_limits_of(read, [key_hash])
            days = await repository.key_days_of(read, [key_hash], first)
            reserved = await repository.reserved_of_keys(read, [key_hash])
            return (
                AccountFacts(
                    account.type,
                    account.free_limits_exempt,
                    await repository.credits_of(read, account_id),
                    await repository.free_requests_since(read, account_id, first),
                    await repository.reserved_of_account(read, account_id),
                ),
                KeyFacts(
                    limits.get(key_hash, KeyLimit()),
                    total,
                    days.get(key_hash, {}),
                    reserved.get(key_hash, 0),
                ),
            )
