"""Booking in somebody else's transaction: the rows of the charge writers, all or none."""

import asyncio
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from tests.component.accounting.ledger_reader import (
    LedgerReader,
    charge_writer,
    expected_totals,
    record_for,
)
from tests.component.accounting.test_charges import TOO_LARGE, invented
from tests.support.builders import Tenant, charge
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tollhouse.accounting.ledger.service import LedgerService
from tollhouse.accounting.service import AccountingService
from tollhouse.accounting.settlement.settler import ChargeWriter
from tollhouse.accounting.types import GenerationRecord, attempts_json
from tollhouse.storage.database import Database
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    generations,
    key_days,
    key_totals,
    postings,
    usage_days,
)

TABLES = (
    generations,
    postings,
    account_totals,
    account_days,
    key_totals,
    key_days,
    usage_days,
)
NASTY = "\0 \ud800 \u2028 '; DROP TABLE generations; -- 🙂 % :id $1 ?"


async def book(
    database: Database, service: AccountingService, records: Sequence[GenerationRecord]
) -> set[str]:
    """Book generations in a transaction of their own; return the ids of the new ones."""
    async with database.writing() as write:
        return set(await service.book(write, records))


async def stored(database: Database) -> dict[str, list[Any]]:
    """Return all rows of the books as the database's driver gives them."""
    found: dict[str, list[Any]] = {}
    async with database.reading() as read:
        for table in TABLES:
            columns = (sa.column(column.name) for column in table.columns)
            rows = await read.execute(sa.select(*columns).select_from(sa.table(table.name)))
            found[table.name] = sorted(map(repr, rows))
    return found


async def forget(database: Database) -> None:
    """Empty the books."""
    async with database.writing() as write:
        for table in TABLES:
            await write.execute(sa.delete(table))


def varied(records: Sequence[GenerationRecord], dice: random.Random) -> list[GenerationRecord]:
    """Return generations that differ in everything else that is stored, too."""
    return [
        msgspec.structs.replace(
            record,
            provider=dice.choice(["acme", None]),
            model=dice.choice(["acme/large", "acme/small:free"]),
            free_limited=dice.random() < 0.3,
            images=dice.choice([None, 0, 3]),
            latency_ms=dice.choice([None, 12]),
            upstream_id=dice.choice([None, NASTY]),
            **dict.fromkeys(("http_referer", "app_title", "session_id"), said),
            attempts_json=attempts_json([*record.attempts] * dice.randrange(3)),
        )
        for record in records
        for said in [dice.choice([None, NASTY])]
    ]


@pytest.mark.parametrize("seed", range(3))
async def test_the_rows_are_those_of_the_charge_writers(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    writer: ChargeWriter,
    seed: int,
) -> None:
    dice = random.Random(seed)
    records = varied(invented([acme, other], dice), dice)
    half, rest = records[:130], records[100:]
    await writer.write(half)
    await writer.write(rest)
    theirs = await stored(database)
    await forget(database)
    assert await book(database, service, half) == {record.id for record in half}
    assert await book(database, service, rest) == {each.id for each in rest} - {
        each.id for each in half
    }
    assert await stored(database) == theirs
    await writer.write(records)
    assert await book(database, service, records) == set()
    assert await stored(database) == theirs


async def test_the_ledger_finds_them_clean(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    writer: ChargeWriter,
    clock: FakeClock,
) -> None:
    dice = random.Random(7)
    records = varied(invented([acme, other], dice), dice)
    await book(database, service, records[:150])
    await writer.write(records[100:])
    async with database.reading() as read:
        assert not (await LedgerService(clock).verify(read)).differences


async def test_nothing_is_booked_where_the_transaction_fails(
    acme: Tenant, database: Database, service: AccountingService, ledger_reader: LedgerReader
) -> None:
    async def fail() -> None:
        async with database.writing() as write:
            await service.book(write, [record_for(acme)])
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert await ledger_reader.ids() == []
    assert await ledger_reader.rows(postings) == []


@pytest.mark.parametrize("fields", [{"account_id": "no-such-account"}, {"charge": TOO_LARGE}])
async def test_what_no_database_would_take_fails_the_transaction(
    acme: Tenant,
    database: Database,
    service: AccountingService,
    ledger_reader: LedgerReader,
    fields: dict[str, Any],
) -> None:
    with pytest.raises((DBAPIError, OverflowError)):
        await book(database, service, [record_for(acme), record_for(acme, 2, **fields)])
    assert await ledger_reader.ids() == []


async def test_of_nothing_is_nothing(database: Database, service: AccountingService) -> None:
    assert await book(database, service, []) == set()


async def test_admission_reads_the_accounts_again_that_were_charged(
    acme: Tenant, other: Tenant, database: Database, clock: FakeClock, ids: SequentialIds
) -> None:
    told: list[str] = []
    service = AccountingService(clock, ids, invalidate=told.append)
    async with database.writing() as write:
        records = [record_for(acme), record_for(acme, 2), record_for(other, 3)]
        await service.book(write, records)
        assert told == []
    assert sorted(told) == sorted([acme.account.id, other.account.id])
    told.clear()
    await book(database, service, [record_for(acme), record_for(other, 4)])
    assert told == [other.account.id]


async def test_at_once_with_each_other_and_with_the_charge_writer_books_once(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    ledger_reader: LedgerReader,
) -> None:
    records = [
        record_for((acme, other)[number % 2], number, charge=charge(number))
        for number in range(120)
    ]
    dice = random.Random(1)
    writers = [charge_writer(database) for _ in range(2)]
    in_order = sorted(records, key=lambda record: record.id)
    shuffled = [dice.sample(records, 60) for _ in range(8)]
    mine = [partial(book, database, service, some) for some in shuffled]
    theirs = [partial(each.write, in_order) for each in writers]
    new = await asyncio.gather(*(each() for each in mine), *(each() for each in theirs))
    for writer in writers:
        await writer.close()
    of_book = [found for found in new if found]
    assert sum(map(len, of_book)) == len(set().union(*of_book))
    assert await ledger_reader.totals() == expected_totals(records)
