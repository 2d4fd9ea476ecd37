"""An intern's own key: one for its life, with another text each time that it is issued."""

from dataclasses import replace
from datetime import timedelta

import pytest

from tests.support.builders import OPERATOR, Tenant
from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tests.support.seams.identity import (
    ApiKey,
    Authenticator,
    IdentityService,
    InternKeys,
    IssuedKey,
    KeyKind,
    NewKey,
    Subject,
)
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.storage.database import Database

WANTED = NewKey("intern ada", kind=KeyKind.INTERN, intern_id="ada")


class Ada:
    """An intern, as far as keys go."""

    def __init__(
        self, database: Database, acme: Tenant, keys: InternKeys, authenticator: Authenticator
    ) -> None:
        self.database = database
        self.acme = acme
        self.keys = keys
        self.authenticator = authenticator

    async def issue(self, payer: ApiKey | None = None) -> IssuedKey:
        wanted = WANTED if payer is None else replace(WANTED, payer_hash=payer.hash)
        async with self.database.writing() as write:
            return await self.keys.issue(
                write, self.acme.account.id, self.acme.workspace.id, wanted
            )

    async def withdraw(self) -> None:
        async with self.database.writing() as write:
            await self.keys.withdraw(write, "ada")

    async def delete(self) -> None:
        async with self.database.writing() as write:
            await self.keys.delete(write, "ada")

    async def who(self, text: str) -> Subject | None:
        try:
            return await self.authenticator.authenticate(text)
        except Unauthenticated:
            return None


@pytest.fixture
def ada(
    database: Database,
    acme: Tenant,
    clock: FakeClock,
    ids: SequentialIds,
    authenticator: Authenticator,
) -> Ada:
    return Ada(database, acme, InternKeys(clock, ids), authenticator)


async def test_a_text_opens_nothing_once_it_was_withdrawn(ada: Ada) -> None:
    await ada.issue()
    second = await ada.issue()
    assert await ada.who(second.text) is not None
    await ada.withdraw()
    assert await ada.who(second.text) is None
    third = await ada.issue()
    assert await ada.who(second.text) is None
    assert await ada.who(third.text) is not None


async def test_a_key_that_has_another_text_now_is_disabled_at_once(
    ada: Ada, service: IdentityService
) -> None:
    await ada.issue()
    second = await ada.issue()
    assert await ada.who(second.text) is not None
    async with ada.database.writing() as write:
        await service.change_key(write, OPERATOR, second.key.hash, disabled=True)
    assert await ada.who(second.text) is None


async def test_a_new_text_brings_its_key_back_to_where_it_is(
    ada: Ada, service: IdentityService
) -> None:
    issued = await ada.issue()
    async with ada.database.writing() as write:
        facts = {"name": "Second", "slug": "second"}
        second = await service.create_workspace(write, ada.acme.account.id, facts, None)
        await service.change_key(write, OPERATOR, issued.key.hash, workspace_id=second.id)
    found = await ada.who((await ada.issue()).text)
    assert found is not None
    assert found.workspace_id == ada.acme.workspace.id


@pytest.mark.parametrize("elsewhere", [True, False], ids=["another account", "with an end"])
async def test_a_key_that_only_names_it_is_not_its_own(
    ada: Ada, service: IdentityService, clock: FakeClock, *, elsewhere: bool
) -> None:
    async with ada.database.writing() as write:
        other, _ = await service.create_account(write, "Other")
        account = other if elsewhere else ada.acme.account
        wanted = replace(WANTED, expires_at=None if elsewhere else clock.now() + timedelta(days=1))
        named = await service.create_key(write, OPERATOR, account.id, wanted)
    issued = await ada.issue()
    assert issued.key.hash != named.key.hash
    assert (issued.key.account_id, issued.key.expires_at) == (ada.acme.account.id, None)


async def test_what_is_remembered_of_texts_goes_with_them(ada: Ada) -> None:
    for _ in range(3):
        issued = await ada.issue()
        assert await ada.who(issued.text) is not None
    await ada.withdraw()
    assert ada.authenticator.remembered == 0


class TestPayer:
    """The key that answers for an intern's."""

    @pytest.fixture
    async def payer(self, ada: Ada, service: IdentityService, clock: FakeClock) -> ApiKey:
        wanted = NewKey("payer", expires_at=clock.now() + timedelta(hours=1))
        async with ada.database.writing() as write:
            return (await service.create_key(write, OPERATOR, ada.acme.account.id, wanted)).key

    async def test_that_is_deleted_stops_its_intern_at_once(
        self, ada: Ada, payer: ApiKey, service: IdentityService
    ) -> None:
        issued = await ada.issue(payer)
        assert await ada.who(issued.text) is not None
        async with ada.database.writing() as write:
            await service.delete_key(write, OPERATOR, payer.hash)
        assert await ada.who(issued.text) is None

    async def test_that_expires_stops_its_intern(
        self, ada: Ada, payer: ApiKey, clock: FakeClock
    ) -> None:
        issued = await ada.issue(payer)
        assert await ada.who(issued.text) is not None
        clock.advance(3_600)
        assert await ada.who(issued.text) is None

    async def test_is_who_answered_when_something_was_begun(
        self, ada: Ada, payer: ApiKey, service: IdentityService
    ) -> None:
        issued = await ada.issue(payer)
        await ada.issue(ada.acme.key)
        async with ada.database.reading() as read:
            owner = await service.owner(read, issued.key.hash, payer.hash)
        assert owner.payer_hash == payer.hash

    async def test_leaves_nothing_remembered(
        self, ada: Ada, payer: ApiKey, service: IdentityService
    ) -> None:
        for _ in range(3):
            assert await ada.who((await ada.issue(payer)).text) is not None
        async with ada.database.writing() as write:
            await service.delete_key(write, OPERATOR, payer.hash)
        assert ada.authenticator.remembered == 0
