"""Key-encryption keys in a file of mode 0600, one in a line as base64, the current one first.

The file is made at the first start and is worth as much as all secrets together: whoever has it and
the database has them. Keep a copy of it, and not where the database's copies are.

    renew     a new first line is written before anything is wrapped with it
    retire    lines go once nothing is wrapped with their keys any more
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.folders import sync_folder
from tollhouse.kernel.start import StartError
from tollhouse.vault.envelope import new_key
from tollhouse.vault.keys.base import KeysUnavailable
from tollhouse.vault.keys.symmetric import NoKey, SymmetricKeys, as_text, from_text, key_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tollhouse.vault.types import WrappedKey

_OTHERS: Final = 0o077
_LARGEST_FILE: Final = 65_536


class LocalKeys(SymmetricKeys):
    """Keys in a file; fulfils `keys.base.KeyEncryption`.

    Other processes may change the file: it is read again, under a lock, before it is written, and
    for a key that is not known.
    """

    def __init__(self, path: Path, keys: Sequence[bytes]) -> None:
        """Take a file and what stands in it."""
        super().__init__(keys)
        self._path = path

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        """See `KeyEncryption`."""
        if not self.knows(key.kek_id):
            await self._change(lambda keys: keys)
        return await super().unwrap(key, vault_id)

    async def renew(self) -> None:
        """See `KeyEncryption`."""
        await self._change(lambda keys: [new_key(), *keys])

    async def retire(self, in_use: set[str]) -> None:
        """See `KeyEncryption`; keys that others put there meanwhile are theirs to retire."""
        unused = self._ids() - in_use - {self.current_id}

        def left(keys: Sequence[bytes]) -> Sequence[bytes]:
            return [keys[0], *(key for key in keys[1:] if key_id(key) not in unused)]

        await self._change(left)

    async def _change(self, change: Callable[[Sequence[bytes]], Sequence[bytes]]) -> None:
        try:
            self._use(await asyncio.to_thread(_changed, self._path, change))
        except OSError as error:
            raise KeysUnavailable(f"{self._path} cannot be used ({error.strerror})") from error
        except StartError as error:
            raise KeysUnavailable(str(error)) from error


def open_local(path: Path, *, make: bool) -> LocalKeys | None:
    """Return the keys of a file; a link leads to the file that is meant.

    Args:
        path: The file.
        make: Whether it is made where it is missing; else there is None.

    Raises:
        StartError: It cannot be read or made, others may read it, or it holds something else.
    """
    path = path.resolve()
    try:
        keys = _read_keys(path)
        if keys is None and make:
            with suppress(FileExistsError):  # somebody else made it in this moment
                _write_keys(path, [new_key()], new=True)
            keys = _read_keys(path)
    except OSError as error:
        message = f"the vault's key file {path} cannot be used ({error.strerror or error})"
        raise StartError(message) from error
    return None if keys is None else LocalKeys(path, keys)


def _changed(path: Path, change: Callable[[Sequence[bytes]], Sequence[bytes]]) -> Sequence[bytes]:
    """Change a file that no other process changes meanwhile; return what stands in it."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        keys = _read_keys(path)
        if keys is None:
            raise FileNotFoundError(errno.ENOENT, "it is gone")
        changed = change(keys)
        if changed != keys:
            _write_keys(path, changed, new=False)
        return changed
    finally:
        os.close(folder)


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


def _write_keys(path: Path, keys: Sequence[bytes], *, new: bool) -> None:
    """Put keys into a file in one step, durable before it returns.

    Raises:
        FileExistsError: It was to be new, and is there.
        OSError: That cannot be done; what was there stays.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(as_text(key) + "\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        if new:
            os.link(temporary, path)
        else:
            Path(temporary).replace(path)
    finally:
        with suppress(FileNotFoundError):
            Path(temporary).unlink()
    sync_folder(path.parent)
