"""What the books process does with a group, on an SQLite file."""

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from tests.component.accounting.ledger_reader import HOLDER, LedgerReader, record_for
from tests.support.builders import Tenant
from tests.support.seams.accounting import (
    BookCharges,
    Booked,
    BookFile,
    Books,
    Journal,
    JournalPart,
    NotBooked,
    Release,
    SetAside,
    SqliteDriver,
    Unreadable,
    payload_of,
)
from tollhouse.storage.database import Database, open_database
from tollhouse.storage.tables.accounting import holders


@pytest.fixture
async def database(migrated_sqlite: sa.URL) -> AsyncIterator[Database]:
    opened = open_database(migrated_sqlite)
    yield opened
    await opened.close()


@pytest.fixture
def path(migrated_sqlite: sa.URL) -> Path:
    return Path(str(migrated_sqlite.database))


@pytest.fixture
def books(path: Path, journal: Journal) -> Iterator[Books]:
    driver = SqliteDriver(str(path))
    yield Books(driver, journal.folder, HOLDER)
    driver.close()
    journal.close()


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)


def payloads(tenant: Tenant, *numbers: int) -> list[bytes]:
    return [payload_of(record_for(tenant, number)) for number in numbers]


def ids(tenant: Tenant, *numbers: int) -> list[str]:
    return [record_for(tenant, number).id for number in numbers]


def filled(journal: Journal, tenant: Tenant, *numbers: int) -> JournalPart:
    for payload in payloads(tenant, *numbers):
        journal.append(payload)
    return journal.switch_files()


async def test_each_transaction_says_up_to_which_number_it_books(
    acme: Tenant, books: Books, ledger_reader: LedgerReader
) -> None:
    other_version = payloads(acme, 3)[0].replace(b"[2,", b"[1,", 1)
    bad = payload_of(record_for(acme, 4, account_id="nobody"))
    answer = books.answer(BookCharges([*payloads(acme, 1, 2), other_version, bad], 7))
    aside = [SetAside(other_version, "ValidationError"), SetAside(bad, "IntegrityError")]
    assert answer == Booked(aside)
    assert await ledger_reader.ids() == ids(acme, 1, 2)
    assert [(row.id, row.booked_seq) for row in await ledger_reader.rows(holders)] == [(HOLDER, 10)]
    assert books.answer(BookCharges(payloads(acme, 5))) == Booked([])
    assert [row.booked_seq for row in await ledger_reader.rows(holders)] == [10]


async def test_an_error_that_has_ended_the_transaction_is_told_as_it_is(
    acme: Tenant, books: Books, ledger_reader: LedgerReader, path: Path
) -> None:
    execute(
        path,
        "CREATE TRIGGER ends BEFORE INSERT ON postings "
        "BEGIN SELECT RAISE(ROLLBACK, 'the transaction is over'); END",
    )
    charges = payloads(acme, 1)
    assert books.answer(BookCharges(charges)) == Booked([SetAside(charges[0], "IntegrityError")])
    execute(path, "DROP TRIGGER ends")
    assert books.answer(BookCharges(charges)) == Booked([])
    assert await ledger_reader.ids() == ids(acme, 1)


async def test_what_cannot_be_added_up_together_is_booked_one_by_one(
    acme: Tenant, books: Books, ledger_reader: LedgerReader
) -> None:
    records = [record_for(acme, each, output_tokens=2**62) for each in (1, 2)]
    assert books.answer(BookCharges([*map(payload_of, records)])) == Booked([])
    assert await ledger_reader.ids() == ids(acme, 1, 2)


async def test_a_holder_is_released_or_the_server_hears_of_it(
    books: Books, ledger_reader: LedgerReader, path: Path
) -> None:
    assert books.answer(Release("another")) == Booked([])
    assert [(row.id, row.live) for row in await ledger_reader.rows(holders)] == [("another", False)]
    execute(path, "ALTER TABLE leases RENAME TO hidden")
    assert books.answer(Release("another")) == NotBooked("OperationalError")


async def test_a_group_is_read_from_the_journal_and_not_what_came_after_it(
    acme: Tenant, books: Books, journal: Journal, ledger_reader: LedgerReader
) -> None:
    part = filled(journal, acme, 1, 2)
    journal.switch_files()
    filled(journal, acme, 3)
    assert books.answer(BookFile(part, 1)) == Booked([])
    assert await ledger_reader.ids() == ids(acme, 1, 2)


@pytest.mark.parametrize("change", [b"", b"\0" * 8])
async def test_a_file_that_was_changed_from_outside_is_not_read(
    acme: Tenant, books: Books, journal: Journal, ledger_reader: LedgerReader, change: bytes
) -> None:
    part = filled(journal, acme, 1)
    (journal.folder / part.name).write_bytes(change)
    assert books.answer(BookFile(part, 1)) == Unreadable()
    assert await ledger_reader.ids() == []
