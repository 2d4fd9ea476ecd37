"""The HTTP server: uvicorn, with what it leaves open closed.

uvicorn answers garbage with a plain-text 400, takes a request head of any size and waits for it
for ever, and for a body too, lets one address hold any number of connections, and ends on SIGTERM
with that signal's own status. Here errors are the JSON envelope, a head has 64 KB and 30 seconds,
a body has a least rate, an address has a cap, and whoever runs the server owns the signals.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tollhouse.api.asgi import ON_GONE, SINK

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Generator, Sequence

    from tollhouse.api.asgi import App, Scope

LARGEST_HEAD: Final = 65_536
HEAD_SECONDS: Final = 30.0
BODY_SECONDS: Final = 30.0
"""How often it is looked whether a body arrives at the least rate."""
LARGEST_MESSAGE: Final = 262_144
"""Bytes of a WebSocket message; an intern's daemon takes no larger ones."""
PING_SECONDS: Final = 30.0
PONG_SECONDS: Final = 60.0
MOST_UNSENT: Final = 4_194_304
"""Bytes that may wait for the other end of a WebSocket: answers to its pings wait for nobody."""
KEEP_ALIVE_SECONDS: Final = 75
"""Longer than the idle time of the usual client pools, so that we are not the one who closes
a connection in the moment in which it is used again."""

MOST_UNREAD: Final = 512 * 1024 * 1024
"""How much of a refused body is read and thrown away, so that its sender gets to read the answer:
closing at once would reset the connection under it. Twice the largest body that any route takes,
and more, so that whoever is over a limit by a little learns of the limit."""

LINGER_SECONDS: Final = 2.0
"""How long a refused connection is still read, for the same reason."""

_HEAD_BEGINS: Final = b"HTTP/1.1 "
_BAD_REQUEST = 400
_TOO_MANY = 429
_HEAD_TOO_LARGE = 431
_TIMEOUT = 408


class Corked:
    """A connection's transport, which holds a response's head until its first bytes of body.

    uvicorn writes them one by one, and each write is a system call and a packet of its own. A head
    that nothing follows in the same turn of the event loop leaves in the next one.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        """Take the transport, and the loop that it belongs to."""
        self._transport = transport
        self._loop = loop
        self._head = b""

    def write(self, data: bytes) -> None:
        """Write, now or together with what comes next."""
        if self._head:
            data, self._head = self._head + data, b""
        elif data.startswith(_HEAD_BEGINS):
            self._head = data
            self._loop.call_soon(self._uncork)
            return
        self._transport.write(data)

    def write_eof(self) -> None:
        """Close the sending half, after what is held."""
        self._uncork()
        self._transport.write_eof()

    def close(self) -> None:
        """Close the connection, after what is held."""
        self._uncork()
        self._transport.close()

    def _uncork(self) -> None:
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._transport.write(head)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else a transport can
        return getattr(self._transport, name)


class GatewayWebSocket(WebSocketsSansIOProtocol):
    """A connection that has become a WebSocket; its address holds it until it ends."""

    on_lost: Callable[[], None]

    def data_received(self, data: bytes) -> None:
        """Take bytes; who sends pings and reads no answer is left."""
        super().data_received(data)
        if self.transport.get_write_buffer_size() > MOST_UNSENT:
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the address its place back."""
        super().connection_lost(exc)
        self.on_lost()


class GatewayProtocol(HttpToolsProtocol):
    """One connection."""

    limit_per_address: int
    held: Counter[str]
    least_body_rate: int
    takes_websocket: Callable[[Sequence[tuple[bytes, bytes]]], bool]
    """With which headers a request may become a WebSocket."""

    _head_bytes = 0
    _unread = 0
    _in_head = True
    _upgrades = False
    _cycles: tuple[RequestResponseCycle, ...] = ()
    """Requests that are not answered yet, and perhaps one that is."""
    _refused = False
    _head_timer: asyncio.TimerHandle | None = None
    _body_timer: asyncio.TimerHandle | None = None
    _body_bytes = 0
    _body_held_up = False
    _counted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless its address holds too many."""
        super().connection_made(transport)
        self.transport = cast("asyncio.Transport", Corked(transport, self.loop))
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_expired)
        if self.client is None:
            return
        address = self.client[0]
        if self.held[address] >= self.limit_per_address:
            self._refuse(_TOO_MANY, "Too many connections from this address.")
            return
        self.held[address] += 1
        self._counted = True

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the address its place back, and tell the route that its client is gone."""
        self._release_address()
        self._stop_head_timer()
        self._stop_body_timer()
        super().connection_lost(exc)
        # uvicorn tells the newest alone, which may wait behind the one that is answered.
        for cycle in self._cycles:
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
            scope = cast("Scope", cycle.scope)
            scope.pop(SINK, None)  # it refers to us, and we to it
            if (gone := scope.pop(ON_GONE, None)) is not None:
                gone()
        self._cycles = ()

    def _release_address(self) -> None:
        if self._counted and self.client is not None:
            address = self.client[0]
            self.held[address] -= 1
            if not self.held[address]:
                del self.held[address]

    def _should_upgrade(self) -> bool:
        return self._upgrades and super()._should_upgrade()

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection over, with its place in the count of its address."""
        super().handle_websocket_upgrade()
        self._stop_body_timer()
        cast("Scope", self.scope).pop(SINK, None)
        protocol = cast("GatewayWebSocket", self.transport.get_protocol())
        protocol.on_lost = self._release_address
        if not protocol.handshake_initiated:
            self._refuse(_BAD_REQUEST, "The handshake of the WebSocket cannot be read.")

    def data_received(self, data: bytes) -> None:
        """Take bytes; a head that grows too large or takes too long ends the connection."""
        if self._refused:
            self._throw_away(data)
            return
        if self._in_head:
            self._head_bytes += len(data)
        super().data_received(data)
        if not self._in_head:
            if self._body_timer is None:
                self._expect_body()
            return
        if self._head_bytes > LARGEST_HEAD:
            self._refuse_head()
        elif self._head_timer is None and self._head_bytes:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._head_expired)

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; one of the trailers may not pass for one."""
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """End its head.

        Raises:
            ValueError: It is too large, though it came in one piece; stops the parser.
        """
        if self._head_bytes > LARGEST_HEAD and self._head_size() > LARGEST_HEAD:
            self._refuse_head()
            message = "the head is too large"
            raise ValueError(message)
        self._in_head = False
        self._unread = 0
        self._head_bytes = 0
        self._stop_head_timer()
        # Not while another response is under way: its end would not be heard of any more.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        is_free = not self.pipeline and (cycle is None or cycle.response_complete)
        self._upgrades = is_free and self.takes_websocket(self.headers)
        super().on_headers_complete()
        if self.cycle is not cycle:
            self._cycles = (
                *(each for each in self._cycles if not each.response_complete),
                self.cycle,
            )
        cast("Scope", self.scope)[SINK] = self._write_chunk

    def on_message_complete(self) -> None:
        """End it; the next one begins with a head again."""
        self._in_head = True
        self._stop_body_timer()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are no HTTP request."""
        self._refuse(_BAD_REQUEST, msg)

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body; what comes after the answer is thrown away, up to a limit."""
        if self.cycle.response_complete:
            self._throw_away(body)
        super().on_body(body)
        self._body_bytes += len(body)
        self._body_held_up |= self.flow.read_paused

    def _write_chunk(self, data: bytes) -> bool:
        """Write a chunk of the response under way; false while the client is behind."""
        if self.transport.is_closing():
            return False
        self.transport.write(b"%x\r\n%b\r\n" % (len(data), data))
        return not self.flow.write_paused

    def _throw_away(self, data: bytes) -> None:
        self._unread += len(data)
        if self._unread > MOST_UNREAD:
            self.transport.close()

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _refuse_head(self) -> None:
        self._refuse(_HEAD_TOO_LARGE, f"The request head is larger than {LARGEST_HEAD} bytes.")

    def _head_expired(self) -> None:
        self._head_timer = None
        self._refuse(_TIMEOUT, "The request head did not arrive in time.")

    def _expect_body(self) -> None:
        """Give a body that is not here yet its next seconds."""
        self._body_bytes = 0
        self._body_held_up = self.flow.read_paused or self.cycle.waiting_for_100_continue
        self._body_timer = self.loop.call_later(BODY_SECONDS, self._look_at_body)

    def _look_at_body(self) -> None:
        """Refuse a body that arrives too slowly, unless it is we who do not read it."""
        self._body_timer = None
        if self._body_held_up or self._body_bytes >= self.least_body_rate * BODY_SECONDS:
            self._expect_body()
        elif self.cycle.response_started or self.pipeline:
            self.transport.close()
        else:
            # The route hears that its client is gone; what it still says goes nowhere.
            self.cycle.disconnected = self.cycle.response_complete = True
            self.cycle.message_event.set()
            self._refuse(_TIMEOUT, "The request body arrived too slowly.")

    def _stop_body_timer(self) -> None:
        if self._body_timer is not None:
            self._body_timer.cancel()
            self._body_timer = None

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _refuse(self, status: int, message: str) -> None:
        body = msgspec.json.encode({"error": {"code": status, "message": message}})
        head = (
            b"content-type: application/json\r\n"
            b"connection: close\r\n"
            b"content-length: %d\r\n\r\n" % len(body)
        )
        if self._refused or self.transport.is_closing():
            return
        self._refused = True
        # uvicorn types it as if there always were one.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.response_complete:
            # Another request's response is under way: nothing may be written into it.
            self.transport.close()
            return
        self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self.transport.close)


class GatewayServer(uvicorn.Server):
    """A server whose signals belong to the one who runs it."""

    def __init__(self, config: uvicorn.Config) -> None:
        """Prepare; nothing listens yet."""
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave the signals alone."""
        yield


def make_server(
    app: App,
    *,
    limit_per_address: int,
    shutdown_seconds: float,
    min_body_rate: int = 0,
    takes_websocket: Callable[[Sequence[tuple[bytes, bytes]]], bool] = lambda _: False,
) -> GatewayServer:
    """Return a server for an ASGI application.

    Args:
        app: The application.
        limit_per_address: How many connections one address may hold.
        shutdown_seconds: How long a stop waits for responses under way.
        min_body_rate: Bytes a second at which the body of a request has to arrive; 0 for none.
        takes_websocket: With which headers a request may become a WebSocket.
    """
    cap, held_by = limit_per_address, Counter[str]()
    upgraded = takes_websocket

    class Protocol(GatewayProtocol):
        limit_per_address = cap
        held = held_by
        least_body_rate = min_body_rate
        takes_websocket = staticmethod(upgraded)

    config: Any = uvicorn.Config(
        app=app,  # type: ignore[arg-type]
        http=Protocol,
        ws=GatewayWebSocket,
        ws_max_size=LARGEST_MESSAGE,
        ws_ping_interval=PING_SECONDS,
        ws_ping_timeout=PONG_SECONDS,
        ws_per_message_deflate=False,
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, int(shutdown_seconds)),
        backlog=2048,
    )
    return GatewayServer(config)
