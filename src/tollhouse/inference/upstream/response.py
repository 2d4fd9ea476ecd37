"""One response: filled by its connection, read by whoever sent the request.

It outlives its place on the connection. A body that has arrived whole can be read at leisure, while
the connection carries the next request.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, Protocol, Self

from tollhouse.inference.upstream.errors import ClientClosed, ResponseTooLarge, UpstreamError

if TYPE_CHECKING:
    from collections.abc import Mapping

HIGH_WATER: Final = 262_144
"""Bytes that may lie unread before the connection stops reading."""


class ResponseSource(Protocol):
    """The connection that a response comes from."""

    def close(self, error: UpstreamError) -> None:
        """End the exchange and the connection at once."""
        ...

    def resume(self) -> None:
        """Read on, after the unread bytes were taken."""
        ...


class ConnectionResponse:
    """A response; also the iterator over its body."""

    __slots__ = ("_error", "_pieces", "_source", "_waiter", "began", "headers", "status", "unread")

    def __init__(self, source: ResponseSource) -> None:
        """Expect a head."""
        self._source: ResponseSource | None = source
        self._pieces: list[bytes] = []
        self._error: UpstreamError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.began = False
        self.unread = 0
        """Bytes that have arrived and were not taken yet."""
        self.status = 0
        self.headers: Mapping[str, str] = {}

    # For whoever sent the request

    async def head(self) -> None:
        """Wait for the head.

        Raises:
            UpstreamError: It did not come.
        """
        while not self.began:
            await self._news()

    async def read(self, limit: int) -> bytes:
        """Return the whole body; see `UpstreamResponse`."""
        if self._source is None and self._error is None and self.unread <= limit:
            return self._take()  # it is all there already
        body = bytearray()
        while True:
            body += self._take()
            if len(body) > limit:
                raise self._too_large(limit)
            if self._source is None and not self._pieces and self._error is None:
                return bytes(body)
            await self._news()

    def chunks(self) -> Self:
        """Return the iterator over the body; see `UpstreamResponse`."""
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._source is None and self._error is None:
                raise StopAsyncIteration
            await self._news()
        return self._take()

    async def close(self) -> None:
        """End the exchange; see `UpstreamResponse`."""
        self._stop(ClientClosed("the response was closed by its reader", sent=True))

    # For the connection

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        self.status = status
        self.headers = headers
        self.began = True

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._pieces.append(piece)
        self.unread += len(piece)

    def wake(self) -> None:
        """Tell the reader that there is something new."""
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def end(self, error: UpstreamError | None = None) -> None:
        """Say that nothing more comes; with an error, that something is missing."""
        self._source = None
        self._error = None if error is None else error.anew()
        self.wake()

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
        was, self.unread = self.unread, 0
        if was > HIGH_WATER and self._source is not None:
            self._source.resume()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _too_large(self, limit: int) -> ResponseTooLarge:
        error = ResponseTooLarge(f"the body is larger than {limit} bytes", sent=True)
        self._stop(error)
        return error

    def _stop(self, error: UpstreamError) -> None:
        if self._source is not None:
            self._source.close(error)
