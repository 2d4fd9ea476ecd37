"""Settling on both databases: grouped, once, all or nothing, whatever happens meanwhile."""

import asyncio
import random
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs
from structlog.typing import EventDict

from tests.component.accounting.ledger_reader import (
    LedgerReader,
    charge_writer,
    expected_totals,
    record_for,
)
from tests.support.builders import Tenant, charge
from tests.support.clock import START, FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import (
    AccountingService,
    BooksProcess,
    Charge,
    CostState,
    GenerationRecord,
    Journal,
    LedgerService,
    PostingKind,
    RecoveredCharges,
    Recovery,
    Settler,
    Usage,
    attempts_json,
)
from tests.support.waiting import take_turns, until
from tollhouse.storage.database import Database
from tollhouse.storage.notifications import Topic
from tollhouse.storage.tables.accounting import (
    account_days,
    account_totals,
    generations,
    key_days,
    key_totals,
    owner_days,
    postings,
    usage_days,
)

TOO_LARGE = charge(1, usage=Usage(input_tokens=2**63))
TOO_LARGE_TOGETHER = charge(1, usage=Usage(input_tokens=2**62, cache_read_tokens=2**62))


def failures(logs: list[EventDict]) -> list[EventDict]:
    """Return what was logged of groups that could not be booked."""
    return [each for each in logs if each["event"] == "charges_not_booked_yet"]


async def settle(settler: Settler, *records: GenerationRecord) -> None:
    """Settle charges at once; return when they are in the books."""
    await asyncio.gather(*(settler.settle(record) for record in records))
    await settler.settled()


class TestSettling:
    async def test_by_two_processes_at_once_books_once(
        self, acme: Tenant, database: Database, ledger_reader: LedgerReader
    ) -> None:
        records = [record_for(acme, number, cost_nano=number) for number in range(40)]
        writers = [charge_writer(database) for _ in range(3)]
        await asyncio.gather(*(writer.write(records) for writer in writers))
        for writer in writers:
            await writer.close()
        assert await ledger_reader.totals() == expected_totals(records)

    async def test_counts_to_the_utc_day_in_whose_milliseconds_a_request_came(
        self, acme: Tenant, settler: Settler, ledger_reader: LedgerReader
    ) -> None:
        midnight = START.replace(hour=0, minute=0, second=0, microsecond=0)
        times = [midnight - timedelta(milliseconds=1), midnight]
        records = [record_for(acme, at, created_at=time) for at, time in enumerate(times)]
        await settle(settler, *records)
        days = {day for _, day in (await ledger_reader.totals()).days}
        assert days == {time.date().isoformat() for time in times}


class TestFailedWrite:
    async def test_books_nothing_and_is_tried_again(
        self,
        acme: Tenant,
        database: Database,
        settler: Settler,
        journal: Journal,
        ledger_reader: LedgerReader,
    ) -> None:
        records = [record_for(acme, number) for number in range(5)]
        async with database.writing() as write:
            await write.execute(sa.text("ALTER TABLE key_days RENAME TO hidden"))
        with capture_logs() as logs:
            settling = asyncio.create_task(settle(settler, *records))
            await until(lambda: len(failures(logs)) > 1)
        assert not settling.done()
        assert await ledger_reader.ids() == []
        assert len(journal.read_unbooked().payloads) == 5
        async with database.writing() as write:
            await write.execute(sa.text("ALTER TABLE hidden RENAME TO key_days"))
        await settling
        assert await ledger_reader.totals() == expected_totals(records)
        assert journal.read_unbooked().payloads == []

    @pytest.mark.parametrize(
        "spoilt",
        [
            {"account_id": "no-such-account"},
            {"charge": TOO_LARGE},
            {"charge": TOO_LARGE_TOGETHER},
            {"model": None},
        ],
        ids=["foreign account", "number out of range", "sum out of range", "something missing"],
    )
    async def test_for_what_one_charge_holds_sets_that_one_aside(
        self,
        acme: Tenant,
        settler: Settler,
        ledger_reader: LedgerReader,
        spoilt: dict[str, Any],
        tmp_path: Path,
    ) -> None:
        records = [record_for(acme, number) for number in range(4)]
        bad = record_for(acme, 9, **spoilt)
        await settle(settler, *records[:2], bad, *records[2:])
        assert await ledger_reader.totals() == expected_totals(records)
        assert bad.id in (tmp_path / "journal" / "unbookable.log").read_text()


async def test_what_a_kill_left_in_the_journal_is_booked_once(
    acme: Tenant,
    writer: BooksProcess,
    journal: Journal,
    ledger_reader: LedgerReader,
    tmp_path: Path,
) -> None:
    """The kill came after the database's commit and before the journal forgot the group."""
    records = [record_for(acme, number, cost_nano=number) for number in range(20)]
    for record in records:
        journal.append(msgspec.json.encode(record))
    await writer.write(records[:12])
    journal.close()
    assert await Recovery(tmp_path / "journal", writer).recover() == RecoveredCharges(charges=20)
    assert await ledger_reader.totals() == expected_totals(records)
    assert journal.read_unbooked().payloads == []


async def test_a_charge_waits_for_a_transaction_of_the_control_plane_however_long_it_takes(
    acme: Tenant,
    database: Database,
    service: AccountingService,
    settler: Settler,
    ledger_reader: LedgerReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tollhouse.accounting.settlement.sqlite.BUSY_TIMEOUT_MS", 1)
    async with database.writing() as write:
        await service.add_credits(write, acme.account.id, PostingKind.GRANT, 10)
        with capture_logs() as logs:
            settling = asyncio.create_task(settle(settler, record_for(acme, cost_nano=3)))
            await take_turns()
        if database.dialect == "sqlite":
            assert not settling.done()
    await settling
    assert failures(logs) == []
    assert (await ledger_reader.totals()).accounts == {acme.account.id: (0, 10, 3)}


def invented(tenants: Sequence[Tenant], dice: random.Random) -> list[GenerationRecord]:
    """Return generations over accounts, keys and days, in random order, with duplicates."""
    records = [
        record_for(
            tenant := dice.choice(tenants),
            number,
            key_hash=dice.choice([tenant.key.hash, f"{tenant.account.id}-second"]),
            payer_hash=dice.choice([None, f"{tenant.account.id}-payer"]),
            is_byok=dice.random() < 0.2,
            charge=invented_charge(dice),
            created_at=START + timedelta(minutes=dice.randrange(-5_000, 5_000)),
        )
        for number in range(200)
    ]
    duplicates = dice.choices(records, k=60)
    everything = records + duplicates
    dice.shuffle(everything)
    return everything


def invented_charge(dice: random.Random) -> Charge:
    if dice.random() < 0.1:
        return charge(0, state=CostState.UNKNOWN, provider_cost_nano=None)
    cost = dice.choice([0, 1, dice.randrange(10**6), dice.randrange(10**12)])
    return charge(cost, provider_cost_nano=dice.choice([cost, cost + 1, dice.randrange(10**6)]))


@pytest.mark.parametrize("seed", range(2))
async def test_totals_are_the_sums_of_the_rows(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    writer: BooksProcess,
    ledger_reader: LedgerReader,
    seed: int,
) -> None:
    dice = random.Random(seed)
    records = invented([acme, other], dice)
    credited = {acme.account.id: 0, other.account.id: 0}
    rest = list(records)
    while rest:
        size = dice.choice([1, 2, 7, 40])
        group, rest = rest[:size], rest[size:]
        await writer.write(group)
        tenant, amount = dice.choice([acme, other]), dice.randrange(1, 10**9)
        credited[tenant.account.id] += amount
        async with database.writing() as write:
            kind = dice.choice([PostingKind.PURCHASE, PostingKind.GRANT])
            await service.add_credits(write, tenant.account.id, kind, amount)

    stored = await ledger_reader.totals()
    assert stored == await ledger_reader.totals_of_rows()

    model = expected_totals(records)
    assert (stored.keys, stored.days) == (model.keys, model.days)
    for account, (purchased, granted, used) in stored.accounts.items():
        assert purchased + granted == credited[account]
        assert used == model.accounts[account][2]
        assert (await ledger_reader.balances())[f"customer:{account}"] == credited[account] - used
    assert sum((await ledger_reader.balances()).values()) == 0


async def test_settling_and_managing_at_once_do_not_get_in_each_others_way(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    settler: Settler,
    ledger_reader: LedgerReader,
) -> None:
    async def settle_some(start: int) -> None:
        for number in range(start, start + 15):
            await settle(settler, record_for(acme, number, cost_nano=3))

    async def credit(tenant: Tenant) -> None:
        for _ in range(15):
            async with database.writing() as write:
                await service.credits(write, tenant.account.id)
                await asyncio.sleep(0)
                await service.add_credits(write, tenant.account.id, PostingKind.GRANT, 10)

    async def look() -> None:
        for _ in range(15):
            async with database.reading() as read:
                await service.key_status(read, acme.key.hash)

    settling = [settle_some(start) for start in range(0, 150, 15)]
    await asyncio.gather(*settling, credit(acme), credit(acme), credit(other), look(), look())
    totals = await ledger_reader.totals()
    assert totals.accounts[acme.account.id] == (0, 300, 450)
    assert totals.accounts[other.account.id] == (0, 150, 0)
    assert totals == await ledger_reader.totals_of_rows()


# Booking in somebody else's transaction: the rows of the charge writers, all or none


TABLES = (
    *(generations, postings, account_totals, account_days),
    *(key_totals, key_days, usage_days, owner_days),
)
SAID = ("http_referer", "app_title", "user_agent", "external_user", "session_id")
"""What a client says of itself, in any text."""
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
            **dict.fromkeys(SAID, said),
            attempts_json=attempts_json([*record.attempts] * dice.randrange(3)),
        )
        for record in records
        for said in [dice.choice([None, NASTY])]
    ]


@pytest.mark.parametrize("seed", range(2))
async def test_the_rows_are_those_of_the_charge_writers(
    acme: Tenant,
    other: Tenant,
    database: Database,
    service: AccountingService,
    writer: BooksProcess,
    clock: FakeClock,
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
    async with database.reading() as read:
        assert not (await LedgerService(clock).verify(read)).differences


async def test_admission_reads_the_accounts_again_that_were_charged(
    acme: Tenant, other: Tenant, database: Database, clock: FakeClock, ids: SequentialIds
) -> None:
    told: list[str | None] = []
    database.notifications.subscribe(Topic.ACCOUNT_HINT, told.append)
    service = AccountingService(clock, ids)
    async with database.writing() as write:
        records = [record_for(acme), record_for(acme, 2), record_for(other, 3)]
        await service.book(write, records)
        assert told == []
    assert {*told} == {acme.account.id, other.account.id}
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
