"""The ways in: from a port of this machine to the socket that an intern's daemon listens on.

    127.0.0.1:<port> ──(bearer token of that daemon)──> daemon.sock

Each running intern has a port; the same one again, where it is free. What does not begin with a
request that carries the daemon's token goes no further; the daemon itself looks at every request.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_HOST: Final = "127.0.0.1"
_PIECE: Final = 65_536
_LONGEST_HEAD: Final = 65_536
"""Bytes of a request's head."""
_HEAD_SECONDS: Final = 10.0
_MOST_CONNECTIONS: Final = 256
"""Of one intern at once."""
_MOST_ARRIVING: Final = 2_048
"""That have not shown a token yet."""
_REFUSAL: Final = b'{"error":{"code":401,"message":"Invalid or missing token of the daemon"}}'
_REFUSED: Final = (
    b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Type: application/json\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_REFUSAL), _REFUSAL)
)


@dataclass(slots=True)
class _Door:
    path: Path
    token_hash: str
    server: asyncio.Server | None = None
    passing: set[asyncio.Task[None]] = field(default_factory=set)


class Doors:
    """The ways in to every intern that runs here."""

    def __init__(self) -> None:
        """Begin with none."""
        self._doors: dict[str, _Door] = {}
        self._arriving: set[asyncio.Task[None]] = set()

    async def open(
        self, intern_id: str, path: Path, token_hash: str, wanted: int | None = None
    ) -> int:
        """Open the way in to an intern.

        Args:
            intern_id: The intern.
            path: The socket that its daemon listens on.
            token_hash: SHA-256 of its token, in hex.
            wanted: The port that it had, taken again if it is free.

        Returns:
            The port.

        Raises:
            OSError: No port is free.
        """
        await self.close(intern_id)
        door = _Door(path, token_hash)
        door.server = server = await self._serve(door, wanted)
        self._doors[intern_id] = door
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def close(self, intern_id: str) -> None:
        """Close the way in to an intern, with every connection through it."""
        door = self._doors.pop(intern_id, None)
        if door is None:
            return
        if door.server is not None:
            door.server.close()
        await _end(door.passing)

    async def stop(self) -> None:
        """Close every way in."""
        for intern_id in tuple(self._doors):
            await self.close(intern_id)
        await _end(self._arriving)

    async def _serve(self, door: _Door, wanted: int | None) -> asyncio.Server:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if len(self._arriving) >= _MOST_ARRIVING:
                writer.transport.abort()
                return
            task = asyncio.get_running_loop().create_task(self._let_in(door, reader, writer))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

        try:
            return await asyncio.start_server(accept, _HOST, wanted or 0, limit=_LONGEST_HEAD)
        except OSError:
            if not wanted:
                raise
            return await asyncio.start_server(accept, _HOST, 0, limit=_LONGEST_HEAD)

    async def _let_in(
        self, door: _Door, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            if not carries(head, door.token_hash):
                writer.write(_REFUSED)
                await writer.drain()
                writer.close()
            elif len(door.passing) < _MOST_CONNECTIONS:
                passing = asyncio.create_task(_connect(door.path, head, reader, writer))
                door.passing.add(passing)
                passing.add_done_callback(door.passing.discard)
                if (arrived := asyncio.current_task()) is not None:
                    self._arriving.discard(arrived)
                await asyncio.wait({passing})
        except (OSError, EOFError, TimeoutError, asyncio.LimitOverrunError):
            return  # somebody left, or did not speak
        finally:
            if not writer.is_closing():
                writer.transport.abort()


async def _end(tasks: set[asyncio.Task[None]]) -> None:
    ending = tuple(tasks)
    for task in ending:
        task.cancel()
    await asyncio.gather(*ending, return_exceptions=True)


async def _connect(
    path: Path, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    try:
        inner_reader, inner_writer = await asyncio.open_unix_connection(str(path))
    except OSError:
        return  # it has ended
    try:
        inner_writer.write(head)
        sending = asyncio.ensure_future(_copy(reader, inner_writer))
        try:
            await _copy(inner_reader, writer)
            writer.close()  # once what it holds is sent: the daemon has closed
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
    except OSError:
        return  # one end left; so does the other
    finally:
        inner_writer.transport.abort()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()


def carries(head: bytes, token_hash: str) -> bool:
    """Tell whether the head of a request carries a token.

    Args:
        head: From the request line to the empty line.
        token_hash: SHA-256 of the token, in hex.
    """
    given = _values(head, b"authorization")
    if len(given) != 1 or given[0][:7].lower() != b"bearer ":
        return False
    return hmac.compare_digest(sha256(given[0][7:].strip()).hexdigest(), token_hash)


def _values(head: bytes, wanted: bytes) -> list[bytes]:
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return [value.strip() for name, _, value in lines if name.strip().lower() == wanted]
