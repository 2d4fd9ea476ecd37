"""Key-encryption keys in a file of mode 0600, one in a line as base64, the current one first.

The file is made at the first start and is worth as much as all secrets together: whoever has it and
the database has them. Keep a copy of it, and not where the database's copies are.

    renew     a new first line is written before anything is wrapped with it
    retire    lines go once nothing is wrapped with their keys any more
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.start import StartError
from tollhouse.vault.envelope import new_key
from tollhouse.vault.keys.base import KeysUnavailable
from tollhouse.vault.keys.symmetric import NoKey, SymmetricKeys, as_text, from_text, key_id

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHERS: Final = 0o077
_LARGEST_FILE: Final = 65_536


class LocalKeys(SymmetricKeys):
    """Keys in a file; fulfils `keys.base.KeyEncryption`."""

    def __init__(self, path: Path, keys: Sequence[bytes]) -> None:
        """Take a file and what stands in it."""
        super().__init__(keys)
        self._path = path

    async def renew(self) -> None:
        """See `KeyEncryption`."""
        await self._store([new_key(), *self._all()])

    async def retire(self, in_use: set[str]) -> None:
        """See `KeyEncryption`."""
        current, *others = self._all()
        left = [current, *(key for key in others if key_id(key) in in_use)]
        if len(left) <= len(others):
            await self._store(left)

    async def _store(self, keys: Sequence[bytes]) -> None:
        try:
            await asyncio.to_thread(write_keys, self._path, keys)
        except OSError as error:
            raise KeysUnavailable(f"{self._path} cannot be written ({error.strerror})") from error
        self._use(keys)


def open_local(path: Path, *, make: bool) -> LocalKeys | None:
    """Return the keys of a file.

    Args:
        path: The file.
        make: Whether it is made where it is missing; else there is None.

    Raises:
        StartError: It cannot be read or made, others may read it, or it holds something else.
    """
    try:
        keys = _read_keys(path)
        if keys is None:
            if not make:
                return None
            keys = [new_key()]
            write_keys(path, keys)
    except OSError as error:
        message = f"the vault's key file {path} cannot be used ({error.strerror or error})"
        raise StartError(message) from error
    return LocalKeys(path, keys)


def _read_keys(path: Path) -> list[bytes] | None:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            text = file.read(_LARGEST_FILE)
    except FileNotFoundError:
        return None
    if mode & _OTHERS:
        message = f"the vault's key file {path} may be read by others: chmod 600 {path}"
        raise StartError(message)
    try:
        keys = [from_text(line) for line in text.decode("ascii", "replace").split()]
    except NoKey as error:
        raise StartError(f"the vault's key file {path} is damaged: each line {error}") from None
    if not keys:
        raise StartError(f"the vault's key file {path} is empty: put its copy back")
    return keys


def write_keys(path: Path, keys: Sequence[bytes]) -> None:
    """Put keys into a file in one step, durable before it returns.

    Raises:
        OSError: That cannot be done; what was there stays.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(as_text(key) + "\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
