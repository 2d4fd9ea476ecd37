"""Credits that are set aside for long, on a real database: never more than there are."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.component.accounting.ledger_reader import LedgerReader, record_for
from tests.support.builders import OPERATOR, Tenant, reservation
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import (
    AccountingService,
    BooksProcess,
    BudgetScope,
    DatabaseAccountLoader,
    KeyLimit,
    Owner,
    PostingKind,
    Reset,
)
from tests.support.seams.identity import AccountType, IdentityService, NewKey
from tollhouse.kernel.errors import Invalid, PaymentRequired
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.database import Database
from tollhouse.storage.notifications import Topic
from tollhouse.storage.tables.accounting import reservations


class CreditsClient:
    """The service with a transaction around each use."""

    def __init__(self, database: Database, clock: FakeClock, ids: SequentialIds) -> None:
        self.database = database
        self.told: list[str | None] = []
        for topic in (Topic.ACCOUNT, Topic.ACCOUNT_HINT):
            database.notifications.subscribe(topic, self.told.append)
        self.clock = clock
        self.service = AccountingService(clock, ids)
        self.identity = IdentityService(clock, ids)

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
        **fields: Any,
    ) -> None:
        account_id, key_hash = tenant.account.id, key_hash or tenant.key.hash
        async with self.writing() as write:
            wanted = reservation(id_, account_id, key_hash, nano, self.clock.now(), **fields)
            await self.service.reserve(write, wanted)

    async def limit_in_common(
        self, tenant: Tenant, scope: BudgetScope, nano: int, *, include: bool
    ) -> list[dict[str, Any]]:
        """Limit a workspace or a person; return two keys of theirs, one of an intern."""
        account_id, workspace_id = tenant.account.id, tenant.key.workspace_id
        async with self.writing() as write:
            user = await self.identity.create_user(write, account_id, "Ada", None)
            wanted = NewKey("k", creator_user_id=user.id, workspace_id=workspace_id)
            issued = await self.identity.create_key(write, OPERATOR, account_id, wanted)
            is_person = scope is BudgetScope.MEMBER
            owner = Owner(scope, user.id if is_person else workspace_id)
            await self.service.budgets.set_budget(
                write, account_id, owner, None, nano, include_byok=include, actor="operator"
            )
        where = {} if is_person else {"workspace_id": workspace_id}
        own = {"key_hash": issued.key.hash, **where}
        return [own, {"key_hash": "intern", "payer_hash": issued.key.hash, **where}]

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

    async def is_covered(self, tenant: Tenant) -> bool:
        async with self.database.reading() as read:
            return await self.service.is_covered(read, tenant.account.id)


@pytest.fixture
def client(database: Database, clock: FakeClock, ids: SequentialIds) -> CreditsClient:
    return CreditsClient(database, clock, ids)


async def amounts(ledger_reader: LedgerReader) -> dict[str, int]:
    """Return what is reserved, by the reservations' ids."""
    return {row.id: row.amount_nano for row in await ledger_reader.rows(reservations)}


class TestReserving:
    async def test_takes_what_is_left_of_the_balance_and_no_more(
        self, acme: Tenant, client: CreditsClient, ledger_reader: LedgerReader
    ) -> None:
        await client.credit(acme, 10)
        await client.reserve(acme, 7)
        error = await client.refused(acme, 4)
        assert error.metadata["reason"] == "batch_exceeds_credits"
        assert error.metadata["limit_source"] == "service_credits"
        await client.reserve(acme, 3, "batch-2")
        assert await amounts(ledger_reader) == {"batch-1": 7, "batch-2": 3}

    @pytest.mark.parametrize("scope", [BudgetScope.WORKSPACE, BudgetScope.MEMBER])
    @pytest.mark.parametrize("include", [False, True])
    async def test_takes_what_is_left_of_what_keys_have_in_common_and_no_more(
        self, acme: Tenant, client: CreditsClient, scope: BudgetScope, *, include: bool
    ) -> None:
        await client.credit(acme, 1_000)
        keys = await client.limit_in_common(acme, scope, 10, include=include)
        await client.reserve(acme, 4, with_own_nano=6, **keys[0])
        await client.reserve(acme, 2, "batch-2", **keys[1])
        left = 2 if include else 4
        error = await client.refused(acme, left + 1, **keys[0])
        assert error.metadata["reason"] == f"batch_exceeds_{scope}_limit"
        assert error.metadata["limit_source"] == f"service_{scope}"
        await client.reserve(acme, left, "batch-3", **keys[1])
        await client.reserve(acme, 100, "batch-4", key_hash="another")
        await client.end()
        await client.reserve(acme, 10 - left - 2, "batch-5", **keys[1])
        await client.refused(acme, 1, **keys[0])

    async def test_takes_what_is_left_of_the_payers_limit_and_no_more(
        self, acme: Tenant, client: CreditsClient
    ) -> None:
        await client.credit(acme, 100)
        await client.limit(acme, KeyLimit(10))
        intern = {"key_hash": "intern", "payer_hash": acme.key.hash}
        await client.reserve(acme, 7, **intern)
        error = await client.refused(acme, 4, **intern)
        assert error.metadata["reason"] == "batch_exceeds_key_limit"
        assert "the key that answers for this intern" in error.message
        assert (await client.refused(acme, 4)).metadata["reason"] == "batch_exceeds_key_limit"
        await client.reserve(acme, 3, "batch-2")
        async with client.database.reading() as read:
            statuses = await client.service.key_statuses(read, ["intern", acme.key.hash])
            means = await client.service.credits(read, acme.account.id)
        assert {key: each.reserved_nano for key, each in statuses.items()} == {
            "intern": 7,
            acme.key.hash: 10,
        }
        assert means.balance_nano == 100

    @pytest.mark.parametrize(
        ("balance", "limit", "key", "payer", "passed"),
        [
            pytest.param(70, 70, "{own}", None, 7, id="of one key"),
            pytest.param(55, None, "key-{third}", None, 5, id="of three keys"),
            pytest.param(1_000, 25, "intern-{number}", "{own}", 2, id="of a payer's interns"),
        ],
    )
    async def test_at_once_lets_those_pass_that_the_means_are_enough_for(
        self,
        acme: Tenant,
        client: CreditsClient,
        ledger_reader: LedgerReader,
        balance: int,
        limit: int | None,
        key: str,
        payer: str | None,
        passed: int,
    ) -> None:
        await client.credit(acme, balance)
        await client.limit(acme, KeyLimit(limit))
        tries: list[Any] = []
        for number in range(20):
            names = {"own": acme.key.hash, "third": number % 3, "number": number}
            payer_hash = payer and payer.format(**names)
            tries.append(
                client.reserve(
                    acme, 10, f"batch-{number}", key.format(**names), payer_hash=payer_hash
                )
            )
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(each is None for each in results) == passed
        assert sum(isinstance(each, PaymentRequired) for each in results) == 20 - passed
        assert sum((await amounts(ledger_reader)).values()) == 10 * passed

    async def test_takes_what_is_left_of_the_keys_limit_and_no_more(
        self, acme: Tenant, client: CreditsClient, writer: BooksProcess
    ) -> None:
        await client.credit(acme, 100)
        await client.limit(acme, KeyLimit(10))
        await writer.write([record_for(acme, cost_nano=2)])
        await client.reserve(acme, 5)
        error = await client.refused(acme, 4)
        assert error.metadata["reason"] == "batch_exceeds_key_limit"
        assert error.metadata["limit_source"] == "service_key_limit"
        await client.reserve(acme, 3, "batch-2")
        await client.reserve(acme, 50, "batch-3", key_hash="another")

    async def test_counts_the_use_of_the_keys_window(
        self, acme: Tenant, client: CreditsClient, writer: BooksProcess, clock: FakeClock
    ) -> None:
        await client.credit(acme, 100)
        await client.limit(acme, KeyLimit(10, Reset.DAILY))
        await writer.write([record_for(acme, cost_nano=10, created_at=clock.now())])
        await client.refused(acme, 1)
        clock.advance(86_400)
        await client.reserve(acme, 10)

    async def test_of_nothing_is_refused_by_a_negative_balance_alone(
        self, acme: Tenant, client: CreditsClient, writer: BooksProcess
    ) -> None:
        await client.limit(acme, KeyLimit(0))
        await client.reserve(acme, 0)
        await writer.write([record_for(acme, cost_nano=1)])
        error = await client.refused(acme, 0)
        assert error.metadata["reason"] == "negative_balance"

    async def test_of_more_than_can_be_counted_is_refused(
        self, acme: Tenant, client: CreditsClient
    ) -> None:
        await client.pays(acme, AccountType.ENTERPRISE)
        await client.reserve(acme, MAX_NANO)
        with pytest.raises(Invalid, match="than can be counted"):
            await client.reserve(acme, 1, "batch-2")


class TestLowering:
    async def test_gives_back_that_much_down_to_nothing(
        self, acme: Tenant, client: CreditsClient, ledger_reader: LedgerReader
    ) -> None:
        await client.credit(acme, 10)
        await client.reserve(acme, 10)
        for by, left in ((0, 10), (4, 6), (5, 1), (5, 0), (1, 0)):
            await client.lower(by)
            assert await amounts(ledger_reader) == {"batch-1": left}
        await client.reserve(acme, 10, "batch-2")

    async def test_at_once_loses_nothing(
        self, acme: Tenant, client: CreditsClient, ledger_reader: LedgerReader
    ) -> None:
        await client.credit(acme, 1_000)
        await client.reserve(acme, 1_000)
        await asyncio.gather(*(client.lower(number) for number in range(20)))
        assert await amounts(ledger_reader) == {"batch-1": 1_000 - sum(range(20))}

    async def test_and_ending_one_that_has_ended_do_nothing(
        self, acme: Tenant, client: CreditsClient, ledger_reader: LedgerReader
    ) -> None:
        await client.credit(acme, 10)
        await client.reserve(acme, 10)
        await client.reserve(acme, 0, "batch-2")
        client.told.clear()
        for _ in range(2):
            await client.end()
            await client.lower(1)
        assert await amounts(ledger_reader) == {"batch-2": 0}
        assert client.told == [acme.account.id]


class TestStanding:
    async def test_admission_is_told_what_is_reserved(
        self, acme: Tenant, other: Tenant, client: CreditsClient, clock: FakeClock
    ) -> None:
        await client.credit(acme, 100)
        await client.limit(acme, KeyLimit(50))
        await client.reserve(acme, 3)
        await client.reserve(acme, 9, "batch-2", key_hash="another")
        loader = DatabaseAccountLoader(client.database, clock, "the process")
        account, key = await loader.load(acme.account.id, acme.key.hash)
        assert (account.reserved_nano, key.reserved_nano) == (12, 3)
        account, key = await loader.load(other.account.id, other.key.hash)
        assert (account.reserved_nano, key.reserved_nano) == (0, 0)


class TestCovering:
    async def test_is_a_balance_that_is_not_negative_unless_the_account_pays_afterwards(
        self, acme: Tenant, client: CreditsClient, writer: BooksProcess
    ) -> None:
        assert await client.is_covered(acme)
        await writer.write([record_for(acme, cost_nano=5)])
        for account_type in AccountType:
            await client.pays(acme, account_type)
            assert await client.is_covered(acme) is not account_type.needs_credits


@pytest.mark.parametrize(
    ("lowered", "stale", "outdated"),
    [
        pytest.param(20, 0, 1, id="charges within it keep nobody waiting"),
        pytest.param(70, 1, 0, id="charges beyond it are known before the next request"),
        pytest.param(None, 1, 0, id="so is its end"),
    ],
)
async def test_who_is_told_of_a_reservation(
    acme: Tenant,
    client: CreditsClient,
    lowered: int | None,
    stale: int,
    outdated: int,
) -> None:
    told: dict[str, list[str | None]] = {"stale": [], "outdated": []}
    client.database.notifications.subscribe(Topic.ACCOUNT, told["stale"].append)
    client.database.notifications.subscribe(Topic.ACCOUNT_HINT, told["outdated"].append)
    await client.credit(acme, 100)
    told["stale"].clear()
    await client.reserve(acme, 60)
    assert told == {"stale": [acme.account.id], "outdated": []}
    told["stale"].clear()
    await (client.end() if lowered is None else client.lower(lowered))
    assert told == {"stale": [acme.account.id] * stale, "outdated": [acme.account.id] * outdated}
