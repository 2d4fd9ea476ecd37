"""Statements and activity, on both databases."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest

from tests.component.accounting.bookkeeping import Bookkeeping
from tests.component.accounting.ledger_reader import record_for
from tests.support.builders import Tenant, charge
from tests.support.seams.accounting import Activity, PostingKind, Statement, Usage
from tollhouse.kernel.pages import Window

MONDAY = datetime(2026, 3, 9, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
async def week(acme: Tenant, other: Tenant, fixture: Bookkeeping) -> list[str]:
    """Return the ids of a week's postings that are no charges."""
    made = [
        (await fixture.add(acme, PostingKind.PURCHASE, 1_000, at=MONDAY)).id,
        (await fixture.add(acme, PostingKind.GRANT, 50, at=MONDAY + 9 * HOUR)).id,
        (await fixture.add(acme, PostingKind.REFUND, 200, at=MONDAY + DAY)).id,
        (await fixture.add(acme, PostingKind.ADJUSTMENT, -5, at=MONDAY + 2 * DAY)).id,
    ]
    await fixture.add(other, PostingKind.GRANT, 7, at=MONDAY)
    await fixture.writer.write(
        [
            record_for(acme, 1, cost_nano=10, created_at=MONDAY + HOUR),
            record_for(acme, 2, cost_nano=20, created_at=MONDAY + 8 * HOUR),
            record_for(acme, 3, cost_nano=40, model="acme/small", created_at=MONDAY + 2 * HOUR),
            record_for(acme, 4, cost_nano=80, created_at=MONDAY + DAY + HOUR),
            record_for(acme, 5, cost_nano=0, created_at=MONDAY + DAY + HOUR),
            record_for(other, 6, cost_nano=999, created_at=MONDAY + HOUR),
        ]
    )
    return made


def lines(statement: Statement) -> list[tuple[Any, ...]]:
    return [
        (
            line.day.day,
            line.kind,
            line.model,
            line.count,
            line.change_nano,
            line.balance_nano,
        )
        for line in statement.lines
    ]


class TestStatement:
    async def test_sums_the_charges_of_a_day_and_model(
        self, acme: Tenant, fixture: Bookkeeping, week: list[str]
    ) -> None:
        found = await fixture.statement(acme)
        assert lines(found) == [
            (9, "purchase", None, 1, 1_000, 1_000),
            (9, "grant", None, 1, 50, 1_050),
            (9, "usage", "acme/large", 2, -30, 1_020),
            (9, "usage", "acme/small", 1, -40, 980),
            (10, "refund", None, 1, -200, 780),
            (10, "usage", "acme/large", 1, -80, 700),
            (11, "adjustment", None, 1, -5, 695),
        ]
        assert [line.posting_id for line in found.lines if line.at] == week
        assert (found.opening_nano, found.closing_nano, found.total) == (0, 695, 7)
        assert found.closing_nano == await fixture.balance(acme)
        assert found.lines[0].note == "a note"
        assert found.lines[0].at == MONDAY

    async def test_shows_each_charge_in_the_order_of_time(
        self, acme: Tenant, fixture: Bookkeeping, week: list[str]
    ) -> None:
        found = await fixture.statement(acme, detail=True)
        assert [line.change_nano for line in found.lines] == [
            *(1_000, -10, -40, -20, 50, -200, -80, -5)
        ]
        assert [line.generation_id for line in found.lines][1] == record_for(acme, 1).id
        assert found.lines[2].model == "acme/small"
        assert found.closing_nano == await fixture.balance(acme)
        assert len(week) == 4

    async def test_of_a_period_goes_on_from_the_one_before(
        self, acme: Tenant, fixture: Bookkeeping, week: list[str]
    ) -> None:
        cuts = [None, MONDAY + 2 * HOUR, MONDAY + 9 * HOUR, MONDAY + DAY, MONDAY + 3 * DAY, None]
        for detail in (False, True):
            opening = 0
            for since, until in pairwise(cuts):
                found = await fixture.statement(acme, since=since, until=until, detail=detail)
                assert found.opening_nano == opening
                assert found.closing_nano == opening + sum(line.change_nano for line in found.lines)
                opening = found.closing_nano
            assert opening == await fixture.balance(acme)
        assert len(week) == 4

    @pytest.mark.parametrize("detail", [False, True])
    async def test_is_the_same_in_pages(
        self, acme: Tenant, fixture: Bookkeeping, week: list[str], *, detail: bool
    ) -> None:
        whole = await fixture.statement(acme, detail=detail, since=MONDAY + HOUR)
        pages = [
            await fixture.statement(acme, Window(skip, 2), detail=detail, since=MONDAY + HOUR)
            for skip in range(0, whole.total + 2, 2)
        ]
        assert [line for page in pages for line in page.lines] == list(whole.lines)
        assert {(p.opening_nano, p.closing_nano, p.total) for p in pages} == {
            (whole.opening_nano, whole.closing_nano, whole.total)
        }
        assert len(week) == 4

    @pytest.mark.parametrize("seed", range(2))
    async def test_adds_up_to_the_balance_whatever_happened(
        self, acme: Tenant, fixture: Bookkeeping, seed: int
    ) -> None:
        dice = random.Random(seed)
        for number in range(30):
            at = MONDAY + dice.randrange(200) * HOUR
            kind = dice.choice([PostingKind.PURCHASE, PostingKind.GRANT, PostingKind.ADJUSTMENT])
            await fixture.add(acme, kind, dice.randrange(1, 10**15), at=at)
            cost = dice.randrange(10**15)
            await fixture.writer.write([record_for(acme, number, cost_nano=cost, created_at=at)])
        cut = MONDAY + dice.randrange(200) * HOUR
        for detail in (False, True):
            before = await fixture.statement(acme, until=cut, detail=detail)
            after = await fixture.statement(acme, since=cut, detail=detail)
            assert before.closing_nano == after.opening_nano
            assert after.closing_nano == await fixture.balance(acme)
            if after.lines:
                assert after.lines[-1].balance_nano == after.closing_nano


class TestActivity:
    @pytest.fixture(autouse=True)
    async def booked(self, acme: Tenant, other: Tenant, fixture: Bookkeeping) -> None:
        usage = Usage(input_tokens=1, cache_read_tokens=2, output_tokens=16, reasoning_tokens=3)
        cost = charge(10, usage=usage, provider_cost_nano=70)
        await fixture.writer.write(
            [
                record_for(acme, 1, charge=cost, created_at=MONDAY),
                record_for(acme, 2, charge=cost, created_at=MONDAY + HOUR, key_hash="second"),
                record_for(acme, 3, charge=cost, created_at=MONDAY, workspace_id="elsewhere"),
                record_for(acme, 4, charge=cost, created_at=MONDAY, provider=None),
                record_for(acme, 5, charge=cost, created_at=MONDAY + DAY, is_byok=True),
                record_for(other, 6, charge=cost, created_at=MONDAY),
            ]
        )

    async def test_is_by_day_model_and_provider(self, acme: Tenant, fixture: Bookkeeping) -> None:
        tuesday, nobody, monday = await fixture.activity(acme)
        assert tuesday == Activity("2026-03-10", "acme/large", "acme", 1, 3, 16, 3, 2, 10, 70)
        assert nobody == Activity("2026-03-09", "acme/large", "", 1, 3, 16, 3, 2, 10, 0)
        assert monday == replace(
            nobody,
            provider="acme",
            requests=3,
            prompt_tokens=9,
            completion_tokens=48,
            reasoning_tokens=9,
            cached_tokens=6,
            usage_nano=30,
        )

    @pytest.mark.parametrize("split_by", ["key_hash", "workspace_id"])
    async def test_may_be_split(self, acme: Tenant, fixture: Bookkeeping, split_by: str) -> None:
        found = await fixture.activity(acme, split_by=split_by)
        assert len(found) == 4
        assert sum(row.requests for row in found) == 5
        assert {"second", "elsewhere"} & {getattr(row, split_by) for row in found}
