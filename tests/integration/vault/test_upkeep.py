"""Key-encryption keys: checked at a start, changed without a stop."""

import asyncio
from pathlib import Path

import pytest

from tests.integration.vault.office import ALL, Office
from tollhouse.audit.types import INSTALLATION, Action
from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.envelope import new_key
from tollhouse.vault.keys.base import KeyEncryption, KeysUnavailable, WrongKey
from tollhouse.vault.keys.local import LocalKeys, open_local
from tollhouse.vault.keys.symmetric import SymmetricKeys, key_id
from tollhouse.vault.types import VaultKind
from tollhouse.vault.upkeep import check_keys


def local(tmp_path: Path) -> LocalKeys:
    keys = open_local(tmp_path / "vault.keys", make=True)
    assert keys is not None
    return keys


async def checked(office: Office, keys: KeyEncryption) -> None:
    async with office.database.reading() as read:
        await check_keys(read, keys)


async def test_a_start_with_the_right_key_goes_on(office: Office) -> None:
    await office.put("token")
    await checked(office, SymmetricKeys([office.kek]))
    await checked(office, SymmetricKeys([new_key(), office.kek]))


async def test_a_start_without_vaults_takes_any_key(office: Office) -> None:
    await checked(office, SymmetricKeys([new_key()]))


async def test_a_start_with_another_key_is_refused_and_says_which_is_missing(
    office: Office,
) -> None:
    await office.put("token")
    other = new_key()
    with pytest.raises(WrongKey) as refused:
        await checked(office, SymmetricKeys([other]))
    assert key_id(office.kek) in str(refused.value)
    assert key_id(other) in str(refused.value)


async def test_rotation_wraps_every_vault_anew_and_forgets_the_old_key(
    office: Office, tmp_path: Path
) -> None:
    office.restart(local(tmp_path))
    interns = [await office.intern() for _ in range(3)]
    shared = await office.put("token", "one")
    old = office.keys.current_id
    done = await office.upkeep.rotate("somebody")
    assert (done.vaults, done.kek_id) == (4, office.keys.current_id)
    assert done.kek_id != old
    assert not office.keys.knows(old)
    office.restart(local(tmp_path))
    await checked(office, office.keys)
    assert await office.value(shared) == "one"
    for intern in interns:
        assert await office.value(await office.put("own", "two", intern=intern)) == "two"
    assert [row.entry.action for row in await office.record(INSTALLATION)] == [Action.KEY_ROTATED]


async def test_rotation_goes_on_where_it_was_interrupted(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.restart(local(tmp_path))
    interns = [await office.intern() for _ in range(3)]
    stored = [await office.put("token", "kept", intern=intern) for intern in interns]
    whole, calls = office.keys.wrap, 0

    async def breaks(data_key: bytes, vault_id: str) -> object:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return await whole(data_key, vault_id)

    monkeypatch.setattr(office.keys, "wrap", breaks)
    with pytest.raises(KeyboardInterrupt):
        await office.upkeep.rotate("somebody")
    office.restart(local(tmp_path))
    await checked(office, office.keys)
    assert [await office.value(each) for each in stored] == ["kept"] * 3
    await office.upkeep.rotate("somebody")
    office.restart(local(tmp_path))
    await checked(office, office.keys)
    assert len((tmp_path / "vault.keys").read_text().split()) == 1


async def test_what_is_stored_while_keys_are_changed_opens_afterwards(
    office: Office, tmp_path: Path
) -> None:
    office.restart(local(tmp_path))
    callers = [await office.workspace(f"w{at}") for at in range(8)]

    async def stores(at: int) -> str:
        await asyncio.sleep(0.002 * at)
        return (await office.put("token", f"value {at}", caller=callers[at])).vault_id

    await asyncio.gather(
        *(stores(at) for at in range(8)), *(office.upkeep.rotate("somebody") for _ in "ab")
    )
    office.restart(local(tmp_path))
    await checked(office, office.keys)
    for at, caller in enumerate(callers):
        async with office.database.reading() as read:
            page = await office.service.secrets(read, caller, None, ALL)
        assert await office.value(page.secrets[0]) == f"value {at}"


async def test_a_rotation_that_stops_again_and_again_makes_one_key(
    office: Office, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    office.restart(local(tmp_path))
    await office.put("token")

    async def away(*_: object) -> bytes:
        raise KeysUnavailable("away")

    monkeypatch.setattr(office.keys, "unwrap", away)
    for _ in range(3):
        with pytest.raises(KeysUnavailable):
            await office.upkeep.rotate("somebody")
    assert len((tmp_path / "vault.keys").read_text().split()) == 2


async def test_a_machine_with_other_keys_stores_no_vault_that_the_first_cannot_open(
    office: Office, tmp_path: Path
) -> None:
    office.restart(local(tmp_path))
    await office.put("token")
    (tmp_path / "second").mkdir()
    office.restart(local(tmp_path / "second"))
    with pytest.raises(Unavailable, match="does not know"):
        await office.intern()


async def test_keys_from_the_settings_are_changed_with_the_settings(office: Office) -> None:
    stored = await office.put("token", "kept")
    fresh = new_key()
    office.restart(SymmetricKeys([fresh, office.kek]))
    assert (await office.upkeep.rotate("somebody")).kek_id == key_id(fresh)
    office.restart(SymmetricKeys([fresh]))
    await checked(office, office.keys)
    assert await office.value(stored) == "kept"


async def test_a_vault_whose_key_was_made_with_a_forgotten_one_is_not_stored(
    office: Office, tmp_path: Path
) -> None:
    office.restart(local(tmp_path))
    caller = office.caller
    own = await office.service.new_vault(caller.account_id, caller.workspace_id, VaultKind.INTERN)
    await office.upkeep.rotate("somebody")
    with pytest.raises(Unavailable, match="try again"):
        async with office.database.writing() as write:
            await office.service.add_subject(write, office.ids.uuid(), own, None)
