"""The upstream port on our own HTTP/1.1 client.

    start ─ pool ─────── connect ────── head ─────── body ──────── end
            PoolTimeout  ConnectTimeout HeadTimeout  IdleTimeout
            └───────────── TotalTimeout: one hard deadline ──────┘
            sent = False                sent = True

`start` is the one way in; `send` starts a `response` that keeps what comes until it is read.
`parser` knows the bytes of requests and responses, `connection` carries one exchange at a time,
`tls_connection` does so with TLS, `pool` has the places and the resting connections of an origin,
`proxy` is the way through a proxy.

No library's client is used: what they get wrong is listed in `docs/decisions`, and shown by the
fault suite in `tests/component/outbound/http/`.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tollhouse.outbound.dialing import SystemResolver, connect_to
from tollhouse.outbound.http.connection import Connection, StartedExchange
from tollhouse.outbound.http.parser import read_url, request_head, request_start
from tollhouse.outbound.http.pool import OriginPool
from tollhouse.outbound.http.port import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    PoolTimeout,
    TotalTimeout,
    UpstreamError,
)
from tollhouse.outbound.http.proxy import open_tunnel, read_proxy
from tollhouse.outbound.http.response import BufferedResponse
from tollhouse.outbound.http.tls_connection import TlsConnection
from tollhouse.outbound.tls import TlsLayer

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator

    from tollhouse.outbound.dialing import Resolve
    from tollhouse.outbound.http.parser import Origin
    from tollhouse.outbound.http.port import (
        ResponseReceiver,
        TakeResponse,
        TimeLimits,
        UpstreamRequest,
    )

CONNECTIONS_PER_HOST: Final = 256
"""One connection carries one stream, and a stream takes two descriptors, the caller's and ours:
under the usual limit of 1,024 descriptors one host can be busy to the full and leave half of them
to the others."""

IDLE_CONNECTION_SECONDS: Final = 20.0


class HttpUpstream:
    """Fulfils the `Upstream` port.

    It may be built anywhere; the first `send` binds it to the running loop.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        resolve: Resolve | None = None,
        proxy: str | None = None,
        connections_per_host: int = CONNECTIONS_PER_HOST,
        idle_connection_seconds: float = IDLE_CONNECTION_SECONDS,
    ) -> None:
        """Configure the client.

        Args:
            ssl_context: Verifies the servers; the system's authorities where it is None.
            resolve: Decides which addresses a name stands for, and nothing else is dialled; the
                system does where it is None.
            proxy: See `read_proxy`: `https` goes through a CONNECT tunnel, `http` as requests with
                the whole URL. Proxies of the environment are ignored.
            connections_per_host: The most connections to one scheme, host and port; at least 1.
            idle_connection_seconds: A connection that rested longer is closed.
        """
        self._resolver = SystemResolver()
        self._resolve = resolve or self._resolver
        self._proxy = None if proxy is None else read_proxy(proxy)
        self._tls = ssl_context
        self._places = connections_per_host
        self._idle_seconds = idle_connection_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pools: dict[Origin, OriginPool] = {}
        self._opening: dict[asyncio.Task[None], StartedExchange] = {}
        self._closed = False
        # A provider sends the same fields to the same address every time.
        self._prepared = lru_cache(maxsize=256)(self._prepare)

    def start(
        self,
        request: UpstreamRequest,
        receiver: ResponseReceiver,
        on_whole: TakeResponse | None = None,
    ) -> StartedExchange:
        """Send a request once and give the receiver its response; see `Upstream`.

        A header that would break the framing is `ProtocolViolation` with `sent` false.
        """
        exchange = StartedExchange(receiver, on_whole)
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            if self._closed:
                raise ClientClosed("the client is closed", sent=False)
            pool, head = self._prepared(request.method, request.url, request.headers)
            head = request_head(head, request.method, len(request.body))
        except UpstreamError as error:
            loop.call_soon(exchange.fail, error.anew())
            return exchange
        connection = pool.take_resting(now)
        total_at = now + request.limits.total
        if connection is not None:
            connection.start(exchange, request, head, total_at)
        else:
            opening = loop.create_task(self._open_for(pool, exchange, request, head, total_at))
            exchange.opening = opening
            self._opening[opening] = exchange
            opening.add_done_callback(self._opening.pop)
        return exchange

    async def send(self, request: UpstreamRequest) -> BufferedResponse:
        """Send a request once and return when the head of its response has arrived."""
        response = BufferedResponse(self, request)
        await response.head()
        return response

    async def close(self) -> None:
        """Close every connection at once; later use is `ClientClosed`."""
        self._closed = True
        for opening, exchange in tuple(self._opening.items()):
            opening.cancel()
            exchange.fail(ClientClosed("the client was closed", sent=False))
        self._resolver.close()
        for pool in self._pools.values():
            pool.close()
            for connection in tuple(pool.connections):
                connection.close(ClientClosed("the client was closed", sent=True))
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def _prepare(
        self, method: str, url: str, fields: tuple[tuple[str, str], ...]
    ) -> tuple[OriginPool, bytes]:
        """Return whose connections carry such a request, and how it starts."""
        target = read_url(url)
        if self._proxy is not None and target.origin.scheme == "http":
            target, fields = self._proxy.whole_url(target), (*fields, *self._proxy.fields)
        start = request_start(method, target, fields)
        pool = self._pools.get(target.origin)
        if pool is None:
            pool = OriginPool(target.origin, self._places, self._idle_seconds)
            self._pools[target.origin] = pool
        return pool, start

    async def _open_for(
        self,
        pool: OriginPool,
        exchange: StartedExchange,
        request: UpstreamRequest,
        head: bytes,
        total_at: float,
    ) -> None:
        """Start an exchange on a connection that has to be waited for."""
        try:
            connection = await self._open(pool, request.limits, total_at)
        except UpstreamError as error:
            exchange.fail(error.anew())
        except Exception as error:
            exchange.fail(ConnectFailed(f"cannot connect: {type(error).__name__}", sent=False))
            raise  # the loop reports it
        else:
            connection.start(exchange, request, head, total_at)

    async def _open(self, pool: OriginPool, limits: TimeLimits, total_at: float) -> Connection:
        """Take a place and get a connection for it."""
        async with _time_limit(PoolTimeout, limits.pool, total_at):
            connection = await pool.take_place()
        if connection is None:
            try:
                async with _time_limit(ConnectTimeout, limits.connect, total_at):
                    connection = await self._dial(pool)
            except BaseException:
                pool.leave()
                raise
        return connection

    async def _dial(self, pool: OriginPool) -> Connection:
        """Return a new connection, after the TLS handshake where the origin wants it."""
        origin = pool.origin
        try:
            tls = None
            if origin.scheme == "https":
                self._tls = self._tls or ssl.create_default_context()
                tls = TlsLayer(self._tls, origin.host)
            sock = await self._connect(origin)
        except (OSError, ValueError) as error:
            said = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ConnectFailed(f"cannot connect: {said}", sent=False) from error
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(
                lambda: Connection(pool, sock) if tls is None else TlsConnection(pool, sock, tls),
                sock=sock,
            )
        except BaseException:
            sock.close()
            raise
        try:
            if isinstance(connection, TlsConnection):
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


@asynccontextmanager
async def _time_limit(
    error: type[UpstreamError], seconds: float, total_at: float
) -> AsyncGenerator[None]:
    """Raise that error after so many seconds, or the total's where that is reached first."""
    at = asyncio.get_running_loop().time() + seconds
    if at >= total_at:
        error, at = TotalTimeout, total_at
    try:
        async with asyncio.timeout_at(at):
            yield
    except TimeoutError:
        raise error(f"{error.__name__} before the request left", sent=False) from None
