"""From an origin to a connection: look up, connect, shake hands.

`resolve` is the hook for rules about destinations: what it returns, and nothing else, is dialled.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from aiohappyeyeballs import (
    start_connection,  # pyright: ignore[reportUnknownVariableType] - a tuple left open in its types
)

from tollhouse.inference.upstream.connection import Connection
from tollhouse.inference.upstream.errors import ConnectFailed, ConnectionLost
from tollhouse.inference.upstream.tls import TlsLayer

if TYPE_CHECKING:
    from tollhouse.inference.upstream.connection import Home
    from tollhouse.inference.upstream.head import Origin

AddressInfo = tuple[int, int, int, str, tuple[Any, ...]]
"""As `socket.getaddrinfo` returns them."""

Resolve = Callable[[str, int], Awaitable[Sequence[AddressInfo]]]
"""From a host and a port to addresses; raises `OSError` where there is none."""

_HAPPY_EYEBALLS_SECONDS: Final = 0.25
"""RFC 8305, section 5: the recommended Connection Attempt Delay."""


class SystemResolver:
    """Asks the system; requests for one name share one lookup.

    A lookup occupies a thread until the system answers, which cannot be cancelled. Sharing keeps
    a name server that hangs from taking one thread for each request.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._lookups: dict[tuple[str, int], asyncio.Task[list[AddressInfo]]] = {}

    async def __call__(self, host: str, port: int) -> Sequence[AddressInfo]:
        """Return the addresses of a host.

        Raises:
            OSError: It has none.
        """
        with suppress(socket.gaierror):
            return _numeric(host, port)
        lookup = self._lookups.get((host, port))
        if lookup is None:
            lookup = asyncio.create_task(_look_up(host, port))
            self._lookups[host, port] = lookup
            lookup.add_done_callback(lambda done: self._forget((host, port), done))
        return await asyncio.shield(lookup)

    def close(self) -> None:
        """Wait for no answer any more."""
        for lookup in tuple(self._lookups.values()):
            lookup.cancel()

    def _forget(self, key: tuple[str, int], done: asyncio.Task[list[AddressInfo]]) -> None:
        self._lookups.pop(key, None)
        if not done.cancelled():
            done.exception()  # whoever asked may have gone: an error is not left unlooked at


class Dialer:
    """Opens connections."""

    def __init__(self, tls: ssl.SSLContext | None, resolve: Resolve) -> None:
        """Take what verifies servers, the system's authorities where it is None."""
        self._tls = tls
        self._resolve = resolve

    async def dial(self, origin: Origin, home: Home) -> Connection:
        """Return a connection, after the TLS handshake where the origin wants it.

        Raises:
            ConnectFailed: There is none.
        """
        try:
            tls = self._layer(origin.host) if origin.scheme == "https" else None
            sock = await start_connection(
                await self._resolve(origin.host, origin.port),
                happy_eyeballs_delay=_HAPPY_EYEBALLS_SECONDS,
                socket_factory=open_socket,
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectFailed(f"cannot connect: {_said(error)}", sent=False) from error
        connection = await _wrap(sock, home, tls)
        try:
            await connection.secured()
        except ConnectionLost as error:
            message = f"the server closed the connection in the TLS handshake: {error}"
            raise ConnectFailed(message, sent=False) from error
        except BaseException:
            connection.close(ConnectFailed("the handshake was given up", sent=False))
            raise
        if connection.closed:
            raise ConnectFailed("the server spoke before it was asked", sent=False)
        return connection

    def _layer(self, server_name: str) -> TlsLayer:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return TlsLayer(self._tls, server_name)


async def _wrap(sock: socket.socket, home: Home, tls: TlsLayer | None) -> Connection:
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(lambda: Connection(home, sock, tls), sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection


def open_socket(info: AddressInfo) -> socket.socket:
    """Return a socket that sends at once and probes a silent peer."""
    family, kind, proto, _, _ = info
    sock = socket.socket(family, kind, proto)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


async def _look_up(host: str, port: int) -> list[AddressInfo]:
    loop = asyncio.get_running_loop()
    return [*await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def _numeric(host: str, port: int) -> list[AddressInfo]:
    return [*socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)]


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
