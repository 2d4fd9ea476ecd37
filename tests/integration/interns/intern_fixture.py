"""The service of interns on a real database, without a reconciler."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from tests.integration.vault.vault_fixture import VaultFixture
from tests.waiting import WAIT_SECONDS
from tollhouse.identity.intern_keys import InternKeys
from tollhouse.interns import repository
from tollhouse.interns.context import Context, Rules
from tollhouse.interns.logs import Logs
from tollhouse.interns.news import LocalNews
from tollhouse.interns.policy import ServiceUnreachable
from tollhouse.interns.service import InternService
from tollhouse.interns.types import Intern, Lease, NewIntern, Wish
from tollhouse.storage.tables.interns import interns
from tollhouse.testing.builders import OPERATOR, add_tenant

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tollhouse.identity.types import Subject
    from tollhouse.interns.types import State
    from tollhouse.storage.database import Database
    from tollhouse.storage.transaction import Read
    from tollhouse.testing.builders import Tenant
    from tollhouse.testing.clock import FakeClock
    from tollhouse.testing.ids import SequentialIds

MACHINE = "here"
LEASE = timedelta(seconds=30)


class StubReconciler:
    """Stands in for the reconciler, and runs no intern."""

    def __init__(self) -> None:
        self.reachable = True
        self.boots_expected = 0

    def expect_boot(self) -> None:
        self.boots_expected += 1

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        del read, machine
        if not self.reachable:
            message = "Nobody is there."
            raise ServiceUnreachable(message)

    def is_here(self, machine: str) -> bool:
        return machine == MACHINE


class InternFixture:
    """A tenant in the programme, and the services of its interns."""

    def __init__(
        self, database: Database, tenant: Tenant, clock: FakeClock, ids: SequentialIds, logs: Path
    ) -> None:
        self.database = database
        self.clock = clock
        self.vault = VaultFixture(database, tenant, clock, ids)
        self.caller = self.vault.caller
        self.reconciler = StubReconciler()
        self.notifications = LocalNews()
        self.context = Context(
            database=database,
            identity=self.vault.identity,
            keys=InternKeys(clock, ids, self.vault.authenticator),
            vaults=self.vault.service,
            audit=self.vault.audit,
            news=self.notifications,
            clock=clock,
            ids=ids,
            rules=Rules(5),
        )
        self.service = InternService(self.context, self.reconciler, Logs(logs, clock))

    async def create(
        self,
        name: str = "ada",
        *,
        caller: Subject | None = None,
        key: str | None = None,
        **asked: object,
    ) -> Intern:
        new = replace(NewIntern(name), **asked)  # type: ignore[arg-type]
        return (await self.service.create(Wish(caller or self.caller, new, key))).intern

    async def set_default_model(self, model: str | None) -> None:
        workspace, account = self.caller.workspace_id, self.caller.account_id
        async with self.database.writing() as write:
            await self.vault.identity.change_workspace(
                write, OPERATOR, account, workspace, {"default_text_model": model}
            )

    async def set_state(self, intern: Intern, state: State) -> Intern:
        """Set the state of an intern in the database."""
        async with self.database.writing() as write:
            await write.execute(
                interns.update()
                .where(interns.c.id == intern.id)
                .values(status=state.status.value, desired=state.desired.value)
            )
        return await self.get(intern.id)

    async def get(self, intern_id: str) -> Intern:
        found = await self.find(intern_id)
        assert found is not None
        return found

    async def find(self, intern_id: str) -> Intern | None:
        async with self.database.reading() as read:
            return await repository.get(read, intern_id)

    async def until(self, intern: Intern, is_there: Callable[[Intern], bool]) -> Intern:
        """Wait until an intern meets a condition; fail at the deadline."""
        found = None
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    found = await self.get(intern.id)
                    if is_there(found):
                        return found
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(found) from None

    async def lease(self, intern: Intern, machine: str = MACHINE) -> Lease | None:
        now = self.clock.now()
        async with self.database.writing() as write:
            return await repository.lease(write, intern.id, machine, now, now + LEASE)

    async def claimable(self, machine: str = MACHINE) -> list[str]:
        async with self.database.reading() as read:
            return list(await repository.waiting(read, machine, self.clock.now()))


async def make_intern_fixture(
    database: Database, clock: FakeClock, ids: SequentialIds, folder: Path
) -> InternFixture:
    """Return the services with an account in the programme."""
    tenant = await add_tenant(database, clock=clock, ids=ids)
    fixture = InternFixture(database, tenant, clock, ids, folder / "logs")
    await fixture.vault.set_switches(intern_programme=True)
    return fixture
