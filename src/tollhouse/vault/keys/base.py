"""What a source of key-encryption keys can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from tollhouse.vault.types import WrappedKey


class KeysUnavailable(Exception):
    """The source does not answer, or not with a key; `reason` has no key material in it."""

    def __init__(self, reason: str) -> None:
        """Say why."""
        super().__init__(reason)
        self.reason = reason


class KeyEncryption(Protocol):
    """Wraps data keys, and opens them again."""

    @property
    def current_id(self) -> str:
        """The key that `wrap` uses, by a name that tells nothing of it."""
        ...

    def knows(self, kek_id: str) -> bool:
        """Tell whether what was wrapped with a key can be opened."""
        ...

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        """Return a data key wrapped with the current key.

        Raises:
            KeysUnavailable: That is not possible now.
        """
        ...

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        """Return a data key.

        Raises:
            KeysUnavailable: That is not possible now.
            Unopenable: It was wrapped with another key or for another vault, or was changed.
        """
        ...

    async def renew(self) -> None:
        """Make a new key the current one, where the source makes its keys itself.

        Raises:
            KeysUnavailable: It cannot be stored.
        """
        ...

    async def retire(self, in_use: set[str]) -> None:
        """Forget every key but the current one and those in use."""
        ...


class WrongKey(StartError):
    """The key that vaults were wrapped with is not there, or is another one."""
