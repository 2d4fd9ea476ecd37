"""A connection as the proxy uses it: bytes in and out, with TLS or without, and how it ended.

Built on the event loop's streams; TLS is our own layer above them (see `outbound.tls`).
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from tollhouse.outbound.tls import TlsLayer
from tollhouse.vault.egress.websocket import FrameRedactor

PIECE: Final = 65_536
"""Bytes that are read at once, at most; what waits on either side is a few of these."""
_GOODBYE_SECONDS: Final = 2.0
"""How long a peer may take to let us close in order."""
_MOST_UNREAD: Final = 1_048_576
"""Bytes of a peer's that are thrown away so that it reads what it was told."""


class PeerDisconnected(Exception):
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


class ByteStream:
    """One connection."""

    __slots__ = ("_early", "_has_ended", "_reader", "_tls", "_writer", "touched")

    def __init__(self, reader: _Reader, writer: asyncio.StreamWriter) -> None:
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

        Raises `ssl.SSLError` where the other side is not who it should be, or speaks no TLS that we
        do, and `PeerDisconnected` where it leaves.
        """
        while not self._handshake(layer, received):
            received = await self._read()
            if not received:
                raise PeerDisconnected
        self._tls = layer
        self._early = layer.decrypt(b"")

    def _handshake(self, layer: TlsLayer, received: bytes) -> bool:
        try:
            return layer.handshake(received)
        finally:
            self._writer.write(layer.outgoing())

    async def receive(self) -> bytes:
        """Return what comes next: nothing after an orderly end, else `PeerDisconnected`."""
        tls = self._tls
        if tls is None:
            return await self._read()
        data, self._early = self._early, b""
        while not data and not tls.ended:
            received = await self._read()
            if not received:
                raise PeerDisconnected
            data = self._decrypt(tls, received)
        return data

    def _decrypt(self, tls: TlsLayer, received: bytes) -> bytes:
        try:
            data = tls.decrypt(received)
        except ssl.SSLError:
            raise PeerDisconnected from None
        if not self._has_ended and (answer := tls.outgoing()):
            self._writer.write(answer)
        return data

    async def _read(self) -> bytes:
        try:
            data = await self._reader.read(PIECE)
        except OSError:
            raise PeerDisconnected from None
        self._reader.waiting -= len(data)
        self.touched = asyncio.get_running_loop().time()
        return data

    async def send(self, data: bytes) -> None:
        """Send, and wait while too much is on its way; raises `PeerDisconnected`."""
        if not data:
            return
        try:
            self._writer.write(data if self._tls is None else self._tls.encrypt(data))
            await self._writer.drain()
        except (OSError, ssl.SSLError):
            raise PeerDisconnected from None
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
                # A socket that closes with something unread resets its peer.
                unread = 0
                while unread < _MOST_UNREAD and (data := await self._read()):
                    unread += len(data)
        except (OSError, PeerDisconnected, TimeoutError):
            pass
        finally:
            self.abort()

    def abort(self) -> None:
        """Drop it."""
        self._writer.transport.abort()


def listening_protocol(accepted: Callable[[ByteStream], None]) -> asyncio.StreamReaderProtocol:
    """Return the protocol of a new connection of a client's; `accepted` is told of it."""
    reader = _Reader(limit=PIECE)

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        accepted(ByteStream(reader, writer))

    return asyncio.StreamReaderProtocol(reader, connected)


async def stream_on(sock: socket.socket) -> ByteStream:
    """Return a connection that owns a socket; an `OSError` says that it is not connected."""
    loop = asyncio.get_running_loop()
    reader = _Reader(limit=PIECE)
    protocol = asyncio.StreamReaderProtocol(reader)
    try:
        transport, _ = await loop.create_connection(lambda: protocol, sock=sock)
    except BaseException:
        sock.close()
        raise
    return ByteStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


SLICE: Final = 2_048
"""Bytes that are searched at once."""
_MINUTE: Final = 60.0


class BandwidthLimiter:
    """An allowance that fills up again, evenly, over a minute."""

    __slots__ = ("_at", "_left", "_most")

    def __init__(self, bytes_per_minute: int) -> None:
        self._most = bytes_per_minute
        self._left = float(bytes_per_minute)
        self._at = asyncio.get_running_loop().time()

    async def consume(self, size: int) -> None:
        """Take some bytes of it; wait until it is not in debt."""
        wait = self.wait(size, asyncio.get_running_loop().time())
        if wait > 0:
            await asyncio.sleep(wait)

    def wait(self, size: int, now: float) -> float:
        """Take some bytes, and return how many seconds it takes until the debt is paid."""
        each_second = self._most / _MINUTE
        self._left = min(float(self._most), self._left + (now - self._at) * each_second) - size
        self._at = now
        return max(0.0, -self._left / each_second)


async def in_slices(feed: Callable[[bytes], bytes], data: bytes) -> bytes:
    """Return what a redactor passes on of some bytes; others get their turn meanwhile."""
    if len(data) <= SLICE:
        return feed(data)
    out = bytearray()
    for at in range(0, len(data), SLICE):
        out += feed(data[at : at + SLICE])
        await asyncio.sleep(0)
    return bytes(out)


async def tunnel(
    client: ByteStream,
    host: ByteStream,
    bandwidth: BandwidthLimiter,
    redactor: FrameRedactor | None = None,
) -> None:
    """Pass bytes on until both ways have ended; the end of one way is told to the other side.

    Raises `PeerDisconnected` where one of them leaves without a word.
    """
    out = asyncio.create_task(_pass_on(client, host, bandwidth, None))
    back = asyncio.create_task(_pass_on(host, client, bandwidth, redactor))
    try:
        done, _ = await asyncio.wait((out, back), return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()
    finally:
        for task in (out, back):
            task.cancel()
        await asyncio.gather(out, back, return_exceptions=True)


async def _pass_on(
    source: ByteStream,
    sink: ByteStream,
    bandwidth: BandwidthLimiter,
    redactor: FrameRedactor | None,
) -> None:
    while data := await source.receive():
        await bandwidth.consume(len(data))
        await sink.send(data if redactor is None else await in_slices(redactor.feed, data))
        if redactor is not None and redactor.broken:
            raise PeerDisconnected
    if redactor is not None:
        await sink.send(redactor.flush())
    sink.end()
