"""What is sealed opens in its place with its key, and nowhere else."""

from __future__ import annotations

import hashlib
import hmac

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from tollhouse.kernel.secret import Secret
from tollhouse.vault.envelope import (
    Unopenable,
    fingerprint,
    new_key,
    open_,
    seal,
    unwrap,
    wrap,
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
