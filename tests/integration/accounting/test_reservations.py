"""Credits that are set aside for long, on a real database: never more than there are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy.exc import IntegrityError

from tests.integration.accounting.ledger_reader import LedgerReader, record_for
from tollhouse.accounting.account_loader import DatabaseAccountLoader
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import KeyLimit, PostingKind, Reset
from tollhouse.identity.auth import Authenticator
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import AccountType
from tollhouse.kernel.errors import Invalid, PaymentRequired
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.tables.accounting import reservations
from tollhouse.testing.builders import OPERATOR

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from tollhouse.accounting.ports import ChargeWriter
    from tollhouse.accounting.settlement.settler import Settler
    from tollhouse.storage.database import Database
    from tollhouse.testing.builders import Tenant
    from tollhouse.testing.clock import FakeClock
    from tollhouse.testing.ids import SequentialIds


class Bank:
    """The service with a transaction around each use."""

    def __init__(self, database: Database, clock: FakeClock, ids: SequentialIds) -> None:
        self.database = database
        self.told: list[str] = []
        self.service = AccountingService(clock, ids, invalidate=self.told.append)
        self.identity = IdentityService(clock, ids, Authenticator(database, clock, None))

    def writing(self) -> AbstractAsyncContextManager[Any]:
        return self.database.writing()

    async def credit(self, tenant: Tenant, nano: int) -> None:
        async with self.writing() as write:
            await self.service.add_credits(write, tenant.account.id, PostingKind.PURCHASE, nano)
        self.told.clear()

    async def limit(self, tenant: Tenant, limit: KeyLimit) -> None:
        async with self.writing() as write:
            await self.service.set_key_limit(write, tenant.account.id, tenant.key.hash, limit)
        self.told.clear()

    async def pays(self, tenant: Tenant, account_type: AccountType) -> None:
        async with self.writing() as write:
            await self.identity.change_account(
                write, OPERATOR, tenant.account.id, account_type=account_type
            )

    async def reserve(
        self,
        tenant: Tenant,
        nano: int,
        id_: str = "batch-1",
        key_hash: str | None = None,
        payer_hash: str | None = None,
    ) -> None:
        account_id, key_hash = tenant.account.id, key_hash or tenant.key.hash
        async with self.writing() as write:
            await self.service.reserve(
                write, id_, account_id, key_hash, nano, payer_hash=payer_hash
            )

    async def refused(self, tenant: Tenant, nano: int, **fields: Any) -> PaymentRequired:
        with pytest.raises(PaymentRequired) as caught:
            await self.reserve(tenant, nano, "refused", **fields)
        return caught.value

    async def lower(self, nano: int, id_: str = "batch-1") -> None:
        async with self.writing() as write:
            await self.service.lower_reservation(write, id_, nano)

    async def end(self, id_: str = "batch-1") -> None:
        async with self.writing() as write:
            await self.service.end_reservation(write, id_)

    async def covers(self, tenant: Tenant) -> bool:
        async with self.database.reading() as read:
            return await self.service.covers(read, tenant.account.id)


@pytest.fixture
def bank(database: Database, clock: FakeClock, ids: SequentialIds) -> Bank:
    return Bank(database, clock, ids)


async def amounts(ledger_reader: LedgerReader) -> dict[str, int]:
    """Return what is reserved, by the reservations' ids."""
    return {row.id: row.amount_nano for row in await ledger_reader.rows(reservations)}


class TestReserving:
    async def test_takes_what_is_left_of_the_balance_and_no_more(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 10)
        await bank.reserve(acme, 7)
        error = await bank.refused(acme, 4)
        assert error.metadata["reason"] == "batch_exceeds_credits"
        assert error.metadata["limit_source"] == "service_credits"
        await bank.reserve(acme, 3, "batch-2")
        assert await amounts(ledger_reader) == {"batch-1": 7, "batch-2": 3}

    async def test_takes_what_is_left_of_the_payers_limit_and_no_more(
        self, acme: Tenant, bank: Bank
    ) -> None:
        await bank.credit(acme, 100)
        await bank.limit(acme, KeyLimit(10))
        intern = {"key_hash": "intern", "payer_hash": acme.key.hash}
        await bank.reserve(acme, 7, **intern)
        error = await bank.refused(acme, 4, **intern)
        assert error.metadata["reason"] == "batch_exceeds_key_limit"
        assert "the key that answers for this intern" in error.message
        assert (await bank.refused(acme, 4)).metadata["reason"] == "batch_exceeds_key_limit"
        await bank.reserve(acme, 3, "batch-2")
        async with bank.database.reading() as read:
            standings = await bank.service.key_standings(read, ["intern", acme.key.hash])
            means = await bank.service.credits(read, acme.account.id)
        assert {key: each.reserved_nano for key, each in standings.items()} == {
            "intern": 7,
            acme.key.hash: 10,
        }
        assert means.balance_nano == 100

    async def test_at_once_for_two_interns_cannot_take_the_same_rest(
        self, acme: Tenant, bank: Bank
    ) -> None:
        await bank.credit(acme, 100)
        await bank.limit(acme, KeyLimit(10))
        asked = (
            bank.reserve(acme, 5, f"batch-{n}", key_hash=f"intern-{n}", payer_hash=acme.key.hash)
            for n in range(6)
        )
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [each for each in found if each is None] == [None, None]
        assert sum(isinstance(each, PaymentRequired) for each in found) == 4

    async def test_takes_what_is_left_of_the_keys_limit_and_no_more(
        self, acme: Tenant, bank: Bank, writer: ChargeWriter
    ) -> None:
        await bank.credit(acme, 100)
        await bank.limit(acme, KeyLimit(10))
        await writer.write([record_for(acme, cost_nano=2)])
        await bank.reserve(acme, 5)
        error = await bank.refused(acme, 4)
        assert error.metadata["reason"] == "batch_exceeds_key_limit"
        assert error.metadata["limit_source"] == "service_key_limit"
        await bank.reserve(acme, 3, "batch-2")
        await bank.reserve(acme, 50, "batch-3", key_hash="another")

    async def test_counts_the_use_of_the_keys_window(
        self, acme: Tenant, bank: Bank, writer: ChargeWriter, clock: FakeClock
    ) -> None:
        await bank.credit(acme, 100)
        await bank.limit(acme, KeyLimit(10, Reset.DAILY))
        await writer.write([record_for(acme, cost_nano=10, created_at=clock.now())])
        await bank.refused(acme, 1)
        clock.advance(86_400)
        await bank.reserve(acme, 10)

    async def test_leaves_other_accounts_alone(
        self, acme: Tenant, other: Tenant, bank: Bank
    ) -> None:
        await bank.credit(acme, 10)
        await bank.credit(other, 10)
        await bank.reserve(acme, 10)
        await bank.reserve(other, 10, "batch-2")
        assert bank.told == [acme.account.id, other.account.id]

    @pytest.mark.parametrize("account_type", [AccountType.ENTERPRISE, AccountType.INVOICE])
    async def test_needs_no_credits_where_the_account_pays_afterwards(
        self, acme: Tenant, bank: Bank, account_type: AccountType
    ) -> None:
        await bank.pays(acme, account_type)
        await bank.reserve(acme, 10)
        await bank.limit(acme, KeyLimit(12))
        assert (await bank.refused(acme, 3)).metadata["limit_source"] == "service_key_limit"

    async def test_of_nothing_is_refused_by_a_negative_balance_alone(
        self, acme: Tenant, bank: Bank, writer: ChargeWriter
    ) -> None:
        await bank.limit(acme, KeyLimit(0))
        await bank.reserve(acme, 0)
        await writer.write([record_for(acme, cost_nano=1)])
        error = await bank.refused(acme, 0)
        assert error.metadata["reason"] == "negative_balance"

    async def test_of_more_than_can_be_counted_is_refused(self, acme: Tenant, bank: Bank) -> None:
        await bank.pays(acme, AccountType.ENTERPRISE)
        await bank.reserve(acme, MAX_NANO)
        with pytest.raises(Invalid, match="than can be counted"):
            await bank.reserve(acme, 1, "batch-2")

    async def test_twice_with_one_id_is_a_bug(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 10)
        await bank.reserve(acme, 1)
        with pytest.raises(IntegrityError):
            await bank.reserve(acme, 2)
        assert await amounts(ledger_reader) == {"batch-1": 1}

    async def test_at_once_lets_those_pass_that_the_balance_pays(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 70)
        await bank.limit(acme, KeyLimit(70))
        tries = [bank.reserve(acme, 10, f"batch-{number}") for number in range(20)]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(each, PaymentRequired) for each in results) == 13
        assert sum(each is None for each in results) == 7
        assert sum((await amounts(ledger_reader)).values()) == 70

    async def test_at_once_with_other_keys_shares_the_balance(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 55)
        tries = [
            bank.reserve(acme, 10, f"batch-{number}", key_hash=f"key-{number % 3}")
            for number in range(20)
        ]
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(each is None for each in results) == 5
        assert sum((await amounts(ledger_reader)).values()) == 50


class TestLowering:
    async def test_gives_back_that_much_down_to_nothing(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 10)
        await bank.reserve(acme, 10)
        for by, left in ((0, 10), (4, 6), (5, 1), (5, 0), (1, 0)):
            await bank.lower(by)
            assert await amounts(ledger_reader) == {"batch-1": left}
        await bank.reserve(acme, 10, "batch-2")

    async def test_at_once_loses_nothing(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 1_000)
        await bank.reserve(acme, 1_000)
        await asyncio.gather(*(bank.lower(number) for number in range(20)))
        assert await amounts(ledger_reader) == {"batch-1": 1_000 - sum(range(20))}

    async def test_tells_who_remembers_the_account(self, acme: Tenant, bank: Bank) -> None:
        await bank.credit(acme, 10)
        await bank.reserve(acme, 10)
        await bank.lower(1)
        await bank.end()
        assert bank.told == [acme.account.id] * 3

    async def test_and_ending_one_that_has_ended_do_nothing(
        self, acme: Tenant, bank: Bank, ledger_reader: LedgerReader
    ) -> None:
        await bank.credit(acme, 10)
        await bank.reserve(acme, 10)
        await bank.reserve(acme, 0, "batch-2")
        bank.told.clear()
        for _ in range(2):
            await bank.end()
            await bank.lower(1)
        assert await amounts(ledger_reader) == {"batch-2": 0}
        assert bank.told == [acme.account.id]


class TestStanding:
    async def test_what_a_key_has_left_is_without_what_its_batches_reserved(
        self, acme: Tenant, bank: Bank
    ) -> None:
        await bank.credit(acme, 100)
        await bank.limit(acme, KeyLimit(10))
        await bank.reserve(acme, 3)
        await bank.reserve(acme, 4, "batch-2")
        await bank.reserve(acme, 9, "batch-3", key_hash="another")
        async with bank.database.reading() as read:
            standing = await bank.service.key_standing(read, acme.key.hash)
        assert (standing.reserved_nano, standing.remaining_nano) == (7, 3)

    async def test_admission_is_told_what_is_reserved(
        self, acme: Tenant, other: Tenant, bank: Bank, settler: Settler, clock: FakeClock
    ) -> None:
        await bank.credit(acme, 100)
        await bank.reserve(acme, 3)
        await bank.reserve(acme, 9, "batch-2", key_hash="another")
        loader = DatabaseAccountLoader(bank.database, bank.identity, clock, settler.between_groups)
        account, key = await loader.load(acme.account.id, acme.key.hash)
        assert (account.reserved_nano, key.reserved_nano) == (12, 3)
        account, key = await loader.load(other.account.id, other.key.hash)
        assert (account.reserved_nano, key.reserved_nano) == (0, 0)


class TestCovering:
    async def test_is_a_balance_that_is_not_negative(
        self, acme: Tenant, bank: Bank, writer: ChargeWriter
    ) -> None:
        assert await bank.covers(acme)
        await writer.write([record_for(acme, cost_nano=5)])
        assert not await bank.covers(acme)
        await bank.credit(acme, 5)
        assert await bank.covers(acme)

    async def test_is_no_question_where_the_account_pays_afterwards(
        self, acme: Tenant, bank: Bank, writer: ChargeWriter
    ) -> None:
        await writer.write([record_for(acme, cost_nano=5)])
        for account_type in AccountType:
            await bank.pays(acme, account_type)
            assert await bank.covers(acme) is not account_type.needs_credits


class TestWhoIsTold:
    @pytest.fixture
    def told(self, bank: Bank, clock: FakeClock, ids: SequentialIds) -> dict[str, list[str]]:
        told: dict[str, list[str]] = {"stale": [], "outdated": []}
        bank.service = AccountingService(
            clock, ids, invalidate=told["stale"].append, refresh=told["outdated"].append
        )
        return told

    async def test_a_reservation_is_known_before_the_next_request(
        self, acme: Tenant, bank: Bank, told: dict[str, list[str]]
    ) -> None:
        await bank.credit(acme, 100)
        told["stale"].clear()
        await bank.reserve(acme, 60)
        assert told == {"stale": [acme.account.id], "outdated": []}

    async def test_charges_within_it_keep_nobody_waiting(
        self, acme: Tenant, bank: Bank, told: dict[str, list[str]]
    ) -> None:
        await bank.credit(acme, 100)
        await bank.reserve(acme, 60)
        told["stale"].clear()
        await bank.lower(20)
        assert told == {"stale": [], "outdated": [acme.account.id]}

    async def test_its_end_is_known_before_the_next_request(
        self, acme: Tenant, bank: Bank, told: dict[str, list[str]]
    ) -> None:
        await bank.credit(acme, 100)
        await bank.reserve(acme, 60)
        told["stale"].clear()
        await bank.end()
        assert told == {"stale": [acme.account.id], "outdated": []}

    async def test_charges_beyond_it_are_known_before_the_next_request(
        self, acme: Tenant, bank: Bank, told: dict[str, list[str]]
    ) -> None:
        await bank.credit(acme, 100)
        await bank.reserve(acme, 60)
        told["stale"].clear()
        await bank.lower(70)
        assert told == {"stale": [acme.account.id], "outdated": []}
