"""Lines of JSON on two pipes."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any, Final

LONGEST_LINE: Final = 256 * 1024 * 1024
"""Bytes. A run brings the whole conversation."""


class Pipes:
    """The agent's end of the line."""

    def __init__(self, reader: asyncio.StreamReader, writes: int) -> None:
        """Take both ends; see `open_pipes`."""
        self._reader = reader
        self._writes = writes

    async def read(self) -> dict[str, Any] | None:
        """Return the next line; None once there are no more."""
        try:
            return json.loads(await self._reader.readuntil(b"\n"))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def send(self, kind: str, **fields: object) -> None:
        """Write a line. It waits for as long as the daemon does not read.

        Raises:
            OSError: The daemon is gone.
        """
        line = json.dumps({"type": kind, **fields}, separators=(",", ":")).encode() + b"\n"
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._writes, rest) :]


async def open_pipes(reads: int, writes: int) -> Pipes:
    """Return what is read from one descriptor, and written to the other; the first is owned."""
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
    pipe = os.fdopen(reads, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), pipe
    )
    return Pipes(reader, writes)
