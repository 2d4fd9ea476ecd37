"""From a key's text to its subject: what is remembered, and what is forgotten when."""

import asyncio
from datetime import timedelta
from unittest.mock import patch

import pytest

from tests.support.builders import OPERATOR, Tenant
from tests.support.clock import FakeClock
from tests.support.seams.identity import ApiKey, Authenticator, IdentityService, NewKey, repository
from tollhouse.kernel.errors import Unauthenticated
from tollhouse.storage.database import Database, Read


async def accepts(authenticator: Authenticator, text: str) -> bool:
    try:
        await authenticator.authenticate(text)
    except Unauthenticated:
        return False
    return True


async def delete(database: Database, service: IdentityService, tenant: Tenant) -> None:
    async with database.writing() as write:
        await service.delete_key(write, OPERATOR, tenant.key.hash)


class Reads:
    """Counts reads of keys, and can hold one up."""

    def __init__(self) -> None:
        self.count = 0
        self.done = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def key_with_text(self, read: Read, secret_hash: str) -> ApiKey | None:
        self.count += 1
        key = await repository.key_with_text(read, secret_hash)
        self.done.set()
        await self.go_on.wait()
        return key

    get_key = staticmethod(repository.get_key)
    policies_for = staticmethod(repository.policies_for)


@pytest.fixture
def reads() -> Reads:
    return Reads()


@pytest.fixture(autouse=True)
def watching(reads: Reads, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the test see the authenticator's reads."""
    monkeypatch.setattr("tollhouse.identity.access.repository", reads)


class TestRefused:
    async def test_is_a_text_of_another_kind_without_a_look_into_the_database(
        self, authenticator: Authenticator, reads: Reads
    ) -> None:
        assert not await accepts(authenticator, "sk-other-v1-abc")
        assert not await accepts(authenticator, "sk-th-v1-" + "x" * 100_000)
        assert reads.count == 0

    async def test_is_an_unknown_key_which_is_not_remembered(
        self, authenticator: Authenticator, reads: Reads
    ) -> None:
        for _ in range(2):
            assert not await accepts(authenticator, "sk-th-v1-unknown")
        assert reads.count == 2

    async def test_is_a_key_from_the_instant_it_expires(
        self,
        authenticator: Authenticator,
        database: Database,
        service: IdentityService,
        acme: Tenant,
        clock: FakeClock,
    ) -> None:
        wanted = NewKey(name="short", expires_at=clock.now() + timedelta(seconds=10))
        async with database.writing() as write:
            issued = await service.create_key(write, OPERATOR, acme.account.id, wanted)
        assert await accepts(authenticator, issued.text)
        clock.advance(10)
        assert not await accepts(authenticator, issued.text)

    async def test_never_shows_the_text(self, authenticator: Authenticator) -> None:
        with pytest.raises(Unauthenticated) as refused:
            await authenticator.authenticate("sk-th-v1-mistyped")
        assert "mistyped" not in repr(refused.value)


class TestRevocation:
    async def test_that_is_rolled_back_changes_nothing(
        self,
        authenticator: Authenticator,
        database: Database,
        service: IdentityService,
        acme: Tenant,
    ) -> None:
        async def delete_and_fail() -> None:
            async with database.writing() as write:
                await service.delete_key(write, OPERATOR, acme.key.hash)
                raise RuntimeError

        with pytest.raises(RuntimeError):
            await delete_and_fail()
        assert await accepts(authenticator, acme.key_text)

    async def test_during_a_read_is_not_undone_by_what_was_read(
        self,
        authenticator: Authenticator,
        database: Database,
        service: IdentityService,
        acme: Tenant,
        reads: Reads,
    ) -> None:
        reads.go_on.clear()
        racing = asyncio.create_task(accepts(authenticator, acme.key_text))
        await reads.done.wait()
        await delete(database, service, acme)
        reads.go_on.set()
        await racing
        assert not await accepts(authenticator, acme.key_text)


async def test_the_memory_of_keys_has_a_bound(
    authenticator: Authenticator,
    database: Database,
    service: IdentityService,
    acme: Tenant,
    reads: Reads,
) -> None:
    async with database.writing() as write:
        issued = [
            await service.create_key(write, OPERATOR, acme.account.id, NewKey(name=str(number)))
            for number in range(4)
        ]
    with patch("tollhouse.identity.access._MOST_CACHED", 3):
        for key in issued:
            assert await accepts(authenticator, key.text)
        assert await accepts(authenticator, issued[-1].text)
    assert reads.count == 4
