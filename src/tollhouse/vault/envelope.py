"""Sealing: values under a vault's data key, data keys under a key-encryption key. Pure.

    sealed  = nonce (12 bytes) + AES-256-GCM(data key, value, bound to vault, name, version)

What a ciphertext is bound to is associated data: moved to another vault, name or version, it does
not open. So whoever may write to the database can put a row back as it was, and nothing else.

Source: NIST SP 800-38D (GCM; at most 2^32 random nonces of 96 bits under one key), RFC 2104 (HMAC).
"""

import hmac
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tollhouse.kernel.secret import Secret

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
_FOR_VALUES: Final = "tollhouse/secret/1"
_FOR_KEYS: Final = "tollhouse/data-key/1"


class Unopenable(Exception):
    """It was sealed with another key, belongs elsewhere, or was changed."""


def new_key() -> bytes:
    """Return a new key from the system's random source."""
    return os.urandom(KEY_BYTES)


def seal(key: bytes, value: Secret, vault_id: str, name: str, version: int) -> bytes:
    """Return a value sealed under the vault's data key, for its place."""
    bound = _bound(_FOR_VALUES, vault_id, name, str(version))
    return _encrypt(key, value.reveal().encode(), bound)


def open_(key: bytes, sealed: bytes, vault_id: str, name: str, version: int) -> Secret:
    """Return the value that was sealed for a place.

    Raises `Unopenable` where it was sealed for another place or with another key, or was changed.
    """
    bound = _bound(_FOR_VALUES, vault_id, name, str(version))
    return Secret(_decrypt(key, sealed, bound).decode())


def fingerprint(key: bytes, value: Secret) -> str:
    """Return what equal values of one vault have in common, as `sha256:<hex>`.

    It is keyed with the vault's data key, so that nobody else can try values against it.
    """
    return f"sha256:{hmac.digest(key, value.reveal().encode(), 'sha256').hex()}"


def wrap(key_encryption_key: bytes, data_key: bytes, vault_id: str) -> bytes:
    """Return a data key sealed for its vault."""
    return _encrypt(key_encryption_key, data_key, _bound(_FOR_KEYS, vault_id))


def unwrap(key_encryption_key: bytes, wrapped: bytes, vault_id: str) -> bytes:
    """Return the data key that was wrapped for a vault.

    Raises `Unopenable` where it was wrapped for another vault or with another key, or was changed.
    """
    return _decrypt(key_encryption_key, wrapped, _bound(_FOR_KEYS, vault_id))


def _encrypt(key: bytes, plain: bytes, bound: bytes) -> bytes:
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, plain, bound)


def _decrypt(key: bytes, sealed: bytes, bound: bytes) -> bytes:
    try:
        return AESGCM(key).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
    except (InvalidTag, ValueError):  # too short is a ValueError
        raise Unopenable from None


def _bound(*parts: str) -> bytes:
    """Return parts as one text that no other parts have: each with its length before it."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(each).to_bytes(4, "big") + each for each in encoded)
