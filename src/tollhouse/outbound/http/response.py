"""A response for a coroutine: it takes what comes and keeps it until it is read."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Self

from tollhouse.outbound.http.port import ClientClosed, ResponseTooLarge, UpstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.outbound.http.port import Upstream, UpstreamExchange, UpstreamRequest

HIGH_WATER: Final = 262_144
"""Bytes that may lie unread before the rest is left with the upstream."""


class BufferedResponse:
    """A response; also the iterator over its body, and the receiver of its exchange.

    It outlives its place on the connection: a body that has arrived whole can be read at leisure,
    while the connection carries the next request.
    """

    __slots__ = ("_error", "_exchange", "_pieces", "_unread", "_waiter", "headers", "status")

    def __init__(self, upstream: Upstream, request: UpstreamRequest) -> None:
        """Start a request whose response this is."""
        self._pieces: list[bytes] = []
        self._unread = 0
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self._exchange: UpstreamExchange | None = upstream.start(request, self)

    # For the caller

    async def head(self) -> None:
        """Wait for the head."""
        while not self.status:
            await self._news()

    async def read(self, limit: int) -> bytes:
        """Return the whole body; see `UpstreamResponse`."""
        if self._exchange is None and self._error is None and self._unread <= limit:
            return self._take()  # it is all there already
        body = bytearray()
        while True:
            body += self._take()
            if len(body) > limit:
                error = ResponseTooLarge(f"the body is larger than {limit} bytes", sent=True)
                self._stop(error)
                raise error
            if self._exchange is None and self._error is None:
                return bytes(body)
            await self._news()

    def chunks(self) -> Self:
        """Return the iterator over the body; see `UpstreamResponse`."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._exchange is None and self._error is None:
                raise StopAsyncIteration
            await self._news()
        return self._take()

    async def close(self) -> None:
        """End the exchange; see `UpstreamResponse`."""
        self._stop(ClientClosed("the response was closed by its reader", sent=True))

    # What the exchange calls

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        self._wake()

    def on_body(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(piece)
        self._unread += len(piece)
        if self._unread > HIGH_WATER and self._exchange is not None:
            self._exchange.pause()
        self._wake()

    def on_end(self) -> None:
        """Note that nothing more comes."""
        self._exchange = None
        self._wake()

    def on_error(self, error: UpstreamError) -> None:
        """Note that something is missing."""
        self._exchange = None
        self._error = error
        self._wake()

    def _wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def _news(self) -> None:
        if self._error is not None:
            raise self._error.anew()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        except BaseException:
            self._stop(ClientClosed("the reader was cancelled", sent=True))
            raise
        finally:
            self._waiter = None

    def _take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        was, self._unread = self._unread, 0
        if was > HIGH_WATER and self._exchange is not None:
            self._exchange.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _stop(self, error: UpstreamError) -> None:
        """Cancel the exchange, if it has not ended; who reads on gets the error."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self._error = error.anew()
            exchange.cancel()
