"""What is sealed opens in its place with its key, and nowhere else; where keys of keys are kept."""

import asyncio
import hashlib
import hmac
import os
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.errors import StartError
from tollhouse.kernel.secret import Secret
from tollhouse.vault.envelope import Unopenable, fingerprint, new_key, open_, seal, unwrap, wrap
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

KEY = bytes(range(32))
VALUE = Secret("hunter2")


@given(st.text(min_size=1, max_size=300))
def test_what_is_sealed_opens_again(text: str) -> None:
    sealed = seal(KEY, Secret(text), "vault", "name", 3)
    assert open_(KEY, sealed, "vault", "name", 3).reveal() == text


def test_a_sealed_value_shows_nothing_of_it_and_is_never_the_same_twice() -> None:
    first, second = (seal(KEY, VALUE, "v", "n", 1) for _ in range(2))
    assert first != second
    assert b"hunter2" not in first


@pytest.mark.parametrize(
    ("vault", "name", "version"),
    [
        ("other", "n", 1),
        ("v", "other", 1),
        ("v", "n", 2),
        ("vn", "", 1),
        ("", "vn", 1),
        ("v", "n1", 1),
    ],
)
def test_a_row_that_was_moved_does_not_open(vault: str, name: str, version: int) -> None:
    sealed = seal(KEY, VALUE, "v", "n", 1)
    with pytest.raises(Unopenable):
        open_(KEY, sealed, vault, name, version)


def test_another_key_does_not_open_it() -> None:
    with pytest.raises(Unopenable):
        open_(new_key(), seal(KEY, VALUE, "v", "n", 1), "v", "n", 1)


@pytest.mark.parametrize("at", [0, 11, 12, 15, -1])
def test_a_changed_byte_does_not_open(at: int) -> None:
    sealed = bytearray(seal(KEY, VALUE, "v", "n", 1))
    sealed[at] ^= 1
    with pytest.raises(Unopenable):
        open_(KEY, bytes(sealed), "v", "n", 1)


@pytest.mark.parametrize("size", [0, 5, 11, 12, 13, 27])
def test_what_was_cut_off_does_not_open(size: int) -> None:
    with pytest.raises(Unopenable):
        open_(KEY, seal(KEY, VALUE, "v", "n", 1)[:size], "v", "n", 1)


def test_what_does_not_open_says_nothing_of_it() -> None:
    with pytest.raises(Unopenable) as failed:
        open_(KEY, b"garbage" * 5, "v", "n", 1)
    assert (str(failed.value), failed.value.__cause__) == ("", None)


def test_the_format_is_a_nonce_and_aes_gcm_over_the_parts_with_their_lengths() -> None:
    sealed = seal(KEY, VALUE, "v", "n", 1)
    parts = [b"tollhouse/secret/1", b"v", b"n", b"1"]
    bound = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    assert AESGCM(KEY).decrypt(sealed[:12], sealed[12:], bound) == b"hunter2"


def test_a_fingerprint_is_a_keyed_hash_of_the_value() -> None:
    expected = hmac.new(KEY, b"hunter2", hashlib.sha256).hexdigest()
    assert fingerprint(KEY, VALUE) == f"sha256:{expected}"
    assert fingerprint(new_key(), VALUE) != fingerprint(KEY, VALUE)


def test_a_wrapped_key_opens_for_its_vault_with_its_key() -> None:
    data_key = new_key()
    wrapped = wrap(KEY, data_key, "vault")
    assert unwrap(KEY, wrapped, "vault") == data_key
    for key, vault in ((new_key(), "vault"), (KEY, "other")):
        with pytest.raises(Unopenable):
            unwrap(key, wrapped, vault)


def test_a_wrapped_key_is_no_sealed_value() -> None:
    with pytest.raises(Unopenable):
        open_(KEY, wrap(KEY, b"x" * 32, "vault"), "vault", "", 1)


def test_keys_are_new_each_time() -> None:
    keys = {new_key() for _ in range(100)}
    assert len(keys) == 100
    assert {len(key) for key in keys} == {32}


# Key-encryption keys in a file


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


@pytest.mark.parametrize("said", ["", "{}", "[]", '{"wrapped": 1}', '{"wrapped": "%%%"}', "x"])
async def test_a_wrong_answer_is_not_repeated(tmp_path: Path, said: str) -> None:
    keys = program(tmp_path, f"print({said!r})")
    with pytest.raises(KeysUnavailable, match="no 'wrapped' in base64"):
        await keys.wrap(bytes(32), "v1")


@pytest.mark.parametrize(
    ("text", "why"),
    [(SERVICE, "exit code 3 for unwrap"), ("""print('{"key": "AAAA"}')""", "another size")],
    ids=["refuses", "another size"],
)
async def test_a_key_that_a_program_does_not_open_is_unavailable(
    tmp_path: Path, text: str, why: str
) -> None:
    wrapped = await program(tmp_path, SERVICE).wrap(bytes(32), "v1")
    with pytest.raises(KeysUnavailable, match=why):
        await program(tmp_path, text).unwrap(wrapped, "v2")


async def test_a_program_that_hangs_is_killed_and_one_that_is_missing_is_said_to_be(
    tmp_path: Path,
) -> None:
    script = tmp_path / "kms.py"
    script.write_text("import time; time.sleep(600)")
    keys = CommandKeys([sys.executable, str(script)], seconds=0.2)
    with pytest.raises(KeysUnavailable, match="took longer than"):
        await keys.wrap(bytes(32), "v1")
    with pytest.raises(KeysUnavailable, match="cannot be run"):
        await CommandKeys([str(tmp_path / "missing")], seconds=20).wrap(bytes(32), "v1")
