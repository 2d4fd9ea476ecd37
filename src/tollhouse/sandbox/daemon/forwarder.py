"""From a port to the egress proxy's socket: many programs know proxies on ports alone.

The daemon does this in its sandbox, `tollhouse egress run` on its own machine.

Both directions end apart, as they do without it: whoever has sent all may still receive.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

ADDRESS: Final = "127.0.0.1"
MOST_CONNECTIONS: Final = 256
"""At a time, through the daemon."""
_PIECE: Final = 65_536


@asynccontextmanager
async def forwarding(path: str, port: int, *, most: int | None) -> AsyncGenerator[int]:
    """Pass connections from a port of 127.0.0.1 on for as long as the block runs; yield the port.

    The proxy's socket is looked up for each connection. Port 0 is any that is free. With `most`,
    more connections at a time are closed at once.
    """
    running: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if most is not None and len(running) >= most:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(_forward(path, reader, writer))
        running.add(task)
        task.add_done_callback(running.discard)

    server = await asyncio.start_server(accept, ADDRESS, port)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _forward(path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        inner_reader, inner_writer = await asyncio.open_unix_connection(path)
    except BaseException as error:
        writer.transport.abort()
        if isinstance(error, OSError):  # nobody listens: the intern has no way out at the moment
            return
        raise
    directions = [
        asyncio.ensure_future(_pass_on(reader, inner_writer)),
        asyncio.ensure_future(_pass_on(inner_reader, writer)),
    ]
    try:
        await asyncio.gather(*directions)
        # Not aborted: what was written last may wait for a slow reader.
        for end in (writer, inner_writer):
            end.close()
            await end.wait_closed()
    except OSError:
        pass  # one end left; so does the other
    finally:
        for direction in directions:
            direction.cancel()
        await asyncio.gather(*directions, return_exceptions=True)
        writer.transport.abort()
        inner_writer.transport.abort()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
