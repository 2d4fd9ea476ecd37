"""A connection as the proxy uses it: bytes in and out, with TLS or without, and how it ended.

Built on the event loop's streams; TLS is our own layer above them (see `outbound.tls`).
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from tollhouse.outbound.tls import TlsLayer

PIECE: Final = 65_536
"""Bytes that are read at once, at most; what waits on either side is a few of these."""
_GOODBYE_SECONDS: Final = 2.0
"""How long a peer may take to let us close in order."""
_MOST_UNREAD: Final = 1_048_576
"""Bytes of a peer's that are thrown away so that it reads what it was told."""


class Gone(Exception):
    """The other side is gone, or what it sends cannot be understood."""


class _Reader(asyncio.StreamReader):
    """Also tells at once that nothing follows, when nobody reads."""

    on_end: Callable[[], None] | None = None
    over: bool = False
    waiting: int = 0

    def feed_data(self, data: Any) -> None:  # noqa: ANN401 - what the base class takes
        self.waiting += len(data)
        super().feed_data(data)

    def feed_eof(self) -> None:
        super().feed_eof()
        self._tell()

    def set_exception(self, exc: Exception) -> None:
        super().set_exception(exc)
        self._tell()

    def _tell(self) -> None:
        self.over = True
        if self.on_end is not None:
            self.on_end()


class Wire:
    """One connection."""

    __slots__ = ("_early", "_has_ended", "_reader", "_tls", "_writer", "touched")

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
        """Take both directions."""
        self._reader = reader
        self._writer = writer
        self._tls: TlsLayer | None = None
        self._early = b""
        self._has_ended = False
        self.touched = asyncio.get_running_loop().time()
        """When something last went through, on the event loop's clock."""

    def when_ended(self, tell: Callable[[], None] | None) -> None:
        """Have it told at once, if nothing more can come from the other side."""
        self._reader.on_end = tell
        if tell is not None and self._reader.over:
            tell()

    @property
    def ended(self) -> bool:
        """Whether nothing more can come from the other side."""
        said_so = self._tls is not None and self._tls.ended
        return said_so or self._reader.over or self._writer.is_closing()

    @property
    def quiet(self) -> bool:
        """Whether the other side has said nothing that was not read yet."""
        return not self._reader.waiting and not self._early

    async def secure(self, layer: TlsLayer, received: bytes = b"") -> None:
        """Shake hands; everything is encrypted from then on.

        Args:
            layer: Our side of it.
            received: What the other side has said already.

        Raises:
            ssl.SSLError: It is not who it should be, or speaks no TLS that we do.
            Gone: It left.
        """
        while not self._handshake(layer, received):
            received = await self._read()
            if not received:
                raise Gone
        self._tls = layer
        self._early = layer.decrypt(b"")

    def _handshake(self, layer: TlsLayer, received: bytes) -> bool:
        try:
            return layer.handshake(received)
        finally:
            self._writer.write(layer.outgoing())

    async def receive(self) -> bytes:
        """Return what comes next; nothing once the other side has ended in order.

        Raises:
            Gone: It ended otherwise.
        """
        tls = self._tls
        if tls is None:
            return await self._read()
        data, self._early = self._early, b""
        while not data and not tls.ended:
            received = await self._read()
            if not received:
                raise Gone
            data = self._decrypt(tls, received)
        return data

    def _decrypt(self, tls: TlsLayer, received: bytes) -> bytes:
        try:
            data = tls.decrypt(received)
        except ssl.SSLError:
            raise Gone from None
        if not self._has_ended and (answer := tls.outgoing()):
            self._writer.write(answer)
        return data

    async def _read(self) -> bytes:
        try:
            data = await self._reader.read(PIECE)
        except OSError:
            raise Gone from None
        self._reader.waiting -= len(data)
        self.touched = asyncio.get_running_loop().time()
        return data

    async def send(self, data: bytes) -> None:
        """Send, and wait while too much is on its way.

        Raises:
            Gone: The other side is.
        """
        if not data:
            return
        try:
            self._writer.write(data if self._tls is None else self._tls.encrypt(data))
            await self._writer.drain()
        except (OSError, ssl.SSLError):
            raise Gone from None
        self.touched = asyncio.get_running_loop().time()

    def end(self) -> None:
        """Say that nothing follows; what comes is still read."""
        if self._has_ended or self._writer.is_closing():
            return
        self._has_ended = True
        try:
            if self._tls is not None:
                self._writer.write(self._tls.goodbye())
            self._writer.write_eof()
        except OSError:
            self.abort()

    async def close(self) -> None:
        """Say that nothing follows, and close once the other side has heard it or has no time."""
        self.when_ended(None)
        self.end()
        try:
            async with asyncio.timeout(_GOODBYE_SECONDS):
                await self._writer.drain()
                await self._read_away()
        except (OSError, Gone, TimeoutError):
            pass
        finally:
            self.abort()

    async def _read_away(self) -> None:
        """Read what nobody wants: a socket that closes with something unread resets its peer."""
        unread = 0
        while unread < _MOST_UNREAD and (data := await self._read()):
            unread += len(data)

    def abort(self) -> None:
        """Drop it."""
        self._writer.transport.abort()


def listening_protocol(accepted: Callable[[Wire], None]) -> asyncio.StreamReaderProtocol:
    """Return the protocol of a new connection of a client's; `accepted` is told of it."""
    reader = _Reader(limit=PIECE)

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted(Wire(reader, writer))

    return asyncio.StreamReaderProtocol(reader, connected)


async def wire_on(sock: socket.socket) -> Wire:
    """Return a connection on a socket that is connected; the socket is its own then.

    Raises:
        OSError: It is not connected any more.
    """
    loop = asyncio.get_running_loop()
    reader = _Reader(limit=PIECE)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    return Wire(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
