"""The server of every provider stub: parses requests, plays scripts and keeps statistics.

    client ── request ──▶ RequestHandler ──▶ Script ── bytes, pauses, ends ──▶ client

`GET /_seen` returns `RequestStats`, `POST /_reset` resets them; other requests go to the handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from tests.support.providers.byte_script import End, Pause, Script
from tests.support.providers.framing import Framing

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator

_HEAD_END: Final = b"\r\n\r\n"
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_PLAIN: Final = Framing()


@dataclass(slots=True)
class RequestStats:
    """Requests since the start or the last reset; `/_` requests do not count."""

    requests: int = 0
    """Requests whose head was received."""
    connections: int = 0
    """Connections that carried at least one of them."""
    open: int = 0
    """Requests whose response is not finished."""
    cancelled: list[float] = field(default_factory=list[float])
    """When (`time.monotonic`) the peer closed each request that was still open."""
    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict[str, str])
    """Of the last request, names in lower case."""
    raw_body: bytes = b""
    """Of the last completely received request."""

    @property
    def body(self) -> Any:
        """The last body, decoded; None if it is not JSON."""
        try:
            return msgspec.json.decode(self.raw_body)
        except msgspec.DecodeError:
            return None

    def reset(self) -> None:
        """Reset everything but the count of open requests."""
        self.requests = self.connections = 0
        self.cancelled.clear()
        self.method = self.path = ""
        self.headers = {}
        self.raw_body = b""

    def as_json(self) -> bytes:
        """Return the response of `GET /_seen`; `monotonic` is the server's clock now."""
        fields = {name: getattr(self, name) for name in self.__slots__ if name != "raw_body"}
        text = self.raw_body.decode(errors="replace")
        more = {"body": self.body, "raw_body": text, "monotonic": time.monotonic()}
        return json.dumps(fields | more).encode()


class ReceivedRequest:
    """A request whose head was received; its body may be incomplete."""

    __slots__ = ("body", "chunked", "headers", "keep_alive", "left", "method", "path", "quiet")

    def __init__(self, head: bytes) -> None:
        first, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, version = first.split(" ")
        pairs = (line.partition(":") for line in lines)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}
        self.chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self.left = int(self.headers.get("content-length", "0"))
        self.keep_alive = (
            version == "HTTP/1.1" and self.headers.get("connection", "").lower() != "close"
        )
        self.quiet = self.path.startswith("/_")
        self.body = b""

    def take(self, buffer: bytearray) -> bool:
        """Move the body out of the buffer; return whether it is complete."""
        if self.chunked:
            return self._take_chunks(buffer)
        if len(buffer) < self.left:
            return False
        self.body = bytes(buffer[: self.left])
        del buffer[: self.left]
        return True

    def _take_chunks(self, buffer: bytearray) -> bool:
        while (end := buffer.find(b"\r\n")) >= 0:
            size = int(buffer[:end].split(b";")[0], 16)
            if len(buffer) < end + 2 + size + 2:
                return False
            self.body += buffer[end + 2 : end + 2 + size]
            del buffer[: end + 2 + size + 2]
            if size == 0:
                return True
        return False


RequestHandler = Callable[[ReceivedRequest], Script]
"""Returns the response to a completely received request."""


class _Connection(asyncio.Protocol):
    """One connection: reads a request, plays the script of its response, reads the next."""

    def __init__(
        self, seen: RequestStats, live: set[asyncio.Transport], answer: RequestHandler
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._seen = seen
        self._live = live
        self._answer_others = answer
        self._buffer = bytearray()
        self._request: ReceivedRequest | None = None
        self._script: Script = ()
        self._playing = False
        self._counted = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register the connection."""
        self._transport = cast("asyncio.Transport", transport)
        self._live.add(self._transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Record a cancelled request."""
        del exc
        self._live.discard(self._transport)
        if self._timer is not None:
            self._timer.cancel()
        if self._request is not None and not self._request.quiet:
            self._seen.open -= 1
            self._seen.cancelled.append(time.monotonic())
        self._request = None

    def data_received(self, data: bytes) -> None:
        """Buffer received data."""
        self._buffer += data
        self._advance()

    def _advance(self) -> None:
        """Read and answer requests until more data or a pause is needed."""
        while not self._playing and not self._transport.is_closing():
            if self._request is None and not self._take_head():
                return
            if self._request is None or not self._request.take(self._buffer):
                return
            self._playing = True
            self._script = self._answer(self._request)
            self._play()

    def _take_head(self) -> bool:
        end = self._buffer.find(_HEAD_END)
        if end < 0:
            return False
        try:
            request = self._request = ReceivedRequest(bytes(self._buffer[:end]))
        except ValueError:
            self._transport.write(_PLAIN.whole(400, b"{}", extra="Connection: close\r\n"))
            self._transport.close()
            return False
        del self._buffer[: end + len(_HEAD_END)]
        if not request.quiet:
            self._count(request)
        if request.headers.get("expect", "").lower() == "100-continue":
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return True

    def _count(self, request: ReceivedRequest) -> None:
        seen = self._seen
        seen.requests += 1
        seen.open += 1
        seen.connections += not self._counted
        seen.method, seen.path, seen.headers = request.method, request.path, request.headers
        self._counted = True

    def _answer(self, request: ReceivedRequest) -> Script:
        if not request.quiet:
            self._seen.raw_body = request.body
            return self._answer_others(request)
        if (request.method, request.path) == ("POST", "/_reset"):
            self._seen.reset()
            return (_PLAIN.whole(200, b"{}"),)
        return (_PLAIN.whole(200, self._seen.as_json()),)

    def _play(self) -> None:
        """Play the script up to its next pause or its end."""
        self._timer = None
        written: list[bytes] = []
        for at, step in enumerate(self._script):
            if isinstance(step, bytes):
                written.append(step)
                continue
            self._transport.write(b"".join(written))
            if isinstance(step, Pause):
                self._script = self._script[at + 1 :]
                self._timer = self._loop.call_later(step.seconds, self._play)
            elif step is not End.HANG:
                self._end()
                self._close(reset=step is End.RST)
            return
        self._transport.write(b"".join(written))
        self._end()

    def _end(self) -> None:
        """Finish the request; the next one may have arrived already."""
        request, self._request = self._request, None
        self._playing = False
        if request is None:
            return
        if not request.quiet:
            self._seen.open -= 1
        if not request.keep_alive:
            self._transport.close()
        elif self._timer is None and self._buffer:
            self._loop.call_soon(self._advance)

    def _close(self, *, reset: bool) -> None:
        if not reset:
            self._transport.close()
            return
        sock = self._transport.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()


@contextlib.asynccontextmanager
async def serve(
    answer: RequestHandler, *, port: int = 0, ssl_context: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[int, RequestStats]]:
    """Serve on the running loop and on 127.0.0.1; every connection is closed at the end.

    Args:
        answer: Handles each request.
        port: The TCP port; 0 takes a free one.
        ssl_context: Serves TLS with it.

    Yields:
        The port and the statistics.
    """
    seen = RequestStats()
    live: set[asyncio.Transport] = set()
    server = await asyncio.get_running_loop().create_server(
        lambda: _Connection(seen, live, answer), "127.0.0.1", port, ssl=ssl_context, backlog=4096
    )
    try:
        yield server.sockets[0].getsockname()[1], seen
    finally:
        server.close()
        for transport in tuple(live):
            transport.abort()
        await server.wait_closed()
