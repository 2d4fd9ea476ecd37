"""The accounting slice on a real database."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.component.accounting.bookkeeping import Bookkeeping
from tests.component.accounting.ledger_reader import HOLDER, LedgerReader, charge_writer
from tests.support.builders import Tenant, add_tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import (
    AccountingService,
    BooksProcess,
    Journal,
    LedgerService,
    Settler,
)
from tollhouse.storage.database import Database


@pytest.fixture
def service(clock: FakeClock, ids: SequentialIds) -> AccountingService:
    return AccountingService(clock, ids)


@pytest.fixture
async def acme(database: Database, clock: FakeClock, ids: SequentialIds) -> Tenant:
    """An account with its default workspace and an API key."""
    return await add_tenant(database, clock=clock, ids=ids)


@pytest.fixture
async def other(database: Database, clock: FakeClock, ids: SequentialIds) -> Tenant:
    """Another account."""
    return await add_tenant(database, clock=clock, ids=ids, name="Other")


@pytest.fixture
async def writer(database: Database) -> AsyncIterator[BooksProcess]:
    """The writer that goes with the database."""
    made = charge_writer(database)
    yield made
    await made.close()


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal", HOLDER)


@pytest.fixture
async def settler(journal: Journal, writer: BooksProcess) -> AsyncIterator[Settler]:
    made = Settler(journal, writer)
    yield made
    await made.close()


@pytest.fixture
def ledger_reader(database: Database) -> LedgerReader:
    return LedgerReader(database)


@pytest.fixture
def ledger(clock: FakeClock) -> LedgerService:
    return LedgerService(clock)


@pytest.fixture
def fixture(
    database: Database,
    service: AccountingService,
    ledger: LedgerService,
    writer: BooksProcess,
    clock: FakeClock,
) -> Bookkeeping:
    return Bookkeeping(database, service, ledger, writer, clock)
