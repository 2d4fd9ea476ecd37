"""From a port to a session's socket, and back: nothing is lost on the way."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.support.waiting import until_still
from tollhouse.sandbox.daemon.forwarder import forwarding

if TYPE_CHECKING:
    from pathlib import Path

SIZES = range(100_000, 6_000_000, 50_000)
"""Among them is one of which the end stands in the forwarder while all else is on the way."""
PIECE = 65_536


class Sender:
    """Sends each client as many bytes as it asks for."""

    def __init__(self) -> None:
        self.sent = 0

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = int(await reader.read())
        while left:
            piece = min(left, PIECE)
            writer.write(bytes(piece))
            await writer.drain()
            left -= piece
            self.sent += piece
        writer.close()
        await writer.wait_closed()


async def received(port: int, size: int, sender: Sender) -> int:
    """Ask for so many bytes, and read nothing until no more is sent; return how many have come."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(str(size).encode())
    writer.write_eof()
    await until_still(lambda: sender.sent)
    count = 0
    while piece := await reader.read(PIECE):
        count += len(piece)
    writer.close()
    await writer.wait_closed()
    return count


async def test_a_slow_reader_gets_all_that_was_sent_before_the_end(tmp_path: Path) -> None:
    path, sender = tmp_path / "s", Sender()
    server = await asyncio.start_unix_server(sender.answer, str(path))
    async with server, forwarding(str(path), 0, most=None) as port:
        counts = await asyncio.gather(*(received(port, size, sender) for size in SIZES))
    assert counts == list(SIZES)
