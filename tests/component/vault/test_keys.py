"""Keys that open vaults: opened once, checked at a start, changed without a stop."""

import asyncio
from pathlib import Path

import pytest

from tests.component.vault.vault_fixture import ALL, VaultFixture
from tollhouse.audit.types import INSTALLATION, AuditAction
from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.envelope import Unopenable, new_key
from tollhouse.vault.key_encryption import (
    KeyEncryption,
    KeysUnavailable,
    LocalKeys,
    SymmetricKeys,
    WrongKey,
    key_id,
    open_local,
)
from tollhouse.vault.maintenance import check_keys
from tollhouse.vault.types import VaultKind, WrappedKey


def local(tmp_path: Path) -> LocalKeys:
    keys = open_local(tmp_path / "vault.keys", make=True)
    assert keys is not None
    return keys


async def checked(vault: VaultFixture, keys: KeyEncryption) -> None:
    async with vault.database.reading() as read:
        await check_keys(read, keys)


async def test_rotation_wraps_every_vault_anew_and_forgets_the_old_key(
    vault: VaultFixture, tmp_path: Path
) -> None:
    vault.restart_with(local(tmp_path))
    interns = [await vault.intern() for _ in range(3)]
    shared = await vault.put("token", "one")
    old = vault.keys.current_id
    kek_id, vaults = await vault.maintenance.rotate("somebody")
    assert (vaults, kek_id) == (4, vault.keys.current_id)
    assert kek_id != old
    assert not vault.keys.knows(old)
    vault.restart_with(local(tmp_path))
    await checked(vault, vault.keys)
    assert await vault.value(shared) == "one"
    for intern in interns:
        assert await vault.value(await vault.put("own", "two", intern=intern)) == "two"
    assert [row.entry.action for row in await vault.audit_rows(INSTALLATION)] == [
        AuditAction.KEY_ROTATED
    ]


async def test_rotation_goes_on_where_it_was_interrupted(
    vault: VaultFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.restart_with(local(tmp_path))
    interns = [await vault.intern() for _ in range(3)]
    stored = [await vault.put("token", "kept", intern=intern) for intern in interns]
    whole, calls = vault.keys.wrap, 0

    async def breaks(data_key: bytes, vault_id: str) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return await whole(data_key, vault_id)

    monkeypatch.setattr(vault.keys, "wrap", breaks)
    with pytest.raises(KeyboardInterrupt):
        await vault.maintenance.rotate("somebody")
    vault.restart_with(local(tmp_path))
    await checked(vault, vault.keys)
    assert [await vault.value(each) for each in stored] == ["kept"] * 3
    await vault.maintenance.rotate("somebody")
    vault.restart_with(local(tmp_path))
    await checked(vault, vault.keys)
    assert len((tmp_path / "vault.keys").read_text().split()) == 1


async def test_what_is_stored_while_keys_are_changed_opens_afterwards(
    vault: VaultFixture, tmp_path: Path
) -> None:
    vault.restart_with(local(tmp_path))
    callers = [await vault.workspace(f"w{at}") for at in range(8)]

    async def stores(*numbers: int) -> None:
        for at in numbers:
            await vault.put("token", f"value {at}", caller=callers[at])

    await asyncio.gather(
        stores(0, 1, 2, 3),
        stores(4, 5, 6, 7),
        *(vault.maintenance.rotate("somebody") for _ in "ab"),
    )
    vault.restart_with(local(tmp_path))
    await checked(vault, vault.keys)
    for at, caller in enumerate(callers):
        async with vault.database.reading() as read:
            page = await vault.service.secrets(read, caller, None, ALL)
        assert await vault.value(page.secrets[0]) == f"value {at}"


async def test_a_rotation_that_stops_again_and_again_makes_one_key(
    vault: VaultFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault.restart_with(local(tmp_path))
    await vault.put("token")

    async def away(*_: object) -> bytes:
        raise KeysUnavailable("away")

    monkeypatch.setattr(vault.keys, "unwrap", away)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await vault.maintenance.rotate("somebody")
    assert len((tmp_path / "vault.keys").read_text().split()) == 2


async def test_a_machine_with_other_keys_stores_no_vault_that_the_first_cannot_open(
    vault: VaultFixture, tmp_path: Path
) -> None:
    vault.restart_with(local(tmp_path))
    await vault.put("token")
    (tmp_path / "second").mkdir()
    vault.restart_with(local(tmp_path / "second"))
    with pytest.raises(Unavailable, match="does not know"):
        await vault.intern()


async def test_keys_from_the_settings_are_changed_with_the_settings(vault: VaultFixture) -> None:
    stored = await vault.put("token", "kept")
    fresh = new_key()
    vault.restart_with(SymmetricKeys([fresh, vault.kek]))
    assert (await vault.maintenance.rotate("somebody"))[0] == key_id(fresh)
    vault.restart_with(SymmetricKeys([fresh]))
    await checked(vault, vault.keys)
    assert await vault.value(stored) == "kept"


async def test_a_vault_whose_key_was_made_with_a_forgotten_one_is_not_stored(
    vault: VaultFixture, tmp_path: Path
) -> None:
    vault.restart_with(local(tmp_path))
    caller = vault.caller
    own = await vault.service.new_vault(caller.account_id, caller.workspace_id, VaultKind.INTERN)
    await vault.maintenance.rotate("somebody")
    with pytest.raises(Unavailable, match="try again"):
        async with vault.database.writing() as write:
            await vault.service.add_subject(write, vault.ids.uuid(), own, None)


# Data keys are opened once; a source of keys that fails is an error that may pass


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
    with pytest.raises(WrongKey, match="does not open"):
        await checked(vault, Failing(vault.kek, Unopenable()))


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
