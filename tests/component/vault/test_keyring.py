"""Data keys are opened once; a source of keys that fails is an error that may pass."""

import pytest

from tests.component.vault.vault_fixture import VaultFixture
from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.envelope import Unopenable, new_key
from tollhouse.vault.key_encryption import KeysUnavailable, SymmetricKeys, WrongKey
from tollhouse.vault.maintenance import check_keys
from tollhouse.vault.types import WrappedKey


class Failing(SymmetricKeys):
    """Keys that cannot be used now."""

    def __init__(self, key: bytes, error: Exception) -> None:
        super().__init__([key])
        self.calls = 0
        self._error = error

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        del data_key, vault_id
        raise self._error

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        del key, vault_id
        self.calls += 1
        raise self._error


class Counting(SymmetricKeys):
    """Keys that count how often they open something."""

    calls = 0

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        self.calls += 1
        return await super().unwrap(key, vault_id)


AWAY = KeysUnavailable("the key program ended with exit code 7 for unwrap")


async def test_a_data_key_is_opened_once(vault: VaultFixture) -> None:
    stored = await vault.put("token")
    keys = Counting([vault.kek])
    vault.restart_with(keys)
    for _ in range(3):
        await vault.value(stored)
        await vault.put("other")
    assert keys.calls == 1


@pytest.mark.parametrize("error", [AWAY, Unopenable()], ids=["away", "wrong"])
async def test_a_key_that_does_not_open_is_unavailable_and_tried_again(
    vault: VaultFixture, error: Exception
) -> None:
    stored = await vault.put("token", "hunter2")
    failing = Failing(vault.kek, error)
    vault.restart_with(failing)
    for _ in range(2):
        with pytest.raises(Unavailable) as refused:
            await vault.value(stored)
        assert "exit code" not in str(refused.value)
    assert failing.calls == 2
    vault.restart_with(SymmetricKeys([vault.kek]))
    assert await vault.value(stored) == "hunter2"


async def test_no_vault_is_made_without_a_key(vault: VaultFixture) -> None:
    vault.restart_with(Failing(vault.kek, AWAY))
    with pytest.raises(Unavailable):
        await vault.put("token")
    vault.restart_with(SymmetricKeys([vault.kek]))
    assert await vault.names() == []


async def test_a_start_with_keys_that_do_not_open_is_refused(vault: VaultFixture) -> None:
    await vault.put("token")
    with pytest.raises(WrongKey):
        async with vault.database.reading() as read:
            await check_keys(read, Failing(vault.kek, Unopenable()))


async def test_a_start_goes_on_where_the_keys_are_away_for_now(vault: VaultFixture) -> None:
    await vault.put("token")
    async with vault.database.reading() as read:
        await check_keys(read, Failing(vault.kek, AWAY))


async def test_a_value_whose_vault_is_gone_does_not_open(vault: VaultFixture) -> None:
    intern = await vault.intern()
    stored = await vault.put("token", intern=intern)
    await vault.delete_intern(intern)
    with pytest.raises(Unavailable):
        await vault.value(stored)


async def test_rotation_stops_where_a_key_does_not_open_and_forgets_nothing(
    vault: VaultFixture,
) -> None:
    await vault.put("token", "kept")
    vault.restart_with(SymmetricKeys([new_key()]))
    with pytest.raises(Unopenable):
        await vault.maintenance.rotate("somebody")
    vault.restart_with(SymmetricKeys([vault.kek]))
    async with vault.database.reading() as read:
        await check_keys(read, vault.keys)
