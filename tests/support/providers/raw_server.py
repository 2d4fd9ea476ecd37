r"""A TCP server that plays scripted HTTP bytes, and ends connections at any point.

    async with RawServer(ssl_context=None) as server:
        server.behave = say(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", b"half", End.RST)
        ... the client calls server.url ...
        assert server.peers[-1].closed_at is not None

`behave` is called for each request when its head has arrived, so a test may change it while
connections are idle in the client's pool. `greet` is called when a connection is accepted.

For failures before a connection: `refusing_port()` and `unresponsive_port()`.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import Awaitable, Callable, Generator
from typing import Final, Self, cast

from tests.support.providers.byte_script import End, Pause, Step

_HEAD_END: Final = b"\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_FILLERS: Final = 4
MAX_KEPT_BYTES: Final = 65_536
"""Received bytes that are kept of each connection."""


class Peer(asyncio.Protocol):
    """The server side of one connection."""

    def __init__(self, server: RawServer) -> None:
        self._server = server
        self._buffer = bytearray()
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.transport: asyncio.Transport
        self.requests = 0
        """Request heads received."""
        self.head = b""
        """The last request's head, with the empty line at its end."""
        self.received = 0
        """Bytes received, after TLS."""
        self.arrived = bytearray()
        """The first received bytes, up to `MAX_KEPT_BYTES`."""
        self.closed_at: float | None = None
        """When (`time.monotonic`) the client or the server closed the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        self.transport = cast("asyncio.Transport", transport)
        self._server.peers.append(self)
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def data_received(self, data: bytes) -> None:
        """Buffer received data."""
        self.received += len(data)
        self.arrived += data[: MAX_KEPT_BYTES - len(self.arrived)]
        self._buffer += data
        self._news.set()

    def eof_received(self) -> None:
        """Record that the client closed."""
        self._leave()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop serving."""
        del exc
        self._leave()
        if self._task is not None:
            self._task.cancel()

    def _leave(self) -> None:
        if self.closed_at is None:
            self.closed_at = time.monotonic()
        self._news.set()

    async def _serve(self) -> None:
        await self._server.greet(self)
        while True:
            self.head = await self._take_head()
            self.requests += 1
            await self._server.behave(self)

    async def _more(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def _take_head(self) -> bytes:
        while (end := self._buffer.find(_HEAD_END)) < 0:
            await self._more()
        return await self._take(end + len(_HEAD_END))

    @property
    def fields(self) -> dict[str, str]:
        """The header fields of the last request, names in lower case."""
        lines = self.head.decode("latin-1").split("\r\n")[1:-2]
        pairs = (line.partition(":") for line in lines)
        return {name.lower(): value.strip() for name, _, value in pairs}

    async def body(self) -> bytes:
        """Read the body, counted or chunked, of the request whose head arrived last."""
        if "chunked" not in self.fields.get("transfer-encoding", ""):
            return await self._take(int(self.fields.get("content-length", "0")))
        body = b""
        while size := int((await self._take_line()).partition(b";")[0], 16):
            body += (await self._take(size + 2))[:-2]
        await self._take_line()
        return body

    async def _take_line(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) < 0:
            await self._more()
        return (await self._take(end + 2))[:-2]

    async def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            await self._more()
        taken = bytes(self._buffer[:size])
        del self._buffer[:size]
        return taken

    async def wait_closed(self) -> float:
        """Wait until the client has closed; return when it did (`time.monotonic`)."""
        while self.closed_at is None:
            await self._more()
        return self.closed_at

    async def play(self, *script: Step) -> None:
        """Play a script: write, pause and end the connection."""
        for step in script:
            if isinstance(step, bytes):
                self.transport.write(step)
            elif isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
            elif step is End.HANG:
                await asyncio.get_running_loop().create_future()
            else:
                self._end(step)

    def _end(self, how: End) -> None:
        if how is End.EOF:
            self.transport.close()
            return
        if how is End.RST:
            sock = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self.transport.abort()


Behaviour = Callable[[Peer], Awaitable[None]]


def say(*script: Step) -> Behaviour:
    """Return a behaviour that reads the whole request and then plays the script."""

    async def behave(peer: Peer) -> None:
        await peer.body()
        await peer.play(*script)

    return behave


def interrupt(*script: Step) -> Behaviour:
    """Return a behaviour that plays the script as soon as the request's head is there."""

    async def behave(peer: Peer) -> None:
        await peer.play(*script)

    return behave


def reply(body: bytes, status: str = "200 OK", fields: bytes = b"") -> bytes:
    """Return a counted response; `fields` holds further header lines, each with its CRLF."""
    head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n".encode()
    return head + fields + b"\r\n" + body


async def echo(peer: Peer) -> None:
    """Respond with the body of the request."""
    await peer.play(reply(await peer.body()))


async def _nothing(_peer: Peer) -> None:
    """Do nothing when a connection is accepted."""


class RawServer:
    """Listens on 127.0.0.1, plain or with TLS."""

    def __init__(self, *, port: int = 0, ssl_context: ssl.SSLContext | None = None) -> None:
        self._ssl_context = ssl_context
        self.behave: Behaviour = echo
        self.greet: Behaviour = _nothing
        self.peers: list[Peer] = []
        """Every connection since the start."""
        self.port = port

    async def __aenter__(self) -> Self:
        self._server = await asyncio.get_running_loop().create_server(
            lambda: Peer(self), "127.0.0.1", self.port, ssl=self._ssl_context, backlog=4096
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for peer in self.peers:
            peer.transport.abort()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """The root URL; a certificate must be valid for 127.0.0.1."""
        scheme = "http" if self._ssl_context is None else "https"
        return f"{scheme}://127.0.0.1:{self.port}/"

    @property
    def requests(self) -> int:
        """Requests received over all connections."""
        return sum(peer.requests for peer in self.peers)

    @property
    def open_peers(self) -> list[Peer]:
        """The connections that are still open."""
        return [peer for peer in self.peers if peer.closed_at is None]


@contextlib.contextmanager
def refusing_port() -> Generator[int]:
    """Hold a port of 127.0.0.1 at which every connection is refused."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@contextlib.contextmanager
def unresponsive_port() -> Generator[int]:
    """Hold a port of 127.0.0.1 that answers no connection attempt: its queue is full.

    Source: listen(2); Linux drops the SYN where the accept queue is full.
    """
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(_FILLERS):
            filler = stack.enter_context(socket.socket())
            filler.settimeout(0)
            filler.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]
