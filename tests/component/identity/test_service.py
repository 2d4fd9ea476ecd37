"""Use cases of accounts, workspaces, users and keys, on both databases."""

import asyncio

import pytest
import sqlalchemy as sa

from tests.support.builders import OPERATOR, Tenant
from tests.support.seams.identity import PREFIX, IdentityService, IssuedKey, NewKey, Workspace
from tollhouse.kernel.errors import Invalid
from tollhouse.storage.database import Database
from tollhouse.storage.tables.identity import api_keys


class IdentityFixture:
    """Each use case in a transaction of its own, as the edge runs them."""

    def __init__(self, database: Database, service: IdentityService) -> None:
        self.database = database
        self.service = service

    async def workspace(self, tenant: Tenant, slug: str = "second", **facts: object) -> Workspace:
        given = {"name": slug.title(), "slug": slug, **facts}
        async with self.database.writing() as write:
            return await self.service.create_workspace(write, tenant.account.id, given, None)

    async def change_workspace(self, tenant: Tenant, which: str, **facts: object) -> Workspace:
        async with self.database.writing() as write:
            return await self.service.change_workspace(
                write, OPERATOR, tenant.account.id, which, facts
            )

    async def delete_workspace(
        self, tenant: Tenant, which: str, *, default_confirmed: bool = False
    ) -> None:
        async with self.database.writing() as write:
            await self.service.delete_workspace(
                write, OPERATOR, tenant.account.id, which, default_confirmed=default_confirmed
            )

    async def find_workspace(self, tenant: Tenant, which: str) -> Workspace:
        async with self.database.reading() as read:
            return await self.service.workspace(read, tenant.account.id, which)

    async def key(self, tenant: Tenant, wanted: NewKey | None = None) -> IssuedKey:
        wanted = wanted or NewKey(name="key")
        async with self.database.writing() as write:
            return await self.service.create_key(write, OPERATOR, tenant.account.id, wanted)


@pytest.fixture
def fixture(database: Database, service: IdentityService) -> IdentityFixture:
    return IdentityFixture(database, service)


class TestWorkspaces:
    async def test_that_are_changed_at_once_keep_both_changes(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        await fixture.workspace(acme)
        await asyncio.gather(
            *(fixture.change_workspace(acme, "second", **{f"p{n}": n}) for n in range(8))
        )
        found = await fixture.find_workspace(acme, "second")
        assert found.preferences == {f"p{n}": n for n in range(8)}


class TestSlugs:
    async def test_asked_for_by_several_at_once_go_to_one(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        asked = [fixture.workspace(acme) for _ in range(8)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, Workspace) for answer in answers) == 1
        assert sum(isinstance(answer, Invalid) for answer in answers) == 7

    async def test_of_changes_at_once_go_to_one(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        for number in range(4):
            await fixture.workspace(acme, f"w{number}")
        changes = [fixture.change_workspace(acme, f"w{n}", slug="wanted") for n in range(4)]
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert sum(isinstance(answer, Workspace) for answer in answers) == 1
        assert sum(isinstance(answer, Invalid) for answer in answers) == 3


class TestDeletedWorkspaces:
    async def test_leave_no_key_behind_that_was_made_meanwhile(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        for number in range(6):
            made = await fixture.workspace(acme, f"w{number}")
            key, deletion = await asyncio.gather(
                fixture.key(acme, NewKey(name="key", workspace_id=made.id)),
                fixture.delete_workspace(acme, made.id),
                return_exceptions=True,
            )
            # Either there is a key and the workspace stayed, or the other way round.
            assert isinstance(key, IssuedKey) is isinstance(deletion, Invalid)
            assert isinstance(key, Invalid) is (deletion is None)


class TestNewKeys:
    async def test_have_their_text_in_no_column(
        self, acme: Tenant, fixture: IdentityFixture, database: Database
    ) -> None:
        issued = await fixture.key(acme)
        async with database.reading() as read:
            rows = (await read.execute(sa.select(api_keys))).all()
        assert len(rows) == 2
        assert issued.text.removeprefix(PREFIX) not in repr(rows)


class TestKeys:
    async def test_that_are_changed_at_once_keep_both_changes(
        self, acme: Tenant, fixture: IdentityFixture, database: Database, service: IdentityService
    ) -> None:
        async def rename(key_hash: str) -> None:
            async with database.writing() as write:
                await service.change_key(write, OPERATOR, key_hash, name="new")

        async def disable(key_hash: str) -> None:
            async with database.writing() as write:
                await service.change_key(write, OPERATOR, key_hash, disabled=True)

        for number in range(6):
            key_hash = (await fixture.key(acme, NewKey(name=f"key{number}"))).key.hash
            await asyncio.gather(rename(key_hash), disable(key_hash))
            async with database.reading() as read:
                found = await service.key(read, OPERATOR, key_hash)
            assert (found.name, found.disabled) == ("new", True)
