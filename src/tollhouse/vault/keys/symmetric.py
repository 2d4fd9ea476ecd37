"""Key-encryption keys that are in this process: the newest wraps, all of them open."""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from tollhouse.vault.envelope import KEY_BYTES, Unopenable, unwrap, wrap
from tollhouse.vault.types import WrappedKey

if TYPE_CHECKING:
    from collections.abc import Sequence

_ID_DIGITS: Final = 16


class NoKey(ValueError):
    """A text is no key."""


def key_id(key: bytes) -> str:
    """Return a key's name: it tells the key from others and nothing about it."""
    return sha256(b"tollhouse/kek-id/1" + key).hexdigest()[:_ID_DIGITS]


def as_text(key: bytes) -> str:
    """Return a key as base64."""
    return base64.b64encode(key).decode()


def from_text(text: str) -> bytes:
    """Return the key that a text holds.

    Raises:
        NoKey: It is not 32 bytes in base64.
    """
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        message = f"must be {KEY_BYTES} bytes in base64; make one with: openssl rand -base64 32"
        raise NoKey(message)
    return key


class SymmetricKeys:
    """Keys from the settings, as new ones are; fulfils `keys.base.KeyEncryption`."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Take keys, the current one first."""
        self._keys = {key_id(key): key for key in keys}
        self._current = key_id(keys[0])

    @property
    def current_id(self) -> str:
        """See `KeyEncryption`."""
        return self._current

    def knows(self, kek_id: str) -> bool:
        """See `KeyEncryption`."""
        return kek_id in self._keys

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        """See `KeyEncryption`."""
        return WrappedKey(self._current, wrap(self._keys[self._current], data_key, vault_id))

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        """See `KeyEncryption`."""
        if not self.knows(key.kek_id):
            raise Unopenable
        return unwrap(self._keys[key.kek_id], key.data, vault_id)

    async def renew(self) -> None:
        """Leave it to the settings, which name the current key."""

    async def retire(self, in_use: set[str]) -> None:
        """Leave it to the settings."""

    def _use(self, keys: Sequence[bytes]) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._current = key_id(keys[0])

    def _ids(self) -> set[str]:
        return set(self._keys)
