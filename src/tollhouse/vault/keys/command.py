"""Key-encryption keys that never come here: a program of the operator's asks whoever has them.

    PROGRAM ARGUMENTS... wrap      stdin: {"vault": "...", "key": "<base64>"}
                                   stdout: {"wrapped": "<base64>"}
    PROGRAM ARGUMENTS... unwrap    stdin: {"vault": "...", "wrapped": "<base64>"}
                                   stdout: {"key": "<base64>"}

So any key management service or hardware module can be used. The wrapped key is the program's
affair and should be bound to the vault's id. Anything but exit code 0 is a failure; what the
program says on its standard error goes to ours.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from typing import TYPE_CHECKING, Final

from tollhouse.kernel.subprocesses import start
from tollhouse.vault.envelope import KEY_BYTES
from tollhouse.vault.keys.base import KeysUnavailable
from tollhouse.vault.types import WrappedKey

if TYPE_CHECKING:
    from collections.abc import Sequence

_ID: Final = "command"


class CommandKeys:
    """Keys behind a program; fulfils `keys.base.KeyEncryption`."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        """Name the program.

        Args:
            command: The program and its first arguments.
            seconds: How long it may take.
        """
        self._command = tuple(command)
        self._seconds = seconds

    @property
    def current_id(self) -> str:
        """The one name for whatever the program uses: its wrapped keys say which."""
        return _ID

    def knows(self, kek_id: str) -> bool:
        """See `KeyEncryption`."""
        return kek_id == _ID

    async def wrap(self, data_key: bytes, vault_id: str) -> WrappedKey:
        """See `KeyEncryption`."""
        key = base64.b64encode(data_key).decode()
        return WrappedKey(_ID, await self._ask("wrap", "wrapped", vault=vault_id, key=key))

    async def unwrap(self, key: WrappedKey, vault_id: str) -> bytes:
        """See `KeyEncryption`."""
        wrapped = base64.b64encode(key.data).decode()
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
            process = await start(
                *self._command,
                verb,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        except OSError as error:
            raise KeysUnavailable(f"the key program cannot be run ({error.strerror})") from error
        try:
            async with asyncio.timeout(self._seconds):
                said, _ = await process.communicate(json.dumps(told).encode())
        except TimeoutError:
            message = f"the key program took longer than {self._seconds:g} s for {verb}"
            raise KeysUnavailable(message) from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            message = f"the key program ended with exit code {process.returncode} for {verb}"
            raise KeysUnavailable(message)
        return _field(said, field, verb)


def _field(said: bytes, field: str, verb: str) -> bytes:
    try:
        return base64.b64decode(json.loads(said)[field], validate=True)
    except (ValueError, KeyError, TypeError, binascii.Error):
        # Not the answer itself: it may be a key.
        message = f"the key program's answer to {verb} has no {field!r} in base64"
        raise KeysUnavailable(message) from None
