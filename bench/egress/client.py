"""A client of the proxy or of the host: one connection, HTTP/1.1 over our own TLS layer."""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING, Final

import msgspec

from bench.egress.hosts import PLACEHOLDER, SHOWN
from tollhouse.outbound.tls import TlsLayer

if TYPE_CHECKING:
    import ssl

_PIECE: Final = 65_536
_END: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length: "
_OK: Final = b"HTTP/1.1 200 "


class Route(msgspec.Struct, frozen=True):
    """The route to a host: direct or through a proxy."""

    port: int
    """The host's port."""
    trust: str
    """File of the certificate authorities to trust."""
    socket: str | None = None
    """The proxy's socket, where it has a path."""
    password: str = ""
    proxy_port: int | None = None
    """The proxy's port, where it has one."""

    @property
    def is_direct(self) -> bool:
        """Whether it leads to the host without a proxy."""
        return self.socket is None and self.proxy_port is None


class UnexpectedResponse(Exception):
    """A response is not the expected one."""


class Client:
    """A connection to a host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._tls: TlsLayer | None = None

    async def tunnel(self, route: Route, host: str) -> None:
        """Ask the proxy for a tunnel.

        Raises:
            UnexpectedResponse: It refuses.
        """
        password = base64.b64encode(f"tollhouse:{route.password}".encode()).decode()
        head = (
            f"CONNECT {host}:{route.port} HTTP/1.1\r\nHost: {host}:{route.port}\r\n"
            f"Proxy-Authorization: Basic {password}\r\n\r\n"
        )
        self._writer.write(head.encode())
        answer = await self._reader.readuntil(_END)
        if not answer.startswith(_OK):
            raise UnexpectedResponse(answer[:200].decode("latin-1"))

    async def handshake(self, context: ssl.SSLContext, host: str) -> None:
        """Perform the TLS handshake."""
        layer, received = TlsLayer(context, host), b""
        while not layer.handshake(received):
            self._writer.write(layer.outgoing())
            received = await self._reader.read(_PIECE)
            if not received:
                raise UnexpectedResponse("the handshake was cut")
        self._writer.write(layer.outgoing())
        self._tls = layer

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data if self._tls is None else self._tls.encrypt(data))
        await self._writer.drain()

    async def request(self, request: bytes) -> int:
        """Send a request, and return the size of its response's body.

        Raises:
            UnexpectedResponse: It is not a 200, or is cut.
        """
        await self.send(request)
        return await self.answer()

    async def answer(self) -> int:
        """Read one response to its end."""
        data = b""
        while _END not in data:
            data += await self._receive()
        head, _, body = data.partition(_END)
        if not head.startswith(_OK):
            raise UnexpectedResponse(data[:400].decode("latin-1"))
        size = int((head + b"\r\n").lower().partition(_LENGTH)[2].partition(b"\r\n")[0])
        got = len(body)
        while got < size:
            got += len(await self._receive())
        if got != size:
            raise UnexpectedResponse(f"{got} bytes in place of {size}")
        return size

    async def _receive(self) -> bytes:
        tls = self._tls
        data = b""
        while not data:
            received = await self._reader.read(_PIECE)
            if not received:
                raise UnexpectedResponse("the connection was cut")
            data = received if tls is None else tls.decrypt(received)
        return data

    def close(self) -> None:
        """Close the connection."""
        self._writer.transport.abort()


async def connect(route: Route, host: str, context: ssl.SSLContext) -> Client:
    """Return a connection to a host after its handshake.

    Raises:
        UnexpectedResponse: The proxy refuses.
    """
    if route.socket is not None:
        streams = await asyncio.open_unix_connection(route.socket)
    else:
        streams = await asyncio.open_connection("127.0.0.1", route.proxy_port or route.port)
    client = Client(*streams)
    if not route.is_direct:
        await client.tunnel(route, host)
    await client.handshake(context, host)
    return client


def request(route: Route, host: str, *, secret: bool) -> bytes:
    """Return a small request, as a client library sends it.

    Args:
        route: The route; a direct one sends the value itself.
        host: To whom.
        secret: Whether it shows a secret.
    """
    return _head("GET /secret" if secret else "GET /plain", route, host, secret=secret)


def body_request(route: Route, host: str, size: int, *, up: bool, secret: bool) -> bytes:
    """Return the head of a request with a large body, or for one.

    Args:
        route: The route.
        host: To whom.
        size: Bytes of the body.
        up: Whether the client sends it.
        secret: Whether it shows a secret.
    """
    if up:
        return _head("POST /up", route, host, f"Content-Length: {size}", secret=secret)
    return _head(f"GET /down/{size}", route, host, secret=secret)


def _head(asked: str, route: Route, host: str, *more: str, secret: bool) -> bytes:
    lines = [
        f"{asked} HTTP/1.1",
        f"Host: {host}:{route.port}",
        "User-Agent: bench/1.0",
        "Accept-Encoding: gzip, deflate",
        "Accept: application/json",
        "Connection: keep-alive",
        *more,
    ]
    if secret:
        shown = SHOWN if route.is_direct else PLACEHOLDER
        lines.append(f"Authorization: {shown.decode()}")
    return "\r\n".join(lines).encode() + _END
