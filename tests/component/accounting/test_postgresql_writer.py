"""A connection that is lost between groups, or in the middle of one."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeAlias

import asyncpg
import pytest
import sqlalchemy as sa

from tests.component.accounting.ledger_reader import (
    HOLDER,
    InProcessWriter,
    LedgerReader,
    expected_totals,
    record_for,
)
from tests.support.builders import Tenant
from tests.support.seams.accounting import ChargesNotBooked, PostgresqlDriver
from tollhouse.storage import postgresql
from tollhouse.storage.connections import dsn
from tollhouse.storage.database import Database, open_database

# Subscripted for the type checker alone: the class takes no parameter at run time.
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

pytestmark = pytest.mark.postgresql

END_WRITERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'the writer'"""


@pytest.fixture
async def database(migrated_postgresql: sa.URL) -> AsyncIterator[Database]:
    opened = open_database(migrated_postgresql)
    yield opened
    await opened.close()


@pytest.fixture
async def writer(migrated_postgresql: sa.URL) -> AsyncIterator[InProcessWriter]:
    named = migrated_postgresql.update_query_dict({"application_name": "the writer"})
    made = InProcessWriter(PostgresqlDriver(dsn(named)), HOLDER)
    yield made
    await made.close()


@pytest.fixture
async def aside(migrated_postgresql: sa.URL) -> AsyncIterator[Connection]:
    """A connection of the test's own."""
    connection = await postgresql.connect(migrated_postgresql)
    yield connection
    await connection.close()


async def test_a_connection_that_is_lost_between_groups_is_opened_again(
    acme: Tenant, writer: InProcessWriter, aside: Connection, ledger_reader: LedgerReader
) -> None:
    records = [record_for(acme, number) for number in range(3)]
    for record in records:
        await writer.write([record])
        assert len(await aside.fetch(END_WRITERS)) == 1
    assert await ledger_reader.totals() == expected_totals(records)


async def test_a_connection_that_is_lost_in_the_middle_of_a_group_is_opened_again(
    acme: Tenant, writer: InProcessWriter, aside: Connection, ledger_reader: LedgerReader
) -> None:
    await writer.write([record_for(acme, 1)])
    async with aside.transaction():
        await aside.execute("LOCK TABLE key_days IN EXCLUSIVE MODE")
        writing = asyncio.create_task(writer.write([record_for(acme, 2)]))
        waits = (
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'key_days'::regclass"
        )
        while not await aside.fetchval(waits):
            await asyncio.sleep(0.01)
        assert len(await aside.fetch(END_WRITERS)) == 1
    await writing
    assert await ledger_reader.totals() == expected_totals(
        [record_for(acme, 1), record_for(acme, 2)]
    )


async def test_a_server_that_cannot_be_reached_fails_the_group(acme: Tenant) -> None:
    nowhere = InProcessWriter(PostgresqlDriver("postgresql://u@127.0.0.1:1/d"), HOLDER)
    with pytest.raises(ChargesNotBooked, match="DatabaseUnreachable"):
        await nowhere.write([record_for(acme)])
    await nowhere.close()
