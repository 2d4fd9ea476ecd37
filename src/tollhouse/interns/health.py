"""Asks a daemon whether it is there, over the socket that the host has made for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from tollhouse.interns.daemon_head import head

if TYPE_CHECKING:
    from pathlib import Path

    from tollhouse.kernel.secret import Secret

_ASK_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


async def until_healthy(path: Path, token: Secret) -> None:
    """Wait until a daemon answers; the caller says how long."""
    pause = _PAUSE_SECONDS
    while not await is_healthy(path, token):
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


async def is_healthy(path: Path, token: Secret) -> bool:
    """Tell whether a daemon answers as it should.

    Args:
        path: The socket that it listens on.
        token: Its token.
    """
    with suppress(OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
        async with asyncio.timeout(_ASK_SECONDS):
            return await _ask(path, token)
    return False


async def _ask(path: Path, token: Secret) -> bool:
    reader, writer = await asyncio.open_unix_connection(str(path))
    try:
        writer.write(head("GET /healthz", token))
        await writer.drain()
        answer = await reader.readuntil(b"\r\n")
        return answer.startswith((b"HTTP/1.1 200 ", b"HTTP/1.0 200 "))
    finally:
        writer.transport.abort()
