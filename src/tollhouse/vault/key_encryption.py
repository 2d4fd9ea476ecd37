"""Key-encryption keys, which wrap data keys, and the data keys that are open.

`SymmetricKeys`: from the settings.

`LocalKeys`: a file of mode 0600, one key in a line as base64, the current one first.

The file is made at the first start and is worth as much as all secrets together: whoever has it and
the database has them. Keep a copy of it, and not where the database's copies are.

    renew     a new first line is written before anything is wrapped with it
    retire    lines are removed once nothing is wrapped with their keys any more

`CommandKeys`: keys that never come here. A program of the operator's asks whoever has them.

    PROGRAM ARGUMENTS... wrap      stdin: {"vault": "...", "key": "<base64>"}
                                   stdout: {"wrapped": "<base64>"}
    PROGRAM ARGUMENTS... unwrap    stdin: {"vault": "...", "wrapped": "<base64>"}
                                   stdout: {"key": "<base64>"}

So any key management service or hardware module can be used. What the wrapped key holds is up to
the program; it should be bound to the vault's id. Any exit code but 0 is a failure; what the
program writes to its standard error goes to ours.
"""

import asyncio
import base64
import errno
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final, Protocol

import structlog

from tollhouse.kernel.errors import StartError, Unavailable
from tollhouse.kernel.files import sync_folder
from tollhouse.kernel.subprocesses import start
from tollhouse.vault.envelope import KEY_BYTES, Unopenable, new_key, unwrap, wrap
from tollhouse.vault.types import Vault, WrappedKey

_ID_DIGITS: Final = 16
_COMMAND_ID: Final = "command"
MOST_REMEMBERED: Final = 10_000
"""Data keys that are open."""
_OTHERS: Final = 0o077
_LARGEST_FILE: Final = 65_536
_log = structlog.get_logger(__name__)


class KeysUnavailable(Exception):
    """The source does not answer, or not with a key; `reason` has no key material in it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class KeyEncryption(Protocol):
    """Wraps data keys, and opens them again.

    `wrap`, `unwrap` and `renew` raise `KeysUnavailable` where that is not possible now.
    """

    @property
    def current_id(self) -> str:
        """The key that `wrap` uses, by a name that tells nothing of it."""
        ...

    def knows(self, kek_id: str) -> bool:
        """Tell whether what was wrapped with a key can be opened."""
        ...

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        """Return a data key wrapped with the current key."""
        ...

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        """Return a data key.

        Raises `Unopenable` where it was wrapped with another key or for another vault, or was
        changed.
        """
        ...

    async def renew(self) -> None:
        """Make a new key the current one, where the source makes its keys itself."""
        ...

    async def retire(self, in_use: set[str]) -> None:
        """Forget every key but the current one and those in use."""
        ...


class WrongKey(StartError):
    """The key that vaults were wrapped with is not there, or is another one."""


class MalformedKey(ValueError):
    """The text is not a key."""


def key_id(key: bytes) -> str:
    """Return the id of a key: a hash, which tells nothing about the key."""
    return sha256(b"tollhouse/kek-id/1" + key).hexdigest()[:_ID_DIGITS]


def encode_key(key: bytes) -> str:
    """Return a key as base64."""
    return base64.b64encode(key).decode()


def decode_key(text: str) -> bytes:
    """Return the key that a text holds; raises `MalformedKey` unless it is 32 bytes in base64."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        message = f"must be {KEY_BYTES} bytes in base64; make one with: openssl rand -base64 32"
        raise MalformedKey(message)
    return key


class SymmetricKeys:
    """Keys from the settings: the first wraps, all of them unwrap; fulfils `KeyEncryption`."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        self._use(keys)

    def knows(self, kek_id: str) -> bool:
        """See `KeyEncryption`."""
        return kek_id in self._keys

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        """See `KeyEncryption`."""
        key = self._keys[self.current_id]
        return WrappedKey(self.current_id, wrap(key, data_key, vault_id))

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
        self.current_id = key_id(keys[0])


@dataclass(eq=False, repr=False)
class Keyring:
    """Opens data keys, and remembers them; nothing else of a vault is remembered."""

    keys: KeyEncryption
    _open: dict[str, bytes] = field(default_factory=dict[str, bytes])

    async def new(self, vault_id: str) -> WrappedKey:
        """Return a new data key for a vault, wrapped; `Unavailable` where that cannot be now."""
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
        """Return a vault's data key; raises `Unavailable` where it cannot be opened, or not now."""
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


class LocalKeys(SymmetricKeys):
    """Keys in a file; fulfils `KeyEncryption`.

    Other processes may change the file: it is read again, under a lock, before it is written, and
    for a key that is not known.
    """

    def __init__(self, path: Path, keys: Sequence[bytes]) -> None:
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
        unused = set(self._keys) - in_use - {self.current_id}

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
    """Return the keys of a file, which is made if need be; None where it is missing and not made.

    Raises `StartError` where it cannot be read or made, others may read it, or it holds something
    else.
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
        raise StartError(f"the vault's key file {path} may be read by others: chmod 600 {path}")
    try:
        keys = [decode_key(line) for line in text.decode("ascii", "replace").split()]
    except MalformedKey as error:
        raise StartError(f"the vault's key file {path} is damaged: each line {error}") from None
    if not keys:
        raise StartError(f"the vault's key file {path} is empty: put its copy back")
    return keys


def _write_keys(path: Path, keys: Sequence[bytes], *, new: bool) -> None:
    """Put keys into a file in one step, durable before it returns; on an error the file stays.

    Raises `FileExistsError` where it was to be new, and is there.
    """
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.writelines(encode_key(key) + "\n" for key in keys)
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


@dataclass(frozen=True, slots=True, repr=False)
class CommandKeys:
    """Keys behind a program; fulfils `KeyEncryption`."""

    command: Sequence[str]
    """The program and its first arguments."""
    seconds: float
    """How long it may take."""
    current_id: str = _COMMAND_ID
    """The one name for whatever the program uses: its wrapped keys say which."""

    def knows(self, kek_id: str) -> bool:
        """See `KeyEncryption`."""
        return kek_id == _COMMAND_ID

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        """See `KeyEncryption`."""
        key = encode_key(data_key)
        return WrappedKey(_COMMAND_ID, await self._ask("wrap", "wrapped", vault=vault_id, key=key))

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        """See `KeyEncryption`."""
        wrapped = encode_key(key.data)
        opened = await self._ask("unwrap", "key", vault=vault_id, wrapped=wrapped)
        if len(opened) != KEY_BYTES:
            message = f"the key program answered unwrap with a key of another size than {KEY_BYTES}"
            raise KeysUnavailable(message)
        return opened

    async def renew(self) -> None:
        """Leave it to the program, which knows its current key."""

    async def retire(self, in_use: set[str]) -> None:
        """Leave it to the program."""

    async def _ask(self, verb: str, field: str, **told: str) -> bytes:
        try:
            pipe = asyncio.subprocess.PIPE
            process = await start(*self.command, verb, stdin=pipe, stdout=pipe)
        except OSError as error:
            raise KeysUnavailable(f"the key program cannot be run ({error.strerror})") from error
        try:
            async with asyncio.timeout(self.seconds):
                said, _ = await process.communicate(json.dumps(told).encode())
        except TimeoutError:
            message = f"the key program took longer than {self.seconds:g} s for {verb}"
            raise KeysUnavailable(message) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            message = f"the key program ended with exit code {process.returncode} for {verb}"
            raise KeysUnavailable(message)
        try:
            return base64.b64decode(json.loads(said)[field], validate=True)
        except (ValueError, KeyError, TypeError):  # a binascii.Error is a ValueError
            # Not the answer itself: it may be a key.
            message = f"the key program's answer to {verb} has no {field!r} in base64"
            raise KeysUnavailable(message) from None
