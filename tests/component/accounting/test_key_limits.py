"""The limits of keys as the service keeps them, on a real database."""

from tests.support.builders import Tenant
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.types import Budget, BudgetScope, KeyLimit, KeyStatus, Reset
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.database import Database

LIMITS = [
    KeyLimit(25, Reset.MONTHLY, include_byok=True),
    KeyLimit(MAX_NANO),
    KeyLimit(0, Reset.DAILY),
    KeyLimit(None, Reset.WEEKLY),
    KeyLimit(),
]


async def set_limit(
    database: Database, service: AccountingService, tenant: Tenant, limit: KeyLimit
) -> None:
    async with database.writing() as write:
        await service.set_key_limit(write, tenant.account.id, tenant.key.hash, limit)


async def test_a_key_has_none_until_it_is_given_one(
    database: Database, service: AccountingService, acme: Tenant
) -> None:
    async with database.reading() as read:
        assert (await service.key_status(read, acme.key.hash)).limit == KeyLimit()
        assert await service.key_status(read, acme.key.hash) == KeyStatus()


async def test_each_takes_the_place_of_the_one_before(
    database: Database, service: AccountingService, acme: Tenant
) -> None:
    for limit in (*LIMITS, *LIMITS):
        await set_limit(database, service, acme, limit)
        async with database.reading() as read:
            assert (await service.key_status(read, acme.key.hash)).limit == limit


async def test_of_several_keys_each_has_its_own(
    database: Database, service: AccountingService, acme: Tenant, other: Tenant
) -> None:
    await set_limit(database, service, acme, KeyLimit(5))
    both = [acme.key.hash, other.key.hash]
    async with database.reading() as read:
        statuses = await service.key_statuses(read, both)
        assert await service.key_statuses(read, []) == {}
    assert [statuses[each].limit for each in both] == [KeyLimit(5), KeyLimit()]
    assert statuses[both[0]].budgets == (Budget(BudgetScope.KEY_LIMIT, 5, 0),)
    assert statuses[both[1]].budgets == ()
