"""Rows of budgets follow what they are derived from; `ledger verify` says where they do not."""

from datetime import date

import pytest
import sqlalchemy as sa

from tests.component.accounting.bookkeeping import Bookkeeping
from tests.component.accounting.ledger_reader import HOLDER, record_for
from tests.support.builders import Tenant, reservation
from tests.support.seams.accounting import (
    BudgetScope,
    GenerationRecord,
    KeyLimit,
    Owner,
    PostingKind,
    Reservation,
    Reset,
    Right,
    budget_rows,
    leases,
)
from tollhouse.storage.tables.accounting import budgets as rows
from tollhouse.storage.tables.accounting import holders
from tollhouse.storage.tables.accounting import leases as granted

BATCH = "batch"


@pytest.fixture
async def made(fixture: Bookkeeping, acme: Tenant) -> list[leases.BudgetId]:
    """A budget of each scope that a tenant has, each with a row, of which something is leased."""
    today: date = fixture.clock.now().date()
    day = leases.window_of(Reset.DAILY, today)
    these = [
        leases.BudgetId("account", acme.account.id),
        leases.BudgetId("free_requests", acme.account.id, day),
        leases.BudgetId("key", acme.key.hash),
        leases.BudgetId("key", acme.key.hash, day),
        leases.BudgetId("workspace", acme.workspace.id, leases.window_of(Reset.WEEKLY, today)),
        leases.BudgetId("end_user", f"{acme.workspace.id}:ada", day),
    ]
    await fixture.add(acme, PostingKind.PURCHASE, 1_000)
    await limit(fixture, acme, KeyLimit(500, Reset.DAILY))
    async with fixture.database.writing() as write:
        await budget_rows.make_rows(write, these)
        await write.execute(sa.insert(holders).values(id=HOLDER, booked_seq=0, live=True))
        for scope, id_, period in these:
            place = {"scope": scope, "id": id_, "period": period}
            await write.execute(sa.insert(granted).values(holder=HOLDER, granted_nano=40, **place))
        await write.execute(sa.update(rows).values(leased_nano=40))
    await assert_right(fixture)
    return these


async def limit(fixture: Bookkeeping, tenant: Tenant, wanted: KeyLimit) -> None:
    async with fixture.database.writing() as write:
        await fixture.accounting.set_key_limit(write, tenant.account.id, tenant.key.hash, wanted)


def charge(tenant: Tenant, number: int, cost: int, **fields: object) -> GenerationRecord:
    facts = {"cost_nano": cost, "external_user": "ada", "free_limited": number == 1} | fields
    return record_for(tenant, number, **facts)


def reserved(fixture: Bookkeeping, tenant: Tenant, **fields: object) -> Reservation:
    facts = tenant.account.id, tenant.key.hash, 100, fixture.clock.now()
    return reservation(BATCH, *facts, **fields)


async def amounts(fixture: Bookkeeping, budget: leases.BudgetId) -> tuple[int | None, ...]:
    """Return limit, used, reserved and leased."""
    names = ("limit_nano", "used_nano", "reserved_nano", "leased_nano")
    its = (
        rows.c[name] == value for name, value in zip(("scope", "id", "period"), budget, strict=True)
    )
    async with fixture.database.reading() as read:
        found = await read.execute(sa.select(*(rows.c[name] for name in names)).where(*its))
        return tuple(found.one())


async def assert_right(fixture: Bookkeeping) -> None:
    assert (await fixture.verify()).differences == []


async def test_they_follow_credits_and_limits(
    fixture: Bookkeeping, acme: Tenant, made: list[leases.BudgetId]
) -> None:
    await fixture.add(acme, PostingKind.REFUND, 300)
    assert await amounts(fixture, made[0]) == (700, 0, 0, 40)
    assert await amounts(fixture, made[2]) == (None, 0, 0, 40)
    await limit(fixture, acme, KeyLimit(90, None))
    assert await amounts(fixture, made[2]) == (90, 0, 0, 40)
    assert await amounts(fixture, made[3]) == (None, 0, 0, 40)
    await assert_right(fixture)


async def test_they_follow_charges_and_the_rights_that_these_use_up(
    fixture: Bookkeeping, acme: Tenant, made: list[leases.BudgetId]
) -> None:
    rights = tuple(Right(*budget, 7) for budget in made)
    charged = charge(acme, 1, 9, rights=rights)
    for _ in range(2):  # the second time it is booked already
        await fixture.writer.write([charged], None, 1)
    assert [await amounts(fixture, each) for each in made] == [
        (1_000, 9, 0, 33),
        (None, 1, 0, 33),
        (None, 9, 0, 33),
        (500, 9, 0, 33),
        (None, 9, 0, 33),
        (None, 9, 0, 33),
    ]
    await assert_right(fixture)


async def test_rights_of_another_holder_end_with_its_release(
    fixture: Bookkeeping, acme: Tenant, made: list[leases.BudgetId]
) -> None:
    charged = charge(acme, 1, 9, rights=(Right(*made[0], 7),))
    await fixture.writer.write([charged])
    assert await amounts(fixture, made[0]) == (1_000, 9, 0, 40)
    await fixture.writer.release(HOLDER)
    assert await amounts(fixture, made[0]) == (1_000, 9, 0, 0)
    await assert_right(fixture)


async def test_they_follow_what_batches_reserve_and_book(
    fixture: Bookkeeping, acme: Tenant, made: list[leases.BudgetId]
) -> None:
    accounting = fixture.accounting
    async with fixture.database.writing() as write:
        wanted = reserved(fixture, acme, workspace_id=acme.workspace.id)
        await accounting.reserve(write, wanted)
    assert await amounts(fixture, made[3]) == (500, 0, 100, 40)
    async with fixture.database.writing() as write:
        await accounting.book(write, [charge(acme, 2, 30)])
        await accounting.lower_reservation(write, BATCH, 30)
    assert await amounts(fixture, made[0]) == (1_000, 30, 70, 40)
    assert await amounts(fixture, made[4]) == (None, 30, 70, 40)
    await assert_right(fixture)
    async with fixture.database.writing() as write:
        await accounting.end_reservation(write, BATCH)
    assert await amounts(fixture, made[3]) == (500, 30, 0, 40)
    await assert_right(fixture)


async def test_they_count_own_keys_where_their_limit_does(
    fixture: Bookkeeping, acme: Tenant, made: list[leases.BudgetId]
) -> None:
    await limit(fixture, acme, KeyLimit(500, Reset.DAILY, include_byok=True))
    own = charge(acme, 3, 0, is_byok=True, provider_cost_nano=50)
    await fixture.writer.write([own], None, 1)
    assert await amounts(fixture, made[3]) == (500, 50, 0, 40)
    assert await amounts(fixture, made[0]) == (1_000, 0, 0, 40)
    await assert_right(fixture)


async def test_a_new_row_has_what_was_used_and_reserved_before(
    fixture: Bookkeeping, acme: Tenant
) -> None:
    day = leases.window_of(Reset.DAILY, fixture.clock.now().date())
    await fixture.add(acme, PostingKind.PURCHASE, 1_000)
    await fixture.writer.write([charge(acme, 1, 9)], None, 1)
    async with fixture.database.writing() as write:
        await fixture.accounting.reserve(write, reserved(fixture, acme))
        budget = leases.BudgetId("key", acme.key.hash, day)
        await budget_rows.make_rows(write, [budget])
    assert await amounts(fixture, budget) == (None, 9, 100, 0)
    await assert_right(fixture)


async def test_windows_of_long_ago_are_forgotten_once_nobody_has_a_part_of_them(
    fixture: Bookkeeping, acme: Tenant
) -> None:
    periods = ["2026-01-01..2026-01-02", "2026-01-02..2026-01-03", "2026-05-01..2026-05-02"]
    old, leased, new = (leases.BudgetId("key", acme.key.hash, each) for each in periods)
    async with fixture.database.writing() as write:
        await budget_rows.make_rows(write, [old, leased])
        place = dict(zip(("scope", "id", "period"), leased, strict=True))
        await write.execute(sa.insert(granted).values(holder=HOLDER, granted_nano=1, **place))
        await budget_rows.make_rows(write, [new])
        left = (await write.execute(sa.select(rows.c.period))).scalars().all()
    assert sorted(left) == [leased.window, new.window]


@pytest.mark.usefixtures("made")
async def test_a_row_that_does_not_follow_is_a_difference(fixture: Bookkeeping) -> None:
    wrong = {"used_nano": 1, "reserved_nano": 2, "leased_nano": 41}
    async with fixture.database.writing() as write:
        await write.execute(sa.update(rows).where(rows.c.scope == "account").values(wrong))
    found = (await fixture.verify()).differences
    assert [each.what for each in found] == [f"budgets.{name}" for name in wrong]


async def test_a_limit_in_common_has_a_row_for_each_interval(
    fixture: Bookkeeping, acme: Tenant, made: list[leases.BudgetId]
) -> None:
    owner = Owner(BudgetScope.WORKSPACE, acme.workspace.id)
    async with fixture.database.writing() as write:
        await fixture.accounting.budgets.set_budget(
            write, acme.account.id, owner, Reset.WEEKLY, 60, include_byok=None, actor="me"
        )
    assert await amounts(fixture, made[4]) == (60, 0, 0, 40)
    await assert_right(fixture)
