"""Credits, counters and generations as a caller sees them, on both databases."""

import asyncio
from typing import Any

import pytest

from tests.component.accounting.bookkeeping import Bookkeeping
from tests.component.accounting.ledger_reader import record_for
from tests.support.builders import Tenant, charge
from tests.support.seams.accounting import (
    Attempt,
    Attribution,
    BooksProcess,
    CostState,
    Posting,
    PostingKind,
)
from tollhouse.kernel.errors import Conflict
from tollhouse.storage.database import Database
from tollhouse.storage.notifications import Topic


class TestIdempotencyKey:
    async def test_adds_once_for_requests_at_once(self, acme: Tenant, fixture: Bookkeeping) -> None:
        answers = await asyncio.gather(
            *(fixture.add(acme, PostingKind.PURCHASE, 5, key="k") for _ in range(8))
        )
        assert len({posting.id for posting in answers}) == 1
        assert (await fixture.credits(acme)).purchased_nano == 5


class TestRefunds:
    async def test_at_once_take_no_more_than_there_is(
        self, acme: Tenant, fixture: Bookkeeping
    ) -> None:
        await fixture.add(acme, PostingKind.PURCHASE, 10)
        refunds = [fixture.add(acme, PostingKind.REFUND, 3) for _ in range(8)]
        ended = await asyncio.gather(*refunds, return_exceptions=True)
        assert sum(isinstance(each, Posting) for each in ended) == 3
        assert sum(isinstance(each, Conflict) for each in ended) == 5
        assert (await fixture.credits(acme)).refunded_nano == 9

    async def test_asked_for_again_are_the_same_though_nothing_is_left(
        self, acme: Tenant, fixture: Bookkeeping
    ) -> None:
        await fixture.add(acme, PostingKind.PURCHASE, 10)
        first = await fixture.add(acme, PostingKind.REFUND, 10, key="k")
        assert await fixture.add(acme, PostingKind.REFUND, 10, key="k") == first
        assert (await fixture.credits(acme)).refunded_nano == 10


class TestStale:
    @pytest.fixture
    def told(self, database: Database) -> list[str | None]:
        told: list[str | None] = []
        database.notifications.subscribe(Topic.ACCOUNT, told.append)
        return told

    async def test_is_told_of_each_change_and_of_nothing_else(
        self, acme: Tenant, fixture: Bookkeeping, told: list[str | None]
    ) -> None:
        await fixture.add(acme, PostingKind.PURCHASE, 5, key="k")
        await fixture.add(acme, PostingKind.PURCHASE, 5, key="k")
        with pytest.raises(Conflict):
            await fixture.add(acme, PostingKind.PURCHASE, 6, key="k")
        assert told == [acme.account.id]
        for kind, nano in (
            (PostingKind.GRANT, 5),
            (PostingKind.REFUND, 5),
            (PostingKind.ADJUSTMENT, -5),
        ):
            told.clear()
            await fixture.add(acme, kind, nano)
            assert told == [acme.account.id]


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
        self, acme: Tenant, fixture: Bookkeeping, writer: BooksProcess, facts: dict[str, Any]
    ) -> None:
        booked = record_for(acme, **facts)
        await writer.write([booked])
        found = await fixture.generation(acme, booked.id)
        assert found == booked
