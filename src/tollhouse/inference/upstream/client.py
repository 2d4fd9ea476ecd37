"""The upstream port on our own HTTP/1.1 client.

    send ─ pool ─────── connect ────── head ─────── body ──────── end
           PoolTimeout  ConnectTimeout HeadTimeout  IdleTimeout
           └───────────── TotalTimeout: one hard deadline ──────┘
           sent = False                sent = True

    head        the request's bytes         tls         TLS between bytes and bytes
    parser      the response's bytes        dialer      look up, connect, shake hands
    response    what the caller reads       proxy       a tunnel, or whole URLs
    connection  one exchange at a time      pool        places and resting connections

No library's client is used: what they get wrong is listed in `docs/decisions`, and shown by the
fault suite in `tests/integration/inference/upstream/`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tollhouse.inference.upstream.dialer import Dialer
from tollhouse.inference.upstream.errors import (
    ClientClosed,
    ConnectTimeout,
    PoolTimeout,
    TotalTimeout,
    UpstreamError,
)
from tollhouse.inference.upstream.head import read_url, request_head
from tollhouse.inference.upstream.pool import OriginPool
from tollhouse.inference.upstream.proxy import read_proxy
from tollhouse.outbound.dialing import SystemResolver

if TYPE_CHECKING:
    import ssl

    from tollhouse.inference.upstream.connection import Connection
    from tollhouse.inference.upstream.head import Origin
    from tollhouse.inference.upstream.port import TimeLimits, UpstreamRequest
    from tollhouse.inference.upstream.response import ConnectionResponse
    from tollhouse.outbound.dialing import Resolve

CONNECTIONS_PER_HOST: Final = 256
"""One connection carries one stream, and a stream takes two descriptors, the caller's and ours:
under the usual limit of 1,024 descriptors one host can be busy to the full and leave half of them
to the others."""

IDLE_CONNECTION_SECONDS: Final = 20.0


class _Opening:
    """The time before a request leaves: waiting for a place, then connecting."""

    __slots__ = ("_expired", "_limits", "_total_at", "timeout")

    def __init__(self, limits: TimeLimits, total_at: float) -> None:
        self._limits = limits
        self._total_at = total_at
        self._expired: type[UpstreamError] = TotalTimeout
        self.timeout = asyncio.timeout(None)

    def wait_for_place(self) -> None:
        self._begin(PoolTimeout, self._limits.pool)

    def connect(self) -> None:
        self._begin(ConnectTimeout, self._limits.connect)

    def stop(self) -> None:
        """End it because the client is closed."""
        self._expired = ClientClosed
        if not self.timeout.expired():
            self.timeout.reschedule(0)

    def failure(self) -> UpstreamError:
        """Return what it means that the time is up."""
        return self._expired(f"{self._expired.__name__} before the request left", sent=False)

    def _begin(self, expired: type[UpstreamError], seconds: float) -> None:
        if self._expired is ClientClosed:
            raise self.failure()
        at = asyncio.get_running_loop().time() + seconds
        self._expired = expired if at < self._total_at else TotalTimeout
        self.timeout.reschedule(min(at, self._total_at))


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
            resolve: Decides which addresses a name stands for; the system does where it is None.
            proxy: `http://[user:password@]host:port` of a proxy: `https` goes through a CONNECT
                tunnel, `http` as requests with the whole URL. Proxies of the environment are
                ignored.
            connections_per_host: The most connections to one scheme, host and port; at least 1.
            idle_connection_seconds: A connection that rested longer is closed.

        Raises:
            ValueError: `proxy` is not of this form.
        """
        self._resolver = SystemResolver()
        self._proxy = None if proxy is None else read_proxy(proxy)
        self._dialer = Dialer(ssl_context, resolve or self._resolver, self._proxy)
        self._places = connections_per_host
        self._idle_seconds = idle_connection_seconds
        self._pools: dict[Origin, OriginPool] = {}
        self._openings: set[_Opening] = set()
        self._closed = False

    async def send(self, request: UpstreamRequest) -> ConnectionResponse:
        """Send a request once and return when the head of its response has arrived.

        Raises:
            UpstreamError: No response head; `.sent` tells whether the request may have left. A
                header that would break the framing is `ProtocolViolation` with `sent` false.
        """
        if self._closed:
            raise ClientClosed("the client is closed", sent=False)
        target, fields = read_url(request.url), request.headers
        if self._proxy is not None and target.origin.scheme == "http":
            target, fields = self._proxy.whole_url(target), (*fields, *self._proxy.fields)
        head = request_head(request.method, target, fields, len(request.body))
        total_at = asyncio.get_running_loop().time() + request.limits.total
        pool = self._pools.get(target.origin) or self._open_pool(target.origin)
        connection = pool.take_resting()
        if connection is None:
            connection = await self._open(pool, target.origin, request.limits, total_at)
        return await connection.exchange(
            request.method, head, request.body, request.limits, total_at
        )

    async def close(self) -> None:
        """Close every connection at once; later use is `ClientClosed`."""
        self._closed = True
        for opening in tuple(self._openings):
            opening.stop()
        self._resolver.close()
        for pool in self._pools.values():
            pool.close()
            for connection in tuple(pool.connections):
                connection.close(ClientClosed("the client was closed", sent=True))
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    async def _open(
        self, pool: OriginPool, origin: Origin, limits: TimeLimits, total_at: float
    ) -> Connection:
        """Take a place and get a connection for it."""
        opening = _Opening(limits, total_at)
        self._openings.add(opening)
        try:
            async with opening.timeout:
                opening.wait_for_place()
                connection = await pool.take_place()
                return connection or await self._dial(pool, origin, opening)
        except TimeoutError:
            raise opening.failure() from None
        finally:
            self._openings.discard(opening)

    async def _dial(self, pool: OriginPool, origin: Origin, opening: _Opening) -> Connection:
        try:
            opening.connect()
            return await self._dialer.dial(origin, pool)
        except BaseException:
            pool.leave()
            raise

    def _open_pool(self, origin: Origin) -> OriginPool:
        pool = self._pools[origin] = OriginPool(self._places, self._idle_seconds)
        return pool
