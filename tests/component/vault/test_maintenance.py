"""Key-encryption keys: checked at a start, changed without a stop."""

import asyncio
from pathlib import Path

import pytest

from tests.component.vault.vault_fixture import ALL, VaultFixture
from tollhouse.audit.types import INSTALLATION, AuditAction
from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.envelope import new_key
from tollhouse.vault.key_encryption import (
    KeyEncryption,
    KeysUnavailable,
    LocalKeys,
    SymmetricKeys,
    key_id,
    open_local,
)
from tollhouse.vault.maintenance import check_keys
from tollhouse.vault.types import VaultKind


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
