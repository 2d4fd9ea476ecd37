"""The upstream port on aiohttp: for CONNECT proxies, and as a second opinion on our own client.

Import this module lazily, only where a provider is configured to use it: aiohttp costs 7 MB.

    send ─ pool ─────── connect ────── head ─────── body ──────── end
           PoolTimeout  ConnectTimeout HeadTimeout  IdleTimeout
           └───────────── TotalTimeout: one hard deadline ──────┘
           sent = False                sent = True

One `asyncio.timeout` guards `send`; its deadline moves on as the phases pass. In the body aiohttp's
own read timer watches the pauses, and one timer of ours watches the total. What has to be repaired
in aiohttp stands in `aiohttp_pool.py`; what cannot be repaired is listed in the fault suite,
`tests/integration/inference/upstream/`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiohttp
from yarl import URL

from tollhouse.inference.upstream.aiohttp_pool import (
    SLICE_BYTES,
    Pool,
    SlicedBody,
    Wire,
    WireRequest,
)
from tollhouse.inference.upstream.client import CONNECTIONS_PER_HOST, IDLE_CONNECTION_SECONDS
from tollhouse.inference.upstream.errors import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    ConnectTimeout,
    HeadTimeout,
    IdleTimeout,
    PoolTimeout,
    ProtocolViolation,
    ResponseTooLarge,
    TotalTimeout,
    UpstreamError,
)
from tollhouse.inference.upstream.head import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    checked_fields,
    read_url,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping
    from typing import Self

    from tollhouse.inference.upstream.port import TimeLimits, UpstreamRequest

_SWITCHING_PROTOCOLS: Final = 101
_NO_LIMITS: Final = aiohttp.ClientTimeout()
"""All limits are ours: aiohttp rounds its own up to whole seconds."""


class _Exchange:
    """One request and its response: which phase it is in and when it must have ended."""

    __slots__ = (
        "_content",
        "_expired",
        "_limits",
        "_live",
        "_loop",
        "_place",
        "_response",
        "_sent",
        "_total_at",
        "_total_timer",
        "timeout",
    )

    def __init__(self, limits: TimeLimits, live: set[_Exchange]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limits = limits
        self._live = live
        self._total_at = self._loop.time() + limits.total
        self._total_timer: asyncio.TimerHandle | None = None
        self._place: asyncio.Semaphore | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._content: aiohttp.StreamReader | None = None
        self._sent = False
        self._expired: type[UpstreamError] = TotalTimeout
        self.timeout = asyncio.timeout(None)
        live.add(self)

    async def take(self, places: asyncio.Semaphore) -> None:
        """Wait for a place in the host's pool, then begin to connect."""
        if places.locked():
            self._begin(PoolTimeout, self._limits.pool)
        await places.acquire()
        self._place = places
        self._begin(ConnectTimeout, self._limits.connect)

    def connected(self) -> None:
        """Begin the phase in which the request leaves and the head is awaited."""
        self._begin(HeadTimeout, self._limits.head)
        self._sent = True

    def receive(self, response: aiohttp.ClientResponse) -> None:
        """Begin the body, unless it has already come with the head."""
        content = response.content
        if content.is_eof():
            self.end()
            return
        self._response = response
        self._content = content
        self._total_timer = self._loop.call_at(self._total_at, self._deadline_passed)
        connection = response.connection
        wire = None if connection is None else connection.protocol
        if wire is not None:  # not `if wire`: it is a queue, and empty
            wire.read_timeout = self._limits.idle
            wire.start_timeout()
        content.on_eof(self.end)

    def end(self) -> None:
        """Forget the exchange: its body has come, or its connection is gone."""
        self._live.discard(self)
        place, self._place = self._place, None
        if place is not None:
            place.release()
        if self._total_timer is not None:
            self._total_timer.cancel()
            self._total_timer = None

    def abort(self, error: UpstreamError | None = None) -> None:
        """Close the connection at once; who waits for the body gets the error."""
        self.end()
        if error is not None and self._content is not None:
            self._content.set_exception(error)
        if self._response is not None:
            self._response.close()

    def stop(self) -> None:
        """End the exchange because the client is closed, in whatever phase it is."""
        if self._response is not None:
            self.abort(ClientClosed("the client was closed", sent=True))
        elif not self.timeout.expired():
            self._expired = ClientClosed
            self.timeout.reschedule(0)

    def failure(self, error: Exception) -> UpstreamError:
        """Return what an error in `send` means."""
        if isinstance(error, UpstreamError):
            return error
        if isinstance(error, TimeoutError) or self._expired is ClientClosed:
            return self._expired(f"{self._expired.__name__} in send", sent=self._sent)
        text = f"{type(error).__name__}: {error}"
        if not self._sent:
            return ConnectFailed(text, sent=False)
        if isinstance(error, (aiohttp.ClientResponseError, ValueError)):
            return ProtocolViolation(text, sent=True)
        return ConnectionLost(text, sent=True)

    def _begin(self, expired: type[UpstreamError], seconds: float) -> None:
        if self._expired is ClientClosed:
            raise ClientClosed("the client was closed", sent=self._sent)
        at = self._loop.time() + seconds
        self._expired = expired if at < self._total_at else TotalTimeout
        self.timeout.reschedule(min(at, self._total_at))

    def _deadline_passed(self) -> None:
        self.abort(TotalTimeout("TotalTimeout in the body", sent=True))


class _Response:
    """A response whose head has arrived; also the iterator over its body."""

    __slots__ = ("_content", "_exchange", "headers", "status")

    def __init__(
        self, exchange: _Exchange, raw: aiohttp.ClientResponse, headers: Mapping[str, str]
    ) -> None:
        self._exchange = exchange
        self._content = raw.content
        self.status = raw.status
        self.headers = headers

    async def read(self, limit: int) -> bytes:
        """Return the whole body, at most `limit` bytes."""
        pieces: list[bytes] = []
        size = 0
        while size <= limit:
            piece = await self._next()
            if not piece:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.append(piece)
            size += len(piece)
        self._exchange.abort()
        raise ResponseTooLarge(f"the body is over {limit} bytes", sent=True)

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body piece by piece, as it arrives."""
        return self

    async def close(self) -> None:
        """Close the connection, unless the whole body has come and it is in the pool already."""
        if not self._content.is_eof():
            self._exchange.abort()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece = await self._next()
        if not piece:
            raise StopAsyncIteration
        return piece

    async def _next(self) -> bytes:
        try:
            return await self._content.readany()
        except aiohttp.SocketTimeoutError as error:
            self._exchange.abort()
            raise IdleTimeout("IdleTimeout in the body", sent=True) from error
        except (aiohttp.ClientError, OSError) as error:
            self._exchange.abort()
            raise ConnectionLost(f"{type(error).__name__}: {error}", sent=True) from error
        except BaseException:
            self._exchange.abort()
            raise


class AiohttpUpstream:
    """Fulfils the `Upstream` port with aiohttp 3.14.

    It may be built anywhere; the first `send` binds it to the running loop.
    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        proxy: str | None = None,
        connections_per_host: int = CONNECTIONS_PER_HOST,
        idle_connection_seconds: float = IDLE_CONNECTION_SECONDS,
    ) -> None:
        """Configure the client.

        Args:
            ssl_context: Verifies the servers; the system's authorities where it is None.
            proxy: `http://[user:password@]host:port` of a proxy: `https` goes through a CONNECT
                tunnel, `http` as absolute-form requests. The environment's proxies are ignored.
            connections_per_host: The most connections to one scheme, host and port; at least 1.
            idle_connection_seconds: A connection that rested longer is never used again; it is
                closed after at most twice that time.
        """
        self._ssl_context = ssl_context
        self._proxy = None if proxy is None else URL(proxy)
        self._per_host = connections_per_host
        self._places: dict[tuple[str, str | None, int | None], asyncio.Semaphore] = {}
        self._idle_seconds = idle_connection_seconds
        self._pool: Pool | None = None
        self._closed = False
        self._live: set[_Exchange] = set()

    async def send(self, request: UpstreamRequest) -> _Response:
        """Send a request once and return when the head of its response has arrived.

        Raises:
            UpstreamError: No response head; `.sent` tells whether the request may have left. A
                header that would break the framing is `ProtocolViolation` with `sent` false.
        """
        if self._closed:
            raise ClientClosed("the client is closed", sent=False)
        exchange = _Exchange(request.limits, self._live)
        try:
            wire_request = self._wire_request(request)
            async with exchange.timeout:
                await exchange.take(self._places_at(wire_request.url))
                raw, headers = await self._exchange_heads(wire_request, exchange)
            exchange.receive(raw)
            return _Response(exchange, raw, headers)
        except (UpstreamError, aiohttp.ClientError, OSError, ValueError, RuntimeError) as error:
            exchange.abort()
            raise exchange.failure(error) from error
        except BaseException:
            exchange.abort()
            raise

    async def close(self) -> None:
        """Close every connection at once; later use is `ClientClosed`."""
        self._closed = True
        for exchange in tuple(self._live):
            exchange.stop()
        if self._pool is not None:
            await self._pool.close()

    def _places_at(self, url: URL) -> asyncio.Semaphore:
        """Return the places of a host: who comes first is served first, newcomers wait behind."""
        key = (url.scheme, url.raw_host, url.port)
        places = self._places.get(key)
        if places is None:
            places = self._places[key] = asyncio.Semaphore(self._per_host)
        return places

    def _wire_request(self, request: UpstreamRequest) -> WireRequest:
        read_url(request.url)  # refuses what cannot be sent
        body = request.body
        return WireRequest(
            request.method,
            URL(request.url, encoded=True),  # as it is: yarl would unquote what it can
            headers=checked_fields(request.headers),
            data=(SlicedBody(body) if len(body) > SLICE_BYTES else body) or None,
            loop=asyncio.get_running_loop(),
            proxy=self._proxy,
        )

    async def _exchange_heads(
        self, wire_request: WireRequest, exchange: _Exchange
    ) -> tuple[aiohttp.ClientResponse, dict[str, str]]:
        """Connect, send and wait for the head, as `aiohttp.ClientSession` does it, but once."""
        pool = self._pool or self._open_pool()
        connection = await pool.connect(wire_request, [], _NO_LIMITS)
        wire = connection.protocol
        if not isinstance(wire, Wire):
            raise ConnectFailed("the connection closed as it was handed out", sent=False)
        try:
            exchange.connected()
            wire.set_response_params(
                skip_payload=wire_request.method == "HEAD",
                read_until_eof=True,
                auto_decompress=False,
                max_line_size=MAX_HEAD_BYTES,
                max_field_size=MAX_HEAD_BYTES,
                max_headers=MAX_FIELDS,
            )
            wire.expect_head()
            response = await wire_request.send(connection)
            try:
                await response.start(connection)
                return response, _accepted_headers(response)
            except BaseException:
                response.close()
                raise
        except BaseException:
            connection.close()
            wire.close()  # a body that came with its head has released the connection already
            raise

    def _open_pool(self) -> Pool:
        self._pool = Pool(idle_seconds=self._idle_seconds, tls=self._ssl_context)
        return self._pool


def _accepted_headers(raw: aiohttp.ClientResponse) -> dict[str, str]:
    """Return the response's header fields, names in lower case, the last of repeated ones.

    aiohttp has refused an ambiguous length already (RFC 9112, section 6.3).

    Raises:
        ProtocolViolation: The head is too large, or a protocol that nobody asked for begins.
    """
    headers: dict[str, str] = {}
    size = 0
    for name, value in raw.headers.items():
        size += len(name) + len(value)
        headers[name.lower()] = value
    if size > MAX_HEAD_BYTES:
        raise ProtocolViolation("the response head is too large", sent=True)
    if raw.status == _SWITCHING_PROTOCOLS:
        raise ProtocolViolation("an upgrade that nobody asked for", sent=True)
    return headers
