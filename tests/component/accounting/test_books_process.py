"""The real books process: started, asked, killed, and started anew."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.component.accounting.ledger_reader import (
    HOLDER,
    LedgerReader,
    expected_totals,
    record_for,
)
from tests.support.builders import Tenant
from tests.support.child_processes import is_running, own_children
from tests.support.seams.accounting import BooksProcess, ChargesNotBooked, Journal, Settler
from tests.support.seams.accounting import books as module
from tests.support.waiting import take_turns, until
from tollhouse.storage.database import Database


@pytest.fixture
def turn(database: Database) -> asyncio.Lock:
    """What is held while a group is written."""
    return database.write_lock if database.dialect == "sqlite" else asyncio.Lock()


@pytest.fixture
async def books(
    database: Database, turn: asyncio.Lock, tmp_path: Path
) -> AsyncIterator[BooksProcess]:
    made = BooksProcess(database.url, tmp_path / "journal" / HOLDER, turn, HOLDER)
    yield made
    await made.close()


@pytest.fixture
async def settler(journal: Journal, books: BooksProcess) -> AsyncIterator[Settler]:
    made = Settler(journal, books)
    yield made
    await made.close()


async def started(books: BooksProcess) -> int:
    """Start the process; return its id."""
    before = own_children()
    await books.start()
    [process] = own_children() - before
    return process


async def until_gone(process: int) -> None:
    while is_running(process):
        await asyncio.sleep(0.005)


async def test_a_process_that_was_killed_is_started_anew(
    acme: Tenant, settler: Settler, books: BooksProcess, ledger_reader: LedgerReader
) -> None:
    first = await started(books)
    await settler.settle(record_for(acme, 1))
    await settler.settled()
    with capture_logs() as logs:
        os.kill(first, signal.SIGKILL)
        await until_gone(first)
        await settler.settle(record_for(acme, 2))
        await settler.settled()
    assert ("books_process_gone", -9) in [(each["event"], each.get("code")) for each in logs]
    assert await ledger_reader.totals() == expected_totals(
        [record_for(acme, 1), record_for(acme, 2)]
    )


async def test_one_that_was_killed_amid_a_group_books_it_once(
    acme: Tenant,
    settler: Settler,
    books: BooksProcess,
    turn: asyncio.Lock,
    ledger_reader: LedgerReader,
) -> None:
    process = await started(books)
    os.kill(process, signal.SIGSTOP)
    await settler.settle(record_for(acme))
    settling = asyncio.create_task(settler.settled())
    await until(turn.locked)
    await take_turns()
    assert turn.locked()
    assert not settling.done()
    os.kill(process, signal.SIGKILL)
    await settling
    assert await ledger_reader.totals() == expected_totals([record_for(acme)])


async def test_one_that_does_not_answer_is_killed(
    acme: Tenant, books: BooksProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = await started(books)
    os.kill(process, signal.SIGSTOP)
    with monkeypatch.context() as patched:
        patched.setattr(module, "GROUP_SECONDS", 0.05)
        with pytest.raises(ChargesNotBooked, match="TimeoutError"):
            await books.write([record_for(acme)])
    assert not is_running(process)
    assert await books.write([record_for(acme)]) == []


async def test_a_group_whose_file_was_changed_from_outside_is_booked_all_the_same(
    acme: Tenant, settler: Settler, ledger_reader: LedgerReader, tmp_path: Path
) -> None:
    await settler.settle(record_for(acme))
    (tmp_path / "journal" / HOLDER / "a.log").write_bytes(bytes(1024 * 1024))
    with capture_logs() as logs:
        await settler.settled()
    assert "journal_changed_from_outside" in [each["event"] for each in logs]
    assert await ledger_reader.ids() == [record_for(acme).id]


async def test_the_process_ends_when_the_books_are_closed(books: BooksProcess) -> None:
    process = await started(books)
    with capture_logs() as logs:
        await books.close()
    assert not is_running(process)
    assert logs == []
