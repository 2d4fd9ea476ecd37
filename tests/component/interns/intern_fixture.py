"""The service of interns on a real database, without a reconciler."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tests.component.vault.vault_fixture import VaultFixture
from tests.support.builders import OPERATOR, Tenant, add_tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.identity import InternKeys, Subject
from tests.support.waiting import WAIT_SECONDS
from tollhouse.interns import repository
from tollhouse.interns.context import InternContext, Notifications, Rules
from tollhouse.interns.logs import InternLogs
from tollhouse.interns.service import InternService
from tollhouse.interns.types import CreateIntern, Intern, InternLease, InternState
from tollhouse.storage.database import Database, Read
from tollhouse.storage.notifications import Topic
from tollhouse.storage.tables.interns import interns

MACHINE = "here"
LEASE = timedelta(seconds=30)


class StubReconciler:
    """Stands in for the reconciler, and runs no intern."""

    def expect_boot(self) -> None:
        pass

    async def check_reachable(self, read: Read, machine: str | None) -> None:
        del read, machine

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
        self.notifications = Notifications()
        database.notifications.subscribe(Topic.INTERN, self.notifications.notify)
        self.context = InternContext(
            database=database,
            identity=self.vault.identity,
            keys=InternKeys(clock, ids),
            vaults=self.vault.service,
            audit=self.vault.audit,
            notifications=self.notifications,
            clock=clock,
            ids=ids,
            rules=Rules(5),
        )
        self.service = InternService(self.context, self.reconciler, InternLogs(logs, clock))

    async def create(
        self,
        name: str = "ada",
        *,
        caller: Subject | None = None,
        key: str | None = None,
        **asked: object,
    ) -> Intern:
        new = replace(CreateIntern(name), **asked)  # type: ignore[arg-type]
        return (await self.service.create(caller or self.caller, new, key)).intern

    async def set_default_model(self, model: str | None) -> None:
        workspace, account = self.caller.workspace_id, self.caller.account_id
        async with self.database.writing() as write:
            await self.vault.identity.change_workspace(
                write, OPERATOR, account, workspace, {"default_text_model": model}
            )

    async def set_state(self, intern: Intern, state: InternState) -> Intern:
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

    async def lease(self, intern: Intern, machine: str = MACHINE) -> InternLease | None:
        now = self.clock.now()
        async with self.database.writing() as write:
            return await repository.acquire_lease(write, intern.id, machine, now, now + LEASE)

    async def claimable(self, machine: str = MACHINE) -> list[str]:
        async with self.database.reading() as read:
            return list(await repository.due(read, machine, self.clock.now()))


async def make_intern_fixture(
    database: Database, clock: FakeClock, ids: SequentialIds, folder: Path
) -> InternFixture:
    """Return the services with an account in the programme."""
    tenant = await add_tenant(database, clock=clock, ids=ids)
    fixture = InternFixture(database, tenant, clock, ids, folder / "logs")
    await fixture.vault.set_switches(intern_programme=True)
    return fixture
