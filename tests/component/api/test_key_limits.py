"""The limits of keys: what can be set through `/keys`, and what `/keys` and `/key` then show."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from tests.component.api.conftest import Acme, Client, message
from tests.support.builders import generation_record
from tests.support.clock import START, FakeClock
from tests.support.seams.accounting import Charge, CostState, Usage
from tollhouse.kernel.money import MAX_NANO
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import limits

NANO = 1_000_000_000
EXACT = {
    "0": 0,
    "-0.0": 0,
    "0.000000001": 1,
    "25": 25 * NANO,
    "25.00000000000000000": 25 * NANO,
    "2.5e1": 25 * NANO,
    # As a float it would be 4000000000.1234567
    "4000000000.123456789": 4_000_000_000_123_456_789,
    '"4000000000.123456789"': 4_000_000_000_123_456_789,
    str(MAX_NANO // NANO): MAX_NANO // NANO * NANO,
    "null": None,
}


@pytest.fixture
def path(acme: Acme) -> str:
    """Where the API key of Acme is managed."""
    return f"/keys/{acme.api_key.key.hash}"


@pytest.fixture
def spend(acme: Acme, book: Callable[..., Any]) -> Callable[..., Any]:
    """Books replies on Acme's API key."""
    numbers = iter(range(1_000))

    async def write(credits_: int, at: datetime = START, *, byok: bool = False) -> None:
        nano = credits_ * NANO
        await book(
            generation_record(
                id=f"gen-{next(numbers)}",
                account_id=acme.account_id,
                workspace_id=acme.workspace_id,
                key_hash=acme.api_key.key.hash,
                created_at=at,
                is_byok=byok,
                charge=Charge(CostState.EXACT, Usage(), 0 if byok else nano, nano, None),
            )
        )

    return write


async def data_of(client: Client, path: str) -> Any:
    reply = await client.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()["data"]


async def change(acme: Acme, path: str, **fields: Any) -> dict[str, Any]:
    reply = await acme.management.patch(path, json=fields)
    assert reply.status_code == 200, reply.text
    return limits_in(reply.json()["data"])


def limits_in(data: dict[str, Any]) -> dict[str, Any]:
    names = ("limit", "limit_reset", "limit_remaining", "include_byok_in_limit")
    return {name: data[name] for name in names}


def shown(
    limit: float | None, reset: str | None, remaining: float | None, *, byok: bool = False
) -> dict[str, Any]:
    return {
        "limit": limit,
        "limit_reset": reset,
        "limit_remaining": remaining,
        "include_byok_in_limit": byok,
    }


class TestSetting:
    async def test_it_is_kept_exactly(
        self, acme: Acme, path: str, database: Database, subtests: pytest.Subtests
    ) -> None:
        for sent, nano in EXACT.items():
            with subtests.test(limit=sent):
                body = f'{{"name": "ci", "limit": {sent}, "limit_reset": "daily"}}'.encode()
                made = await acme.management.post("/keys", content=body)
                assert made.status_code == 201, made.text
                changed = await acme.management.patch(
                    path, content=b'{"limit": %s}' % sent.encode()
                )
                assert changed.status_code == 200, changed.text
                for key_hash in (made.json()["data"]["hash"], acme.api_key.key.hash):
                    assert await stored(database, key_hash) == nano

    async def test_two_changes_at_once_are_both_kept(self, acme: Acme, path: str) -> None:
        for limit in range(1, 6):
            await change(acme, path, limit=0, limit_reset=None)

            await asyncio.gather(
                change(acme, path, limit=limit), change(acme, path, limit_reset="daily")
            )

            found = await data_of(acme.management, path)
            assert limits_in(found) == shown(limit, "daily", limit)
            assert found["updated_at"] is not None

    async def test_a_deleted_key_keeps_its_row(
        self, acme: Acme, path: str, database: Database
    ) -> None:
        await change(acme, path, limit=1)

        await acme.management.delete(path)

        assert await stored(database, acme.api_key.key.hash) == NANO


class TestWhoHearsOfIt:
    async def test_the_account_is_stale_once_a_limit_changed(
        self, acme: Acme, path: str, stale: list[str | None]
    ) -> None:
        await change(acme, path, limit=1)
        assert stale == [acme.account_id]
        await change(acme, path, limit=None)
        await acme.management.post("/keys", json={"name": "ci", "limit": 1})
        assert stale == [acme.account_id] * 3

    async def test_nothing_else_about_a_key_does(
        self, acme: Acme, path: str, stale: list[str | None]
    ) -> None:
        await change(acme, path, limit=1, limit_reset="daily")
        stale.clear()

        await acme.management.post("/keys", json={"name": "ci", "limit": None})
        await change(acme, path, name="renamed", disabled=True)
        await change(acme, path, limit=1, limit_reset="daily", disabled=False)
        await acme.management.delete(path)

        assert stale == []

    async def test_a_refused_change_does_not(
        self, acme: Acme, path: str, stale: list[str | None]
    ) -> None:
        reply = await acme.management.patch(path, json={"limit": 1, "workspace_id": "nowhere"})

        message(reply, 400)
        assert stale == []
        assert (await data_of(acme.management, path))["limit"] is None


class TestShowing:
    async def test_what_is_left_of_the_current_window(
        self, acme: Acme, path: str, spend: Callable[..., Any]
    ) -> None:
        await spend(1)
        await spend(2, START - timedelta(days=3))  # on Monday
        await spend(4, START.replace(day=1))
        await spend(8, datetime(2025, 12, 31, 23, 59, tzinfo=UTC))

        own: dict[str, Any] = {}
        for reset, remaining in [
            ("daily", 99.0),
            ("weekly", 97.0),
            ("monthly", 93.0),
            (None, 85.0),
        ]:
            assert await change(acme, path, limit=100, limit_reset=reset) == (
                shown(100.0, reset, remaining)
            )
            own = await data_of(acme.api, "/key")
            assert limits_in(own) == shown(100.0, reset, remaining)
        for managed in (own, await data_of(acme.management, path)):
            used = [managed[f"usage{each}"] for each in ("_daily", "_weekly", "_monthly", "")]
            assert used == [1.0, 3.0, 7.0, 15.0]

    async def test_a_new_window_has_all_of_it(
        self, acme: Acme, path: str, spend: Callable[..., Any], clock: FakeClock
    ) -> None:
        await change(acme, path, limit=10, limit_reset="daily")
        await spend(10)
        assert (await data_of(acme.api, "/key"))["limit_remaining"] == 0.0

        clock.advance(13.5 * 3600 - 0.001)
        assert (await data_of(acme.api, "/key"))["limit_remaining"] == 0.0
        clock.advance(0.001)
        data = await data_of(acme.api, "/key")
        assert data["limit_remaining"] == 10.0
        assert data["effective_budget"]["resets_at"] == "2026-03-14T00:00:00.000Z"

    async def test_own_provider_keys_count_where_they_shall(
        self, acme: Acme, path: str, spend: Callable[..., Any]
    ) -> None:
        await spend(1)
        await spend(2, byok=True)

        assert await change(acme, path, limit=10) == shown(10.0, None, 9.0)
        changed = await change(acme, path, include_byok_in_limit=True)
        assert changed == shown(10.0, None, 7.0, byok=True)


async def stored(database: Database, key_hash: str) -> int | None:
    query = sa.select(limits.c.limit_nano).where(
        limits.c.scope == "key", limits.c.owner_id == key_hash
    )
    async with database.reading() as read:
        return (await read.execute(query)).scalar_one()
