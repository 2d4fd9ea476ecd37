"""Key-encryption keys in a file."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING

import pytest

from tollhouse.kernel.errors import StartError
from tollhouse.vault.envelope import Unopenable, new_key
from tollhouse.vault.key_encryption import (
    CommandKeys,
    KeysUnavailable,
    LocalKeys,
    MalformedKey,
    SymmetricKeys,
    decode_key,
    encode_key,
    key_id,
    open_local,
)

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "vault.keys"


def opened(path: Path) -> LocalKeys:
    keys = open_local(path, make=True)
    assert keys is not None
    return keys


def test_a_first_start_makes_a_file_that_nobody_else_reads(path: Path) -> None:
    keys = opened(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert opened(path).current_id == keys.current_id


@pytest.mark.parametrize(
    "content", ["", "\n", "not base64!\n", encode_key(b"short") + "\n", "\xff"]
)
def test_a_damaged_file_is_refused_and_not_written(path: Path, content: str) -> None:
    path.write_text(content, encoding="latin-1")
    path.chmod(0o600)
    with pytest.raises(StartError, match=str(path)):
        opened(path)
    assert path.read_text(encoding="latin-1") == content


async def test_a_new_key_is_in_the_file_before_it_is_used_and_the_old_one_stays(path: Path) -> None:
    keys = opened(path)
    before, wrapped = keys.current_id, await keys.wrap(b"k" * 32, "v")
    await keys.renew()
    assert keys.current_id != before
    assert (await keys.wrap(b"k" * 32, "v")).kek_id == keys.current_id
    again = opened(path)
    assert again.current_id == keys.current_id
    assert await again.unwrap(wrapped, "v") == b"k" * 32


async def test_a_key_that_nothing_uses_any_more_is_forgotten(path: Path) -> None:
    keys = opened(path)
    first, wrapped = keys.current_id, await keys.wrap(b"k" * 32, "v")
    await keys.renew()
    await keys.retire({first})
    assert keys.knows(first)
    await keys.retire({keys.current_id})
    assert not keys.knows(first)
    with pytest.raises(Unopenable):
        await opened(path).unwrap(wrapped, "v")


async def test_a_key_that_cannot_be_stored_is_not_used(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = opened(path)
    before = keys.current_id

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tollhouse.vault.key_encryption.os.fsync", full)
    with pytest.raises(KeysUnavailable, match="No space left"):
        await keys.renew()
    assert keys.current_id == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    assert opened(path).current_id == before


async def test_two_processes_change_one_file_and_lose_no_key(path: Path) -> None:
    here, there = opened(path), opened(path)
    old = here.current_id
    await here.renew()
    wrapped = await here.wrap(b"k" * 32, "v")
    await here.retire({here.current_id})
    await there.renew()
    await there.retire({there.current_id, here.current_id})
    assert await there.unwrap(wrapped, "v") == b"k" * 32
    assert await opened(path).unwrap(wrapped, "v") == b"k" * 32
    assert not opened(path).knows(old)


async def test_a_key_that_another_process_made_is_read_when_it_is_needed(path: Path) -> None:
    here, there = opened(path), opened(path)
    await there.renew()
    wrapped = await there.wrap(b"k" * 32, "v")
    assert await here.unwrap(wrapped, "v") == b"k" * 32


def test_two_first_starts_at_once_have_one_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    link, made = os.link, []

    def as_another_does(source: str, target: Path) -> None:
        if not made:
            made.append("")
            made[0] = opened(path).current_id
        link(source, target)

    monkeypatch.setattr("tollhouse.vault.key_encryption.os.link", as_another_does)
    assert [opened(path).current_id] == made
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_link_stays_one_and_its_file_gets_the_new_key(path: Path) -> None:
    safe = path.parent / "safe"
    safe.mkdir()
    opened(safe / "keys")
    path.symlink_to(safe / "keys")
    keys = opened(path)
    asyncio.run(keys.renew())
    assert path.is_symlink()
    assert opened(safe / "keys").current_id == keys.current_id


def test_a_file_that_is_gone_is_not_made_anew(path: Path) -> None:
    keys = opened(path)
    path.unlink()
    with pytest.raises(KeysUnavailable, match="gone"):
        asyncio.run(keys.renew())
    assert not path.exists()


async def test_keys_from_the_settings_wrap_with_the_first_and_open_with_all() -> None:
    old, new = new_key(), new_key()
    wrapped = await SymmetricKeys([old]).wrap(b"k" * 32, "v")
    keys = SymmetricKeys([new, old])
    assert keys.current_id == key_id(new)
    assert await keys.unwrap(wrapped, "v") == b"k" * 32
    await keys.renew()
    await keys.retire(set())
    assert (keys.current_id, keys.knows(key_id(old))) == (key_id(new), True)
    with pytest.raises(Unopenable):
        await SymmetricKeys([new]).unwrap(wrapped, "v")


@pytest.mark.parametrize("text", ["", "x", encode_key(b"x" * 31), encode_key(b"x" * 33), "?" * 44])
def test_a_key_is_32_bytes_in_base64(text: str) -> None:
    with pytest.raises(MalformedKey, match="openssl rand"):
        decode_key(text)
    assert decode_key(f" {encode_key(b'k' * 32)}\n") == b"k" * 32


# Key-encryption keys behind a program


# Stands for a key management service: it turns bytes round and notes the vault beside them.
SERVICE = """
import base64, json, sys
asked = json.load(sys.stdin)
if sys.argv[1] == "wrap":
    key = base64.b64decode(asked["key"])[::-1]
    wrapped = key + asked["vault"].encode()
    print(json.dumps({"wrapped": base64.b64encode(wrapped).decode()}))
else:
    wrapped = base64.b64decode(asked["wrapped"])
    if wrapped[32:] != asked["vault"].encode():
        sys.exit(3)
    print(json.dumps({"key": base64.b64encode(wrapped[:32][::-1]).decode()}))
"""


def program(tmp_path: Path, text: str) -> CommandKeys:
    script = tmp_path / "kms.py"
    script.write_text(text)
    return CommandKeys([sys.executable, str(script)], seconds=20)


async def test_a_program_wraps_and_unwraps(tmp_path: Path) -> None:
    keys = program(tmp_path, SERVICE)
    wrapped = await keys.wrap(bytes(range(32)), "v1")
    assert wrapped.data == bytes(range(32))[::-1] + b"v1"
    assert keys.knows(wrapped.kek_id)
    assert await keys.unwrap(wrapped, "v1") == bytes(range(32))


async def test_a_program_that_refuses_is_unavailable(tmp_path: Path) -> None:
    keys = program(tmp_path, SERVICE)
    wrapped = await keys.wrap(bytes(32), "v1")
    with pytest.raises(KeysUnavailable, match="exit code 3 for unwrap"):
        await keys.unwrap(wrapped, "v2")


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"wrapped": 1}', '{"wrapped": "%%%"}', "x"])
async def test_a_wrong_answer_is_not_repeated(tmp_path: Path, said: str) -> None:
    keys = program(tmp_path, f"print({said!r})")
    with pytest.raises(KeysUnavailable, match="no 'wrapped' in base64"):
        await keys.wrap(bytes(32), "v1")


async def test_an_opened_key_of_another_size_is_refused(tmp_path: Path) -> None:
    keys = program(tmp_path, """print('{"key": "AAAA"}')""")
    wrapped = await program(tmp_path, SERVICE).wrap(bytes(32), "v1")
    keys = program(tmp_path, """print('{"key": "AAAA"}')""")
    with pytest.raises(KeysUnavailable, match="another size"):
        await keys.unwrap(wrapped, "v1")


async def test_a_program_that_hangs_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "kms.py"
    script.write_text("import time; time.sleep(600)")
    keys = CommandKeys([sys.executable, str(script)], seconds=0.2)
    with pytest.raises(KeysUnavailable, match="took longer than"):
        await keys.wrap(bytes(32), "v1")


async def test_a_program_that_is_not_there_is_unavailable(tmp_path: Path) -> None:
    keys = CommandKeys([str(tmp_path / "missing")], seconds=20)
    with pytest.raises(KeysUnavailable, match="cannot be run"):
        await keys.wrap(bytes(32), "v1")
