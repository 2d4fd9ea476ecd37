"""Books that the release before has written are right after the migration."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from tests.component.storage.old_migrations import migrations_before
from tests.support.clock import FakeClock
from tollhouse.accounting.ledger.service import LedgerService
from tollhouse.accounting.ledger.types import LedgerReport
from tollhouse.storage.database import open_database
from tollhouse.storage.migrator import upgrade


def test_books_of_the_release_before_are_right_after_the_migration(
    new_empty: Callable[[], sa.URL], tmp_path: Path
) -> None:
    url = new_empty()
    upgrade(url, migrations_before("0004", tmp_path))
    asyncio.run(_statements(url, OF_THE_RELEASE_BEFORE))
    upgrade(url)
    found = asyncio.run(_verified(url))
    assert found.differences == []
    assert (found.postings, found.generations) == (4, 4)
    assert found.balances == {
        "customers": 1_050 - 700 - 5,
        "purchases": -1_000,
        "grants": -50,
        "revenue": 705,
    }


def _old_generation(number: int, facts: str) -> str:
    return (
        "INSERT INTO generations (id, account_id, workspace_id, key_hash, api_type, is_byok, "  # noqa: S608 - ours
        "streamed, cancelled, cost_state, input_tokens, cache_read_tokens, cache_write_tokens, "
        "cache_write_1h_tokens, output_tokens, reasoning_tokens, attempts, model, provider, "
        "cost_nano, provider_cost_nano, created_at) "
        f"VALUES ('g{number}', 'a', 'w', 'k', 'completions', {facts.partition(';')[0]}, "
        f"FALSE, FALSE, 'exact', 1, 2, 4, 8, 16, 3, '[]', {facts.partition(';')[2]})"
    )


_MONDAY, _TUESDAY = 1_773_014_400_000, 1_773_100_800_000
OF_THE_RELEASE_BEFORE = [
    "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)",
    _old_generation(1, f"FALSE; 'acme/large', 'acme', 700, 700, {_MONDAY}"),
    _old_generation(2, f"FALSE; 'acme/small:free', NULL, 0, NULL, {_TUESDAY - 1}"),
    _old_generation(3, f"TRUE; 'acme/large', 'acme', 5, 90, {_TUESDAY}"),
    _old_generation(4, f"FALSE; 'acme/freezer', 'acme', 0, 0, {_TUESDAY}"),
    *(
        "INSERT INTO postings (id, account_id, kind, source, destination, amount_nano, "  # noqa: S608 - ours
        f"generation_id, created_at) VALUES ({values})"
        for values in (
            "'p1', 'a', 'purchase', 'purchases', 'customer:a', 1000, NULL, 1",
            "'p2', 'a', 'grant', 'grants', 'customer:a', 50, NULL, 2",
            f"'usage-g1', 'a', 'usage', 'customer:a', 'revenue', 700, 'g1', {_MONDAY}",
            f"'usage-g3', 'a', 'usage', 'customer:a', 'revenue', 5, 'g3', {_TUESDAY}",
        )
    ),
    (
        "INSERT INTO account_totals (account_id, purchased_nano, granted_nano, used_nano) "
        "VALUES ('a', 1000, 50, 705)"
    ),
    (
        "INSERT INTO key_totals (key_hash, usage_nano, byok_usage_nano, last_used_at) "  # noqa: S608 - ours
        f"VALUES ('k', 700, 90, {_TUESDAY})"
    ),
    (
        "INSERT INTO key_days (key_hash, day, usage_nano, byok_usage_nano, requests) "
        "VALUES ('k', '2026-03-09', 700, 0, 2), ('k', '2026-03-10', 0, 90, 2)"
    ),
]


async def _statements(url: sa.URL, statements: list[str]) -> None:
    database = open_database(url)
    async with database.writing() as write:
        for statement in statements:
            await write.execute(sa.text(statement.replace(":", "\\:")))
    await database.close()


async def _verified(url: sa.URL) -> LedgerReport:
    database = open_database(url)
    async with database.reading() as read:
        found = await LedgerService(FakeClock()).verify(read)
    await database.close()
    return found
