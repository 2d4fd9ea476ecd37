"""From an origin to a connection: look up, connect, through a proxy or not, shake hands.

`resolve` is the hook for rules about destinations: what it returns, and nothing else, is dialled.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from tollhouse.inference.upstream.connection import Connection
from tollhouse.inference.upstream.errors import ConnectFailed, ConnectionLost
from tollhouse.inference.upstream.proxy import open_tunnel
from tollhouse.outbound.dialing import connect_to
from tollhouse.outbound.tls import TlsLayer

if TYPE_CHECKING:
    import socket

    from tollhouse.inference.upstream.connection import ConnectionOwner
    from tollhouse.inference.upstream.head import Origin
    from tollhouse.inference.upstream.proxy import Proxy
    from tollhouse.outbound.dialing import Resolve


class Dialer:
    """Opens connections."""

    def __init__(
        self, tls: ssl.SSLContext | None, resolve: Resolve, proxy: Proxy | None = None
    ) -> None:
        """Configure it.

        Args:
            tls: Verifies servers; the system's authorities where it is None.
            resolve: Decides which addresses a name stands for.
            proxy: Connections lead through it, where there is one.
        """
        self._tls = tls
        self._resolve = resolve
        self._proxy = proxy

    async def dial(self, origin: Origin, home: ConnectionOwner) -> Connection:
        """Return a connection, after the TLS handshake where the origin wants it.

        Raises:
            ConnectFailed: There is none.
        """
        try:
            tls = self._layer(origin.host) if origin.scheme == "https" else None
            sock = await self._connect(origin)
        except (OSError, ValueError) as error:
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

    async def _connect(self, origin: Origin) -> socket.socket:
        proxy = self._proxy
        if proxy is None:
            return await connect_to(await self._resolve(origin.host, origin.port))
        sock = await connect_to(await self._resolve(proxy.host, proxy.port))
        if origin.scheme == "https":
            try:
                await open_tunnel(sock, proxy, origin)
            except BaseException:
                sock.close()
                raise
        return sock

    def _layer(self, server_name: str) -> TlsLayer:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return TlsLayer(self._tls, server_name)


async def _wrap(sock: socket.socket, home: ConnectionOwner, tls: TlsLayer | None) -> Connection:
    loop = asyncio.get_running_loop()
    try:
        _, connection = await loop.create_connection(lambda: Connection(home, sock, tls), sock=sock)
    except BaseException:
        sock.close()
        raise
    return connection


def _said(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
