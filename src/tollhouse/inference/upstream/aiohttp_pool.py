"""aiohttp's connections and pool, with the gaps closed that the port's contract does not allow.

This file is the only one that touches what aiohttp does not promise to keep: the protected names
that `TOUCHED` lists. Each class says why it must. A test compares `TOUCHED` with the installed
aiohttp, and the fault suite shows that each repair still repairs.

`aiohttp.ClientSession` is left out on purpose: it sends GET, PUT and DELETE a second time when a
connection dies (there is no public switch), follows redirects, keeps cookies and reads proxies
from the environment. Below it, `ClientRequest` and `TCPConnector` do none of this.
"""

from __future__ import annotations

import functools
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from tollhouse.inference.upstream.connection import SLICE_BYTES
from tollhouse.inference.upstream.errors import ConnectionLost, ProtocolViolation
from tollhouse.inference.upstream.head import MAX_HEAD_BYTES
from tollhouse.outbound.dialing import open_socket

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from aiohttp import StreamReader
    from aiohttp.abc import AbstractStreamWriter
    from aiohttp.client_reqrep import ConnectionKey
    from aiohttp.connector import Connection
    from aiohttp.http import RawResponseMessage
    from aiohttp.tracing import Trace

TOUCHED: Final = {
    "ClientRequest": ("_skip_auto_headers",),
    "Payload": ("_autoclose", "_size"),
    "ResponseHandler": ("_parser", "_payload"),
    "TCPConnector": ("_factory", "_get", "_loop", "_release"),
}
"""The protected names of aiohttp that this file reads, sets or overrides."""

_NOTHING_ADDED: CIMultiDict[None] = CIMultiDict({"Content-Type": None})


class Wire(ResponseHandler):
    """One connection.

    - `close()` aborts: `transport.close()` waits for a peer that reads nothing, and on TLS for
      the peer's close_notify, so a cancelled upload would keep its socket.
    - A reset in a close-delimited body, and a framing error in any body, reach the reader;
      aiohttp takes the first for a clean end and tells only the connection of the second.
    - A head is at most `MAX_HEAD_BYTES`; aiohttp limits each field, and so takes 16 MB.
    - `rest()` makes whatever arrives on a resting connection count as leftovers, which
      `should_close` knows of. With its parser left in place aiohttp queues a reply that came
      without a request and gives it to the next one (aio-libs/aiohttp#13656).
    """

    _head_room = 0

    def close(self) -> None:
        """Drop the connection now, with all that is still to be written."""
        self.abort()

    def expect_head(self) -> None:
        """Begin to count: the next bytes are a response head."""
        self._head_room = MAX_HEAD_BYTES

    def data_received(self, data: bytes) -> None:
        """Refuse a head that does not end."""
        super().data_received(data)
        if self._head_room:
            self._head_room -= len(data)
            if self._head_room <= 0:
                self.set_exception(ProtocolViolation("the response head is too large", sent=True))

    def feed_data(self, data: tuple[RawResponseMessage, StreamReader], size: int = 0) -> None:
        """Take a head that is complete; after an interim one the next is expected."""
        self._head_room = MAX_HEAD_BYTES if data[0].code < HTTPStatus.OK else 0
        super().feed_data(data, size)

    def rest(self) -> None:
        """Stop expecting anything from the peer until the next request."""
        self._parser = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Tell the reader of an unfinished body how it ended."""
        payload = self._payload
        if payload is not None and exc is not None and not payload.is_eof():
            payload.set_exception(ConnectionLost(f"in the body: {exc}", sent=True))
        broken = isinstance(self.exception(), HttpProcessingError)
        super().connection_lost(exc)
        if payload is None or payload.is_eof() or payload.exception() is not None:
            return
        error = ProtocolViolation if broken else ConnectionLost
        payload.set_exception(error("the body ended before its time", sent=True))


class WireRequest(aiohttp.ClientRequest):
    """One request as the caller gave it: aiohttp adds Host and Content-Length, nothing else."""

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        """Add no Accept, Accept-Encoding, User-Agent or Content-Type of aiohttp's own."""
        del skip_auto_headers
        self._skip_auto_headers = _NOTHING_ADDED


class SlicedBody(aiohttp.Payload):
    """A large body, written piece by piece, each after the peer has taken the one before."""

    _autoclose = True  # bytes in memory: nothing to close

    def __init__(self, body: bytes) -> None:
        """Wrap the body."""
        super().__init__(body)
        self._body = memoryview(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text; abstract in aiohttp, and nothing here asks for it."""
        return bytes(self._body).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body."""
        for start in range(0, len(self._body), SLICE_BYTES):
            await writer.write(self._body[start : start + SLICE_BYTES])


class Pool(aiohttp.TCPConnector):
    """The connections to all hosts, as many as are asked for.

    The limits of aiohttp are off: a newcomer may overtake who waits, and a place is lost when a
    waiter gives up in the turn in which it gets it. Whoever uses the pool keeps the limit.

    A connection that received bytes without a request is never handed out (aio-libs/aiohttp#13656).
    """

    def __init__(self, *, idle_seconds: float, tls: ssl.SSLContext | None) -> None:
        """Make an empty pool; see `AiohttpUpstream` for the arguments."""
        super().__init__(  # pyright: ignore[reportUnknownMemberType]
            limit=0,
            limit_per_host=0,
            keepalive_timeout=idle_seconds,
            ssl=True if tls is None else tls,
            socket_factory=open_socket,
        )
        self._factory = functools.partial(Wire, loop=self._loop)

    async def _get(self, key: ConnectionKey, traces: list[Trace]) -> Connection | None:
        while (connection := await super()._get(key, traces)) is not None:
            wire = connection.protocol
            if wire is not None and not wire.should_close:
                return connection
            connection.close()
        return None

    def _release(
        self, key: ConnectionKey, protocol: ResponseHandler, *, should_close: bool = False
    ) -> None:
        if isinstance(protocol, Wire):
            protocol.rest()
        super()._release(key, protocol, should_close=should_close)
