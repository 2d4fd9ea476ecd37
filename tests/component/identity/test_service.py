"""Use cases of accounts, workspaces, users and keys, on both databases."""

import asyncio
from datetime import timedelta

import pytest
import sqlalchemy as sa

from tests.support.builders import OPERATOR, Tenant
from tests.support.clock import FakeClock
from tollhouse.identity.access import PREFIX
from tollhouse.identity.service import IdentityService
from tollhouse.identity.types import (
    IssuedKey,
    KeyFilter,
    KeyKind,
    Manager,
    NewKey,
    User,
    Workspace,
)
from tollhouse.kernel.errors import Forbidden, Invalid, NotFound
from tollhouse.kernel.pages import Window
from tollhouse.storage.database import Database
from tollhouse.storage.tables.identity import api_keys

ALL = Window()


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

    async def slugs(self, tenant: Tenant) -> list[str]:
        async with self.database.reading() as read:
            page = await self.service.workspaces(read, tenant.account.id, ALL)
        assert page.total == len(page.items)
        return [workspace.slug for workspace in page.items]

    async def user(self, tenant: Tenant, name: str = "Ada") -> User:
        async with self.database.writing() as write:
            return await self.service.create_user(write, tenant.account.id, name, None)

    async def key(
        self, tenant: Tenant, wanted: NewKey | None = None, who: Manager = OPERATOR
    ) -> IssuedKey:
        wanted = wanted or NewKey(name="key")
        async with self.database.writing() as write:
            return await self.service.create_key(write, who, tenant.account.id, wanted)

    async def delete_key(self, issued: IssuedKey, who: Manager = OPERATOR) -> None:
        async with self.database.writing() as write:
            await self.service.delete_key(write, who, issued.key.hash)

    async def key_names(self, wanted: KeyFilter, window: Window = ALL) -> list[str]:
        async with self.database.reading() as read:
            page = await self.service.keys(read, wanted, window)
        return [key.name for key in page.items]


@pytest.fixture
def fixture(database: Database, service: IdentityService) -> IdentityFixture:
    return IdentityFixture(database, service)


def of_account(tenant: Tenant) -> Manager:
    return Manager(tenant.account.id, tenant.workspace.id, operator=False)


def every_key(tenant: Tenant) -> KeyFilter:
    return KeyFilter(tenant.account.id, None, include_disabled=True, unexpired_at=None)


class TestAccounts:
    async def test_begin_with_a_default_workspace(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        assert await fixture.find_workspace(acme, "default") == acme.workspace
        assert acme.workspace.is_default

    async def test_are_read_back_as_they_were_made(
        self, acme: Tenant, database: Database, service: IdentityService
    ) -> None:
        async with database.reading() as read:
            found = await service.account(read, of_account(acme), acme.account.id)
        assert found == acme.account

    async def test_of_others_do_not_exist_for_a_manager(
        self, acme: Tenant, other: Tenant, database: Database, service: IdentityService
    ) -> None:
        async with database.reading() as read:
            with pytest.raises(NotFound):
                await service.account(read, of_account(acme), other.account.id)

    async def test_are_all_listed_for_an_operator_and_one_for_a_manager(
        self, acme: Tenant, other: Tenant, database: Database, service: IdentityService
    ) -> None:
        async with database.reading() as read:
            everyone = await service.accounts(read, OPERATOR, ALL)
            own = await service.accounts(read, of_account(acme), ALL)
        assert everyone.items == (acme.account, other.account)
        assert own.items == (acme.account,)

    async def test_can_be_renamed(
        self, acme: Tenant, database: Database, service: IdentityService, clock: FakeClock
    ) -> None:
        clock.advance(5)
        async with database.writing() as write:
            renamed = await service.change_account(write, OPERATOR, acme.account.id, name="New")
        async with database.reading() as read:
            found = await service.account(read, OPERATOR, acme.account.id)
        assert found == renamed
        assert (found.name, found.updated_at) == ("New", clock.now())


class TestHome:
    async def test_of_a_local_operator_is_the_only_account(
        self, acme: Tenant, database: Database, service: IdentityService
    ) -> None:
        async with database.reading() as read:
            assert await service.home(read, OPERATOR) == acme.account.id

    @pytest.mark.usefixtures("acme", "other")
    async def test_of_a_local_operator_has_to_be_named_among_several(
        self, database: Database, service: IdentityService
    ) -> None:
        async with database.reading() as read:
            with pytest.raises(Invalid, match="account_id"):
                await service.home(read, OPERATOR)

    async def test_is_not_an_account_that_does_not_exist(
        self, database: Database, service: IdentityService
    ) -> None:
        async with database.reading() as read:
            with pytest.raises(NotFound):
                await service.home(read, OPERATOR, "no-such-account")


class TestWorkspaces:
    async def test_are_read_back_as_they_were_made(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        made = await fixture.workspace(
            acme, description="x", io_logging=True, rate=[1, {"a": None}]
        )
        assert made.preferences == {"io_logging": True, "rate": [1, {"a": None}]}
        assert await fixture.find_workspace(acme, made.id) == made

    async def test_are_found_by_id_and_by_slug(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        made = await fixture.workspace(acme)
        assert await fixture.find_workspace(acme, made.id) == made
        assert await fixture.find_workspace(acme, "second") == made

    async def test_are_found_by_id_before_another_ones_slug(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        made = await fixture.workspace(acme)
        await fixture.workspace(acme, slug=made.id)
        assert await fixture.find_workspace(acme, made.id) == made

    async def test_of_others_do_not_exist(
        self, acme: Tenant, other: Tenant, fixture: IdentityFixture
    ) -> None:
        with pytest.raises(NotFound):
            await fixture.find_workspace(acme, other.workspace.id)

    async def test_are_listed_oldest_first(
        self, acme: Tenant, fixture: IdentityFixture, clock: FakeClock
    ) -> None:
        for slug in ("b", "a"):
            clock.advance(1)
            await fixture.workspace(acme, slug)
        assert await fixture.slugs(acme) == ["default", "b", "a"]

    async def test_keep_what_a_change_does_not_name(
        self, acme: Tenant, fixture: IdentityFixture, clock: FakeClock
    ) -> None:
        await fixture.workspace(acme, description="x", one=1)
        clock.advance(1)
        changed = await fixture.change_workspace(acme, "second", name="New", two=2)
        assert (changed.name, changed.slug, changed.description) == ("New", "second", "x")
        assert changed.preferences == {"one": 1, "two": 2}
        assert changed.updated_at == clock.now()
        assert await fixture.find_workspace(acme, "second") == changed

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
    async def test_belong_to_one_workspace_of_an_account(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        with pytest.raises(Invalid, match="'default' is taken"):
            await fixture.workspace(acme, "default")
        assert await fixture.slugs(acme) == ["default"]

    async def test_may_be_the_same_in_two_accounts(
        self, acme: Tenant, other: Tenant, fixture: IdentityFixture
    ) -> None:
        assert (await fixture.workspace(acme)).slug == (await fixture.workspace(other)).slug

    async def test_asked_for_by_several_at_once_go_to_one(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        asked = [fixture.workspace(acme) for _ in range(8)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, Workspace) for answer in answers) == 1
        assert sum(isinstance(answer, Invalid) for answer in answers) == 7

    async def test_of_a_change_are_refused_where_they_are_taken(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        await fixture.workspace(acme)
        with pytest.raises(Invalid, match="'default' is taken"):
            await fixture.change_workspace(acme, "second", slug="default", name="New")
        assert (await fixture.find_workspace(acme, "second")).name == "Second"

    async def test_of_changes_at_once_go_to_one(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        for number in range(4):
            await fixture.workspace(acme, f"w{number}")
        changes = [fixture.change_workspace(acme, f"w{n}", slug="wanted") for n in range(4)]
        answers = await asyncio.gather(*changes, return_exceptions=True)
        assert sum(isinstance(answer, Workspace) for answer in answers) == 1
        assert sum(isinstance(answer, Invalid) for answer in answers) == 3

    async def test_may_be_said_again_in_a_change(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        assert (await fixture.change_workspace(acme, "default", slug="default")).slug == "default"


class TestDeletedWorkspaces:
    async def test_are_gone(self, acme: Tenant, fixture: IdentityFixture) -> None:
        await fixture.workspace(acme)
        await fixture.delete_workspace(acme, "second")
        assert await fixture.slugs(acme) == ["default"]

    async def test_have_no_keys(self, acme: Tenant, fixture: IdentityFixture) -> None:
        made = await fixture.workspace(acme)
        await fixture.key(acme, NewKey(name="key", workspace_id=made.id))
        with pytest.raises(Invalid, match="still has API keys"):
            await fixture.delete_workspace(acme, "second")

    async def test_may_have_had_keys(self, acme: Tenant, fixture: IdentityFixture) -> None:
        made = await fixture.workspace(acme)
        await fixture.delete_key(await fixture.key(acme, NewKey(name="key", workspace_id=made.id)))
        await fixture.delete_workspace(acme, "second")
        assert await fixture.slugs(acme) == ["default"]

    async def test_are_the_default_one_only_if_that_is_confirmed(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        await fixture.delete_key(IssuedKey(acme.key, acme.key_text))
        with pytest.raises(Invalid, match="confirm_default_workspace_deletion"):
            await fixture.delete_workspace(acme, "default")
        await fixture.delete_workspace(acme, "default", default_confirmed=True)
        assert await fixture.slugs(acme) == []

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


class TestUsers:
    async def test_are_read_back_as_they_were_made(
        self, acme: Tenant, fixture: IdentityFixture, database: Database, service: IdentityService
    ) -> None:
        made = await fixture.user(acme)
        async with database.reading() as read:
            assert await service.user(read, acme.account.id, made.id) == made
            assert (await service.users(read, acme.account.id, ALL)).items == (made,)

    async def test_of_others_do_not_exist(
        self,
        acme: Tenant,
        other: Tenant,
        fixture: IdentityFixture,
        database: Database,
        service: IdentityService,
    ) -> None:
        made = await fixture.user(other)
        async with database.reading() as read:
            with pytest.raises(NotFound):
                await service.user(read, acme.account.id, made.id)

    async def test_keep_what_a_change_does_not_name(
        self, acme: Tenant, fixture: IdentityFixture, database: Database, service: IdentityService
    ) -> None:
        made = await fixture.user(acme)
        async with database.writing() as write:
            facts = {"email": "ada@example.com"}
            await service.change_user(write, acme.account.id, made.id, facts)
        async with database.reading() as read:
            found = await service.user(read, acme.account.id, made.id)
        assert (found.name, found.email) == ("Ada", "ada@example.com")


class TestNewKeys:
    async def test_are_read_back_as_they_were_made(
        self, acme: Tenant, fixture: IdentityFixture, database: Database, service: IdentityService
    ) -> None:
        user = await fixture.user(acme)
        wanted = NewKey(
            name="all",
            kind=KeyKind.MANAGEMENT,
            operator=True,
            creator_user_id=user.id,
            expires_at=user.created_at + timedelta(days=1),
        )
        issued = await fixture.key(acme, wanted)
        async with database.reading() as read:
            assert await service.key(read, OPERATOR, issued.key.hash) == issued.key

    async def test_have_their_text_in_no_column(
        self, acme: Tenant, fixture: IdentityFixture, database: Database
    ) -> None:
        issued = await fixture.key(acme)
        async with database.reading() as read:
            rows = (await read.execute(sa.select(api_keys))).all()
        assert len(rows) == 2
        assert issued.text.removeprefix(PREFIX) not in repr(rows)

    async def test_belong_to_the_default_workspace_where_none_is_named(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        assert (await fixture.key(acme)).key.workspace_id == acme.workspace.id

    async def test_take_the_slug_of_a_workspace(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        made = await fixture.workspace(acme)
        issued = await fixture.key(acme, NewKey(name="key", workspace_id="second"))
        assert issued.key.workspace_id == made.id

    async def test_are_refused_in_a_foreign_workspace(
        self, acme: Tenant, other: Tenant, fixture: IdentityFixture
    ) -> None:
        with pytest.raises(Invalid, match="workspace_id"):
            await fixture.key(acme, NewKey(name="key", workspace_id=other.workspace.id))

    async def test_are_refused_for_a_foreign_user(
        self, acme: Tenant, other: Tenant, fixture: IdentityFixture
    ) -> None:
        stranger = await fixture.user(other)
        with pytest.raises(Invalid, match="creator_user_id"):
            await fixture.key(acme, NewKey(name="key", creator_user_id=stranger.id))

    async def test_of_operators_are_made_by_operators_alone(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        wanted = NewKey(name="key", kind=KeyKind.MANAGEMENT, operator=True)
        with pytest.raises(Forbidden):
            await fixture.key(acme, wanted, of_account(acme))

    @pytest.mark.parametrize(
        ("wanted", "told"),
        [
            (NewKey(name="key", operator=True), "operator"),
            (NewKey(name="key", kind=KeyKind.INTERN), "intern_id"),
            (NewKey(name="key", intern_id="i"), "intern_id"),
        ],
        ids=["an operator's API key", "an intern's without intern", "an intern's for the API"],
    )
    async def test_are_refused_where_their_kind_does_not_fit(
        self, acme: Tenant, fixture: IdentityFixture, wanted: NewKey, told: str
    ) -> None:
        with pytest.raises(Invalid, match=told):
            await fixture.key(acme, wanted)

    async def test_do_not_begin_expired(
        self, acme: Tenant, fixture: IdentityFixture, clock: FakeClock
    ) -> None:
        with pytest.raises(Invalid, match="expires_at"):
            await fixture.key(acme, NewKey(name="key", expires_at=clock.now()))


class TestKeys:
    async def test_of_others_do_not_exist_for_a_manager(
        self, acme: Tenant, other: Tenant, fixture: IdentityFixture
    ) -> None:
        foreign = await fixture.key(other)
        with pytest.raises(NotFound):
            await fixture.delete_key(foreign, of_account(acme))

    async def test_that_were_deleted_do_not_exist(
        self, acme: Tenant, fixture: IdentityFixture
    ) -> None:
        issued = await fixture.key(acme)
        await fixture.delete_key(issued)
        with pytest.raises(NotFound):
            await fixture.delete_key(issued)

    async def test_move_to_a_workspace_by_its_slug(
        self, acme: Tenant, fixture: IdentityFixture, database: Database, service: IdentityService
    ) -> None:
        made = await fixture.workspace(acme)
        async with database.writing() as write:
            moved = await service.change_key(write, OPERATOR, acme.key.hash, workspace_id="second")
        assert moved.workspace_id == made.id

    async def test_do_not_move_to_a_foreign_workspace(
        self, acme: Tenant, other: Tenant, database: Database, service: IdentityService
    ) -> None:
        async with database.writing() as write:
            with pytest.raises(Invalid, match="workspace_id"):
                await service.change_key(
                    write, OPERATOR, acme.key.hash, workspace_id=other.workspace.id
                )

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


class TestKeyLists:
    @pytest.fixture
    async def tenant(self, acme: Tenant, fixture: IdentityFixture, clock: FakeClock) -> Tenant:
        """An account with four keys: `first`, `short`, `off`, `aside`, one a second."""
        short = NewKey(name="short", expires_at=clock.now() + timedelta(seconds=10))
        await fixture.workspace(acme)
        clock.advance(1)
        await fixture.key(acme, short)
        clock.advance(1)
        off = await fixture.key(acme, NewKey(name="off"))
        clock.advance(1)
        await fixture.key(acme, NewKey(name="aside", workspace_id="second"))
        async with fixture.database.writing() as write:
            await fixture.service.change_key(write, OPERATOR, off.key.hash, disabled=True)
        return acme

    async def test_show_the_newest_first(self, tenant: Tenant, fixture: IdentityFixture) -> None:
        assert await fixture.key_names(every_key(tenant)) == ["aside", "off", "short", "first"]

    async def test_show_a_page_and_count_everything(
        self, tenant: Tenant, fixture: IdentityFixture
    ) -> None:
        async with fixture.database.reading() as read:
            page = await fixture.service.keys(read, every_key(tenant), Window(offset=1, limit=2))
        assert [key.name for key in page.items] == ["off", "short"]
        assert page.total == 4

    async def test_leave_out_disabled_keys(self, tenant: Tenant, fixture: IdentityFixture) -> None:
        wanted = KeyFilter(tenant.account.id, None, include_disabled=False, unexpired_at=None)
        assert await fixture.key_names(wanted) == ["aside", "short", "first"]

    async def test_leave_out_expired_keys(
        self, tenant: Tenant, fixture: IdentityFixture, clock: FakeClock
    ) -> None:
        wanted = KeyFilter(
            tenant.account.id,
            None,
            include_disabled=True,
            unexpired_at=clock.now() + timedelta(seconds=7),
        )
        assert await fixture.key_names(wanted) == ["aside", "off", "first"]

    async def test_show_one_workspace(self, tenant: Tenant, fixture: IdentityFixture) -> None:
        second = await fixture.find_workspace(tenant, "second")
        wanted = KeyFilter(tenant.account.id, second.id, include_disabled=True, unexpired_at=None)
        assert await fixture.key_names(wanted) == ["aside"]

    async def test_leave_out_deleted_keys(self, tenant: Tenant, fixture: IdentityFixture) -> None:
        await fixture.delete_key(IssuedKey(tenant.key, tenant.key_text))
        assert "first" not in await fixture.key_names(every_key(tenant))

    async def test_show_nothing_of_others(
        self, tenant: Tenant, other: Tenant, fixture: IdentityFixture
    ) -> None:
        assert await fixture.key_names(every_key(other)) == ["first"]
        assert len(await fixture.key_names(every_key(tenant))) == 4
