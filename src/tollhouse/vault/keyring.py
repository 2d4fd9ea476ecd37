"""Data keys, opened once and remembered; nothing else of a vault is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.kernel.errors import Unavailable
from tollhouse.vault.envelope import Unopenable, new_key
from tollhouse.vault.keys.base import KeysUnavailable

if TYPE_CHECKING:
    from tollhouse.vault.keys.base import KeyEncryption
    from tollhouse.vault.types import Vault, WrappedKey

MOST_REMEMBERED: Final = 10_000
_log = structlog.get_logger(__name__)


class Keyring:
    """Opens data keys."""

    def __init__(self, keys: KeyEncryption) -> None:
        """Take the key-encryption keys."""
        self.keys = keys
        self._open: dict[str, bytes] = {}

    async def new(self, vault_id: str) -> WrappedKey:
        """Return a new data key for a vault, wrapped.

        Raises:
            Unavailable: The key-encryption keys cannot be used now.
        """
        try:
            return await self.keys.wrap(new_key(), vault_id)
        except KeysUnavailable as error:
            raise _unavailable(vault_id, error) from error

    def known(self, vault_id: str) -> bytes | None:
        """Return a vault's data key if it was opened before."""
        return self._open.get(vault_id)

    def forget(self, vault_id: str) -> None:
        """Drop the key of a vault that is gone."""
        self._open.pop(vault_id, None)

    async def key(self, vault: Vault) -> bytes:
        """Return a vault's data key.

        Raises:
            Unavailable: It cannot be opened, or not now.
        """
        known = self.known(vault.id)
        if known is not None:
            return known
        try:
            opened = await self.keys.unwrap(vault.key, vault.id)
        except (KeysUnavailable, Unopenable) as error:
            raise _unavailable(vault.id, error) from error
        if len(self._open) >= MOST_REMEMBERED:
            self._open.clear()
        self._open[vault.id] = opened
        return opened


def _unavailable(vault_id: str, error: KeysUnavailable | Unopenable) -> Unavailable:
    if isinstance(error, KeysUnavailable):
        _log.error("vault_key_not_opened", vault=vault_id, reason=error.reason)
        return Unavailable("The vault's key cannot be used now; try again later.", retry_after=5)
    _log.error("vault_key_not_opened", vault=vault_id, reason="its data key does not open")
    message = "The vault's key does not open; an operator has to put the right one back."
    return Unavailable(message, metadata={"retryable": False})
