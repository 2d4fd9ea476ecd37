"""Credits, counters and generations as a caller sees them, on both databases."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.component.accounting.ledger_reader import LedgerReader, record_for
from tests.support.builders import Tenant, charge
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.settlement.settler import ChargeWriter
from tollhouse.accounting.types import (
    Attempt,
    Attribution,
    CostState,
    Credits,
    GenerationRecord,
    KeyUsage,
    Posting,
    PostingKind,
    Spend,
)
from tollhouse.identity.types import subject_of
from tollhouse.kernel.errors import Conflict, Invalid, NotFound
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import postings


class AccountingFixture:
    """Each use case in a transaction of its own, as the edge runs them."""

    def __init__(self, database: Database, service: AccountingService) -> None:
        self.database = database
        self.service = service

    async def add(
        self,
        tenant: Tenant,
        nano: int,
        kind: PostingKind = PostingKind.PURCHASE,
        key: str | None = None,
        generation_id: str | None = None,
    ) -> Posting:
        async with self.database.writing() as write:
            return await self.service.add_credits(
                write,
                tenant.account.id,
                kind,
                nano,
                generation_id=generation_id,
                idempotency_key=key,
                note="a note",
            )

    async def unknown(self, tenant: Tenant | None = None) -> list[str]:
        async with self.database.reading() as read:
            account_id = None if tenant is None else tenant.account.id
            return [each.id for each in await self.service.unknown_costs(read, account_id)]

    async def credits(self, tenant: Tenant) -> Credits:
        async with self.database.reading() as read:
            return await self.service.credits(read, tenant.account.id)

    async def usage(self, key_hash: str) -> KeyUsage:
        async with self.database.reading() as read:
            return (await self.service.key_status(read, key_hash)).usage

    async def generation(self, tenant: Tenant, generation_id: str) -> GenerationRecord:
        async with self.database.reading() as read:
            subject = subject_of(tenant.key)
            return await self.service.generation(read, subject, generation_id)


@pytest.fixture
def fixture(database: Database, service: AccountingService) -> AccountingFixture:
    return AccountingFixture(database, service)


class TestCredits:
    async def test_are_none_where_nothing_ever_moved(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        assert await fixture.credits(acme) == Credits()

    async def test_that_were_purchased_and_granted_are_told_apart(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 5)
        await fixture.add(acme, 7)
        await fixture.add(acme, 100, PostingKind.GRANT)
        assert await fixture.credits(acme) == Credits(purchased_nano=12, granted_nano=100)

    async def test_of_one_account_are_not_anothers(
        self, acme: Tenant, other: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 5)
        assert await fixture.credits(other) == Credits()

    async def test_fall_by_what_is_used(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        await fixture.add(acme, 100)
        await writer.write([record_for(acme, cost_nano=30)])
        found = await fixture.credits(acme)
        assert (found.used_nano, found.balance_nano) == (30, 70)

    async def test_may_be_used_before_any_came_in(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        await writer.write([record_for(acme, cost_nano=30)])
        await fixture.add(acme, 100)
        assert (await fixture.credits(acme)).balance_nano == 70

    async def test_added_at_once_are_all_counted(
        self, acme: Tenant, fixture: AccountingFixture, ledger_reader: LedgerReader
    ) -> None:
        await asyncio.gather(*(fixture.add(acme, number) for number in range(1, 11)))
        assert (await fixture.credits(acme)).purchased_nano == 55
        assert await ledger_reader.totals() == await ledger_reader.totals_of_rows()

    async def test_are_stored_as_a_posting_with_both_sides(
        self, acme: Tenant, fixture: AccountingFixture, ledger_reader: LedgerReader
    ) -> None:
        made = await fixture.add(acme, 5)
        (row,) = await ledger_reader.rows(postings)
        assert (row.id, row.source, row.destination, row.amount_nano, row.note) == (
            made.id,
            "purchases",
            f"customer:{acme.account.id}",
            5,
            "a note",
        )

    async def test_are_refused_beyond_what_can_be_counted(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, MAX_NANO)
        with pytest.raises(Invalid, match="more credits than can be counted"):
            await fixture.add(acme, 1)
        assert (await fixture.credits(acme)).purchased_nano == MAX_NANO


class TestIdempotencyKey:
    async def test_adds_once(self, acme: Tenant, fixture: AccountingFixture) -> None:
        first = await fixture.add(acme, 5, key="k")
        assert await fixture.add(acme, 5, key="k") == first
        assert (await fixture.credits(acme)).purchased_nano == 5

    async def test_adds_once_for_requests_at_once(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        answers = await asyncio.gather(*(fixture.add(acme, 5, key="k") for _ in range(8)))
        assert len({posting.id for posting in answers}) == 1
        assert (await fixture.credits(acme)).purchased_nano == 5

    @pytest.mark.parametrize(("nano", "kind"), [(6, PostingKind.PURCHASE), (5, PostingKind.GRANT)])
    async def test_is_refused_for_something_else(
        self, acme: Tenant, fixture: AccountingFixture, nano: int, kind: PostingKind
    ) -> None:
        await fixture.add(acme, 5, key="k")
        with pytest.raises(Conflict):
            await fixture.add(acme, nano, kind, key="k")
        assert await fixture.credits(acme) == Credits(purchased_nano=5)

    async def test_belongs_to_an_account(
        self, acme: Tenant, other: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 5, key="k")
        await fixture.add(other, 6, key="k")
        assert (await fixture.credits(other)).purchased_nano == 6

    async def test_may_be_left_out_any_number_of_times(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 5)
        await fixture.add(acme, 5)
        assert (await fixture.credits(acme)).purchased_nano == 10


class TestRefunds:
    async def test_take_purchases_back(
        self, acme: Tenant, fixture: AccountingFixture, ledger_reader: LedgerReader
    ) -> None:
        await fixture.add(acme, 10)
        made = await fixture.add(acme, 4, PostingKind.REFUND)
        assert (made.source, made.destination) == (f"customer:{acme.account.id}", "purchases")
        held = await fixture.credits(acme)
        assert held == Credits(purchased_nano=10, refunded_nano=4)
        assert (await ledger_reader.balances())[made.source] == held.balance_nano == 6

    async def test_may_leave_a_debt(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        await fixture.add(acme, 10)
        await writer.write([record_for(acme, cost_nano=8)])
        await fixture.add(acme, 10, PostingKind.REFUND)
        assert (await fixture.credits(acme)).balance_nano == -8

    async def test_are_no_larger_than_what_was_purchased(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 10)
        await fixture.add(acme, 100, PostingKind.GRANT)
        with pytest.raises(Conflict, match=r"No more than 0\.00000001 credits"):
            await fixture.add(acme, 11, PostingKind.REFUND)
        assert (await fixture.credits(acme)).refunded_nano == 0

    async def test_at_once_take_no_more_than_there_is(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 10)
        refunds = [fixture.add(acme, 3, PostingKind.REFUND) for _ in range(8)]
        ended = await asyncio.gather(*refunds, return_exceptions=True)
        assert sum(isinstance(each, Posting) for each in ended) == 3
        assert sum(isinstance(each, Conflict) for each in ended) == 5
        assert (await fixture.credits(acme)).refunded_nano == 9

    async def test_asked_for_again_are_the_same_though_nothing_is_left(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 10)
        first = await fixture.add(acme, 10, PostingKind.REFUND, key="k")
        assert await fixture.add(acme, 10, PostingKind.REFUND, key="k") == first
        assert (await fixture.credits(acme)).refunded_nano == 10


class TestAdjustments:
    async def test_give_and_take(
        self, acme: Tenant, fixture: AccountingFixture, ledger_reader: LedgerReader
    ) -> None:
        await fixture.add(acme, 7, PostingKind.ADJUSTMENT)
        await fixture.add(acme, -10, PostingKind.ADJUSTMENT)
        assert await fixture.credits(acme) == Credits(adjusted_nano=-3)
        assert await ledger_reader.balances() == {
            f"customer:{acme.account.id}": -3,
            "adjustments": 3,
        }

    async def test_that_name_a_generation_of_unknown_cost_settle_it(
        self, acme: Tenant, other: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        unknown = charge(0, state=CostState.UNKNOWN, provider_cost_nano=None)
        ours, theirs = record_for(acme, 1, charge=unknown), record_for(other, 2, charge=unknown)
        await writer.write([ours, theirs])
        await fixture.add(acme, -20, PostingKind.ADJUSTMENT, generation_id=ours.id)
        assert await fixture.unknown() == [theirs.id]
        assert await fixture.unknown(acme) == []

    async def test_may_name_a_generation_any_number_of_times(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        record = record_for(acme, cost_nano=5)
        await writer.write([record])
        await fixture.add(acme, 5, PostingKind.ADJUSTMENT, generation_id=record.id)
        await fixture.add(acme, -5, PostingKind.ADJUSTMENT, generation_id=record.id)
        assert (await fixture.credits(acme)).balance_nano == -5

    async def test_name_no_generation_of_another_account(
        self, acme: Tenant, other: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        await writer.write([record_for(other, 1)])
        for wanted in (record_for(other, 1).id, "gen-nothing"):
            with pytest.raises(Invalid, match="no such generation in this account"):
                await fixture.add(acme, 5, PostingKind.ADJUSTMENT, generation_id=wanted)

    async def test_of_both_signs_are_not_the_same_for_an_idempotency_key(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        await fixture.add(acme, 5, PostingKind.ADJUSTMENT, key="k")
        with pytest.raises(Conflict, match="used before"):
            await fixture.add(acme, -5, PostingKind.ADJUSTMENT, key="k")


class TestStale:
    @pytest.fixture
    def told(self) -> list[str]:
        return []

    @pytest.fixture
    def service(self, clock: FakeClock, ids: SequentialIds, told: list[str]) -> AccountingService:
        return AccountingService(clock, ids, invalidate=told.append)

    async def test_is_told_of_every_account_whose_money_changed(
        self, acme: Tenant, other: Tenant, fixture: AccountingFixture, told: list[str]
    ) -> None:
        await fixture.add(acme, 5)
        await fixture.add(other, 5, PostingKind.GRANT)
        await fixture.add(acme, 5, PostingKind.REFUND)
        await fixture.add(acme, 5, PostingKind.ADJUSTMENT)
        assert told == [acme.account.id, other.account.id, acme.account.id, acme.account.id]

    async def test_is_told_after_the_commit(
        self, acme: Tenant, database: Database, service: AccountingService, told: list[str]
    ) -> None:
        async with database.writing() as write:
            await service.add_credits(write, acme.account.id, PostingKind.PURCHASE, 5)
            assert told == []
        assert told == [acme.account.id]

    async def test_is_not_told_where_nothing_changed(
        self, acme: Tenant, fixture: AccountingFixture, told: list[str]
    ) -> None:
        await fixture.add(acme, 5, key="k")
        await fixture.add(acme, 5, key="k")
        with pytest.raises(Conflict):
            await fixture.add(acme, 6, key="k")
        assert told == [acme.account.id]


class TestKeyUsage:
    async def test_is_nothing_for_a_key_that_was_never_used(
        self, acme: Tenant, fixture: AccountingFixture
    ) -> None:
        assert await fixture.usage(acme.key.hash) == KeyUsage()

    async def test_counts_the_day_the_week_and_the_month(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter, clock: FakeClock
    ) -> None:
        clock.set(datetime(2026, 3, 12, 23, 59, 59, tzinfo=UTC))
        days = {
            "today": datetime(2026, 3, 12, 0, 0, tzinfo=UTC),
            "monday": datetime(2026, 3, 9, 0, 0, tzinfo=UTC),
            "sunday": datetime(2026, 3, 8, 23, 59, 59, tzinfo=UTC),
            "last month": datetime(2026, 2, 28, 23, 59, 59, tzinfo=UTC),
        }
        for number, at in enumerate(days.values()):
            await writer.write([record_for(acme, number, cost_nano=10**number, created_at=at)])
        usage = await fixture.usage(acme.key.hash)
        assert (usage.daily, usage.weekly) == (Spend(1), Spend(11))
        assert (usage.monthly, usage.total) == (Spend(111), Spend(1111))

    async def test_begins_anew_with_a_day(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter, clock: FakeClock
    ) -> None:
        clock.set(datetime(2026, 3, 31, 23, 59, tzinfo=UTC))
        await writer.write([record_for(acme, cost_nano=5, created_at=clock.now())])
        clock.advance(60)
        usage = await fixture.usage(acme.key.hash)
        assert (usage.daily, usage.weekly, usage.monthly) == (Spend(), Spend(5), Spend())

    async def test_knows_the_last_use(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter, clock: FakeClock
    ) -> None:
        late, early = clock.now(), clock.now() - timedelta(hours=3)
        await writer.write([record_for(acme, 1, created_at=late)])
        await writer.write([record_for(acme, 2, created_at=early)])
        assert (await fixture.usage(acme.key.hash)).last_used_at == late

    async def test_counts_own_provider_keys_apart(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        own = charge(0, provider_cost_nano=9)
        await writer.write([record_for(acme, 1, is_byok=True, charge=own)])
        await writer.write([record_for(acme, 2, cost_nano=4)])
        assert (await fixture.usage(acme.key.hash)).total == Spend(4, 9)


class TestGenerations:
    @pytest.mark.parametrize(
        "facts",
        [
            {},
            {
                "provider": None,
                "provider_model": None,
                "upstream_id": None,
                "finish_reason": None,
                "native_finish_reason": None,
                "latency_ms": None,
                "generation_ms": None,
                "attempts": (),
                "cancelled": True,
            },
            {
                "is_byok": True,
                "streamed": True,
                "attempts": (Attempt("a", None, 1), Attempt("b", 503, 2), Attempt("c", 200, 3)),
                "attribution": Attribution("https://é.example/", 'a "name" 🙂', "u/1", "user", "s"),
            },
            {"charge": charge(0, state=CostState.UNKNOWN, provider_cost_nano=None)},
            {"charge": charge(7, state=CostState.ESTIMATED, provider_cost_nano=8)},
        ],
        ids=["plain", "without", "with everything", "unknown", "estimated"],
    )
    async def test_are_read_back_as_they_were_booked(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter, facts: dict[str, Any]
    ) -> None:
        booked = record_for(acme, **facts)
        await writer.write([booked])
        found = await fixture.generation(acme, booked.id)
        assert found == booked

    async def test_of_others_do_not_exist(
        self, acme: Tenant, other: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        booked = record_for(other)
        await writer.write([booked])
        with pytest.raises(NotFound):
            await fixture.generation(acme, booked.id)

    async def test_of_another_workspace_do_not_exist_for_an_api_key(
        self, acme: Tenant, fixture: AccountingFixture, writer: ChargeWriter
    ) -> None:
        booked = record_for(acme, workspace_id="elsewhere")
        await writer.write([booked])
        with pytest.raises(NotFound):
            await fixture.generation(acme, booked.id)

    async def test_of_unknown_cost_are_listed_newest_first(
        self,
        acme: Tenant,
        other: Tenant,
        database: Database,
        service: AccountingService,
        writer: ChargeWriter,
        clock: FakeClock,
    ) -> None:
        unknown = charge(0, state=CostState.UNKNOWN, provider_cost_nano=None)
        group = [
            record_for(tenant, number, charge=unknown, created_at=clock.now() + timedelta(number))
            for number, tenant in enumerate([acme, other, acme])
        ]
        await writer.write([*group, record_for(acme, 9)])
        async with database.reading() as read:
            everyones = await service.unknown_costs(read, None)
            own = await service.unknown_costs(read, acme.account.id)
        assert [record.id for record in everyones] == [group[2].id, group[1].id, group[0].id]
        assert [record.id for record in own] == [group[2].id, group[0].id]


async def test_free_requests_of_today_are_counted(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    writer: ChargeWriter,
    clock: FakeClock,
) -> None:
    today, yesterday = clock.now(), clock.now() - timedelta(days=1)
    await writer.write(
        [
            record_for(acme, 1, free_limited=True, created_at=today),
            record_for(acme, 2, free_limited=True, created_at=today),
            record_for(acme, 3, model="acme/large", created_at=today),
            record_for(acme, 4, free_limited=True, created_at=yesterday),
            record_for(other, 5, free_limited=True, created_at=today),
        ]
    )
    async with database.reading() as read:
        assert (await service.free_requests(read, acme.account.id)).used == 2
