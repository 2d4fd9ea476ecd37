"""From a port of this machine to a session's socket: most programs know proxies on ports alone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

_PIECE: Final = 65_536


@asynccontextmanager
async def forwarding(path: Path) -> AsyncGenerator[int]:
    """Pass connections on for as long as the block runs.

    Args:
        path: The session's socket.

    Yields:
        The port on 127.0.0.1.
    """
    running: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(_forward(path, reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _forward(path: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(path))
    except OSError:  # the session is over
        writer.transport.abort()
        return
    try:
        await asyncio.gather(_pass_on(reader, inner_writer), _pass_on(inner_reader, writer))
        for each in (writer, inner_writer):
            each.close()
            await each.wait_closed()  # once what it holds is sent, however slowly that is read
    except OSError:
        pass  # one end left; so does the other
    finally:
        writer.transport.abort()
        inner_writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
