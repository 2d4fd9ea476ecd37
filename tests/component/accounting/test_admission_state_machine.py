"""The shipped admission controller, journal and settler on a real database, against the model.

A kill leaves the journal as it was, sometimes with half a record at its end; the next start books
what is whole. Books and counters must add up after every life.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Any, Protocol

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.component.accounting.ledger_reader import LedgerReader, charge_writer
from tests.support.builders import add_tenant, reservation
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.accounting import (
    AccountingService,
    AdmissionController,
    Admitted,
    DatabaseAccountLoader,
    Journal,
    KeyLimit,
    PostingKind,
    Recovery,
    Settler,
)
from tests.unit.accounting.admission.admission_model import (
    KEYS,
    PAYERS,
    AdmissionModel,
    EndedRequest,
    ModelRequest,
)
from tests.unit.accounting.admission.admission_state_machine import (
    AdmissionStateMachine,
    SystemUnderTest,
)
from tests.unit.accounting.admission.test_admission_state_machine import (
    counters_of,
    preview_request,
    reason_of,
    record_of,
    request_of,
)
from tollhouse.kernel.errors import PaymentRequired, RateLimited
from tollhouse.storage.database import open_database
from tollhouse.storage.failures import sqlite_url
from tollhouse.storage.notifications import Topic

STEPS = 50
EXAMPLES_IN_TEST = 8
EXAMPLES_IN_SOAK = {"sqlite": 40, "postgresql": 20}
"""Ten thousand steps on SQLite."""
HALF_A_RECORD = b'0a1b2c3d {"id":"gen-'


class OnDisk:
    """The gateway's money without its HTTP, on a database and a journal of its own."""

    def __init__(self, model: AdmissionModel, databases: Databases, folder: Path) -> None:
        self.model = model
        self.databases = databases
        self.url = url = databases.take()
        self.folder = folder
        self.clock = FakeClock()
        self.ids = SequentialIds()
        self.database = open_database(url)
        self.loop = asyncio.new_event_loop()
        self.kills = 0
        self.tenant = self._run(add_tenant(self.database, clock=self.clock, ids=self.ids))
        self.accounting = AccountingService(self.clock, self.ids)
        for topic in (Topic.ACCOUNT, Topic.ACCOUNT_HINT):
            self.database.notifications.subscribe(topic, self._stale)
        self._run(self._start())

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def _stale(self, account_id: str | None) -> None:
        self.controller.invalidate(account_id)

    async def _start(self) -> None:
        holder = self.ids.uuid()
        self.journal = Journal(self.folder, holder)
        self.writer = charge_writer(self.database, holder)
        self.settler = Settler(self.journal, self.writer)
        await Recovery(self.folder, self.writer).recover()
        loader = DatabaseAccountLoader(self.database, self.clock, holder)
        self.controller = AdmissionController(
            self.model.rules, loader, self.clock, reserve_capacity=self.settler.reserve_capacity
        )
        self.settler.observer = self.controller

    def admit(self, id_: str, asked: ModelRequest) -> str | int | None:
        request = request_of(self.model, id_, asked)
        request.account_id = self.tenant.account.id
        try:
            admitted: Admitted = self._run(self.controller.admit(request))
        except (PaymentRequired, RateLimited) as error:
            return reason_of(error)
        return admitted.spendable_nano

    def settle(self, ended: EndedRequest, arrived: datetime) -> None:
        self._run(self.settler.settle(record_of(ended, arrived, self.tenant.account.id)))

    def release(self, id_: str) -> None:
        self.controller.release(id_)

    def book(self) -> None:
        self._run(self.settler.settled())

    def kill(self) -> None:
        self._run(self._die())
        self.kills += 1
        if self.kills % 2:
            _tear(self.journal.folder)
        self._run(self._start())

    async def _die(self) -> None:
        """Stop without a word: what is pending stays in the journal."""
        booking = [task for task in asyncio.all_tasks() if task.get_name() == "settler"]
        for task in booking:
            task.cancel()
        await asyncio.gather(*booking, return_exceptions=True)
        self.journal.close()
        await self.writer.close()

    def credit(self, amount: int, *, paid: bool) -> None:
        async def add() -> None:
            kind = PostingKind.PURCHASE if paid else PostingKind.GRANT
            async with self.database.writing() as write:
                await self.accounting.add_credits(write, self.tenant.account.id, kind, amount)

        self._run(add())

    def limit(self, key: str, limit: KeyLimit) -> None:
        async def change() -> None:
            async with self.database.writing() as write:
                await self.accounting.set_key_limit(write, self.tenant.account.id, key, limit)

        self._run(change())

    def reserve(self, batch: str, key: str, amount: int) -> str | None:
        async def reserve() -> None:
            async with self.database.writing() as write:
                place = batch, self.tenant.account.id, key, amount, self.clock.now()
                wanted = reservation(*place, payer_hash=PAYERS.get(key))
                await self.accounting.reserve(write, wanted)

        try:
            self._run(reserve())
        except PaymentRequired as error:
            return reason_of(error)
        return None

    def charge(self, batch: str, ended: EndedRequest, arrived: datetime, by: int) -> None:
        record = record_of(ended, arrived, self.tenant.account.id)

        async def charge() -> None:
            async with self.database.writing() as write:
                assert await self.accounting.book(write, [record]) == {record.id}
                await self.accounting.lower_reservation(write, batch, by)

        self._run(charge())

    def end(self, batch: str) -> None:
        async def end() -> None:
            async with self.database.writing() as write:
                await self.accounting.end_reservation(write, batch)

        self._run(end())

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.counters()

    def counters(self) -> tuple[int, ...]:
        request = preview_request(self.model, KEYS[0])
        request.account_id = self.tenant.account.id
        seen = self._run(self.controller.preview(request))
        return counters_of(seen, self.model, self.controller.holds)

    def close(self) -> None:
        try:
            self._run(self._audit())
        finally:
            self._run(self.database.close())
            self.loop.close()
            self.databases.give_back(self.url)

    async def _audit(self) -> None:
        await self.settler.settled()
        ledger_reader = LedgerReader(self.database)
        assert await ledger_reader.ids() == sorted(each.id for each in self.model.ended)
        assert await ledger_reader.totals() == await ledger_reader.totals_of_rows()
        balances = await ledger_reader.balances()
        assert sum(balances.values()) == 0, "debits and credits"
        held = balances.get(f"customer:{self.tenant.account.id}", 0)
        assert held == self.model.balance
        await self.settler.close()


def _tear(folder: Path) -> None:
    """Leave half a record behind the last whole one, as a kill in the middle of a write does."""
    file = folder / "a.log"
    if not file.exists():
        return  # nothing was written yet
    data = file.read_bytes()
    used = len(data.rstrip(b"\0"))
    with file.open("r+b") as journal:
        journal.seek(used)
        journal.write(HALF_A_RECORD)


class Databases(Protocol):
    """Migrated databases without rows."""

    def take(self) -> sa.URL:
        """Return one."""
        ...

    def give_back(self, url: sa.URL) -> None:
        """Take it back."""
        ...


class SqliteFiles:
    """Copies of a template."""

    def __init__(self, template: Path, folder: Path) -> None:
        self._template = template
        self._folder = folder
        self._numbers = count()

    def take(self) -> sa.URL:
        path = self._folder / f"money-{next(self._numbers)}.db"
        return sqlite_url(shutil.copyfile(self._template, path))

    def give_back(self, url: sa.URL) -> None:
        for file in self._folder.glob(f"{Path(str(url.database)).name}*"):
            file.unlink()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def databases(request: pytest.FixtureRequest, sqlite_template: Path, tmp_path: Path) -> Databases:
    """Where each life has a database of its own."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql")
    return SqliteFiles(sqlite_template, tmp_path)


def machine_on(databases: Databases, tmp_path: Path) -> type[AdmissionStateMachine]:
    numbers = count()

    class OnDiskMachine(AdmissionStateMachine):
        def open(self, model: AdmissionModel) -> SystemUnderTest:
            return OnDisk(model, databases, tmp_path / f"journal-{next(numbers)}")

    return OnDiskMachine


def lives(examples: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def test_books_and_memory_agree_with_the_model_whatever_happens(
    databases: Databases, tmp_path: Path
) -> None:
    machine = machine_on(databases, tmp_path)
    run_state_machine_as_test(machine, settings=lives(EXAMPLES_IN_TEST))


@pytest.mark.soak
def test_thousands_of_steps(databases: Databases, tmp_path: Path, soak_factor: int) -> None:
    machine = machine_on(databases, tmp_path)
    kind = "sqlite" if isinstance(databases, SqliteFiles) else "postgresql"
    run_state_machine_as_test(machine, settings=lives(EXAMPLES_IN_SOAK[kind] * soak_factor))
