"""What SQLite does by itself to the transaction of a group."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.component.accounting.ledger_reader import LedgerReader, record_for
from tests.support.builders import Tenant
from tests.support.seams.accounting import SqliteChargeWriter, Unbookable
from tollhouse.storage.database import Database, open_database

END_THE_TRANSACTION = """
    CREATE TRIGGER ends BEFORE INSERT ON postings
    BEGIN SELECT RAISE(ROLLBACK, 'the transaction is over'); END"""


@pytest.fixture
async def database(migrated_sqlite: sa.URL) -> AsyncIterator[Database]:
    opened = open_database(migrated_sqlite)
    yield opened
    await opened.close()


@pytest.fixture
def path(migrated_sqlite: sa.URL) -> Path:
    return Path(str(migrated_sqlite.database))


@pytest.fixture
def writer(path: Path) -> Iterator[SqliteChargeWriter]:
    made = SqliteChargeWriter(str(path), "the process")
    yield made
    made.close()


def execute(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.close()


async def test_an_error_that_has_ended_the_transaction_is_told_as_it_is(
    acme: Tenant, writer: SqliteChargeWriter, ledger_reader: LedgerReader, path: Path
) -> None:
    execute(path, END_THE_TRANSACTION)
    with pytest.raises(Unbookable, match="the transaction is over"):
        writer.write([record_for(acme)])
    execute(path, "DROP TRIGGER ends")
    writer.write([record_for(acme)])
    assert await ledger_reader.ids() == [record_for(acme).id]
