"""A connection and the exchange on it: one at a time. It is dropped when in doubt.

    resting ── start() ──> busy ── response ended cleanly ──> resting
       │                     │
       └─ anything arrives ──┴── cut, garbage, limit, cancel ──> closed

It returns its place in the pool itself, once, whether it rests or closes.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from tollhouse.outbound.http.parser import ResponseParser
from tollhouse.outbound.http.port import (
    ConnectFailed,
    ConnectionLost,
    HeadTimeout,
    IdleTimeout,
    TotalTimeout,
    UpstreamError,
)

if TYPE_CHECKING:
    from tollhouse.outbound.http.port import ResponseReceiver, UpstreamRequest
    from tollhouse.outbound.tls import TlsLayer

SLICE_BYTES: Final = 262_144
"""Bodies above this are written in slices, each after the peer has taken the one before."""

_LEFT_UNREAD_BYTES: Final = 65_536
_LOOK_AFTER_SECONDS: Final = 1.0
_UNUSED: Final = "the connection is not used again"
_NOTHING: Final = memoryview(b"")


class StartedExchange:
    """An exchange as its caller has it in hand, from before it has a connection until it is over.

    Fulfils `UpstreamExchange`.
    """

    __slots__ = ("connection", "ended", "opening", "paused", "receiver")

    def __init__(self, receiver: ResponseReceiver) -> None:
        """Begin without a connection."""
        self.receiver = receiver
        self.connection: Connection | None = None
        """What carries it now."""
        self.opening: asyncio.Task[None] | None = None
        """What looks for a connection now."""
        self.paused = False
        self.ended = False

    @property
    def waits(self) -> bool:
        """Whether nothing of it has left yet; see `UpstreamExchange`."""
        return self.connection is None and self.opening is not None and not self.opening.done()

    def pause(self) -> None:
        """Leave the rest of the body with the upstream; see `UpstreamExchange`."""
        self.paused = True
        if self.connection is not None:
            self.connection.pause()

    def resume(self) -> None:
        """Take the body again; see `UpstreamExchange`."""
        self.paused = False
        if self.connection is not None:
            self.connection.resume()

    def cancel(self) -> None:
        """Close the connection and call the receiver no more; see `UpstreamExchange`."""
        self.ended = True
        if self.connection is not None:
            self.connection.abandon()
        elif self.opening is not None:
            self.opening.cancel()

    def fail(self, error: UpstreamError) -> None:
        """Give the receiver an error, unless the exchange has ended."""
        if not self.ended:
            self.ended = True
            self.receiver.on_error(error)


class ConnectionOwner(Protocol):
    """The pool that a connection belongs to."""

    def came_up(self, connection: Connection) -> None:
        """Take note of a new connection."""
        ...

    def came_back(self, connection: Connection) -> None:
        """Take a connection that may carry another exchange, and its place."""
        ...

    def went_away(self, connection: Connection, *, held_place: bool) -> None:
        """Forget a connection that closed."""
        ...


class Connection(asyncio.Protocol):
    """A TCP connection, perhaps with TLS on it."""

    def __init__(self, owner: ConnectionOwner, sock: socket.socket, tls: TlsLayer | None) -> None:
        """Belong to a pool, on a connected socket that is the transport's from now on."""
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._socket = sock
        self._transport: asyncio.Transport
        self._tls = tls
        self._handshake: asyncio.Future[UpstreamError | None] | None = None
        self._parser = ResponseParser()
        self._exchange: StartedExchange | None = None
        self._began = False
        self._holds_place = False
        self._unsent = _NOTHING
        self._can_write = True
        self._reads = True
        self._idle_seconds = 0.0
        self._phase_at = 0.0
        self._phase_seconds = math.inf
        self._total_at = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self.rested_at = 0.0
        """When (the loop's time) its last exchange ended."""
        self.closed = False

    # For the pool

    async def secured(self) -> None:
        """Wait for the TLS handshake; an error closes the connection."""
        error = None if self._handshake is None else await self._handshake
        if error is not None:
            raise error

    def is_usable(self, now: float) -> bool:
        """Tell whether a resting connection may carry an exchange."""
        if self.closed or self._transport.is_closing():
            return False
        return now - self.rested_at < _LOOK_AFTER_SECONDS or self._is_silent()

    # For an exchange

    def start(
        self, exchange: StartedExchange, request: UpstreamRequest, head: bytes, total_at: float
    ) -> None:
        """Send a request and give the exchange's receiver the response; never calls it at once.

        An error closes the connection. The exchange must have ended at `total_at`, in the loop's
        time.
        """
        self._exchange = exchange
        exchange.connection = self
        self._holds_place = True
        self._began = False
        self._parser.expect(request.method)
        self._idle_seconds = request.limits.idle
        self._total_at = total_at
        self._begin_phase(request.limits.head)
        body = request.body
        try:
            if len(body) <= SLICE_BYTES:
                self._write(head + body)
            else:
                self._write(head)
                self._unsent = memoryview(body)
                self._send_more()
        except ConnectionLost as error:
            self._loop.call_soon(self.close, error.anew())

    def pause(self) -> None:
        """Leave the rest of the body with the upstream; the idle limit rests.

        A head is read whatever was said before: its limit would blame the upstream otherwise.
        """
        if self._reads and self._began and not self._parser.complete:
            self._reads = False
            self._transport.pause_reading()
            self._phase_seconds = math.inf

    def resume(self) -> None:
        """Read on."""
        if not self._reads:
            self._reads = True
            self._transport.resume_reading()
            self._begin_phase(self._idle_seconds)

    def abandon(self) -> None:
        """Drop the connection now, and tell nobody."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.connection = None
        self.close(ConnectionLost("the exchange was cancelled", sent=True))

    def close(self, error: UpstreamError) -> None:
        """Drop the connection now; the exchange on it ends with the error."""
        if self.closed:
            return
        self.closed = True
        exchange, self._exchange = self._exchange, None
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(error)
        if self._timer is not None:
            self._timer.cancel()
        self._unsent = _NOTHING
        self._parser.drop()
        self._transport.abort()
        held, self._holds_place = self._holds_place, False
        self._owner.went_away(self, held_place=held)
        if exchange is not None:
            exchange.connection = None
            exchange.fail(error)

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, where there is one."""
        self._transport = cast("asyncio.Transport", transport)
        self._owner.came_up(self)
        if self._tls is not None:
            self._handshake = self._loop.create_future()
            self._shake_hands(b"", self._tls, self._handshake)

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        if self.closed:
            return
        if self._tls is None:
            self._receive(data)
        else:
            self._receive_encrypted(data, self._tls)

    def eof_received(self) -> None:
        """Take the end of the connection, which on TLS has to be said in TLS, too."""
        self._end_of_file(in_order=self._tls is None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever is under way."""
        if self.closed:
            return
        if exc is not None and self._exchange is not None and not self._began:
            self._read_what_is_left()
        reason = "reset" if exc is None else (getattr(exc, "strerror", None) or type(exc).__name__)
        self.close(ConnectionLost(f"the connection was lost: {reason}", sent=self._holds_place))

    def pause_writing(self) -> None:
        """Note that the peer does not keep up."""
        self._can_write = False

    def resume_writing(self) -> None:
        """Let an upload go on."""
        self._can_write = True
        try:
            self._send_more()
        except ConnectionLost as error:
            self.close(error.anew())

    # Receiving

    def _receive(self, data: bytes) -> None:
        exchange, parser = self._exchange, self._parser
        if exchange is None:
            self.close(ConnectionLost("something arrived that nobody asked for", sent=False))
            return
        violation: UpstreamError | None = None
        try:
            parser.feed(data)
        except UpstreamError as error:
            violation = error.anew()
        if parser.began:
            self._deliver(exchange)
            if self._exchange is not exchange:
                return  # its receiver has cancelled it
        if violation is not None:
            self.close(violation)
        elif parser.complete:
            self._finish(exchange)
        elif exchange.paused:
            self.pause()

    def _deliver(self, exchange: StartedExchange) -> None:
        """Give the receiver what is new."""
        parser = self._parser
        if not self._began:
            self._began = True
            if not parser.complete:
                self._begin_phase(self._idle_seconds)
            exchange.receiver.on_head(parser.status, parser.headers)
        else:
            self._phase_at = self._loop.time()
        if parser.pieces and self._exchange is exchange:
            exchange.receiver.on_body(parser.take_body())

    def _finish(self, exchange: StartedExchange) -> None:
        """End an exchange; where nothing is left over, the connection may carry the next."""
        self._exchange = exchange.connection = None
        exchange.ended = True
        transport = self._transport
        clean = (
            self._parser.reusable
            and not self._unsent
            and not (self._tls is not None and self._tls.ended)
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        )
        if clean:
            self._holds_place = False
            self._owner.came_back(self)
        else:
            self.close(ConnectionLost(_UNUSED, sent=True))
        exchange.receiver.on_end()

    def _end_of_file(self, *, in_order: bool) -> None:
        if self.closed:
            return
        exchange = self._exchange
        if exchange is not None and in_order and self._parser.end_of_file():
            self._finish(exchange)
            return
        how = "the connection ended" if in_order else "the connection was cut"
        self.close(ConnectionLost(how, sent=self._holds_place))

    def _read_what_is_left(self) -> None:
        """Read a reply that came before the reset which a write met first: an early 413."""
        with suppress(OSError):
            while not self.closed and (data := self._socket.recv(_LEFT_UNREAD_BYTES)):
                self.data_received(data)

    def _is_silent(self) -> bool:
        """Ask the socket, since the loop may not have looked since the peer closed it."""
        try:
            seen = self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return bool(seen) and self._tls is not None  # on TLS, it may be a session ticket

    # Sending

    def _write(self, data: bytes | memoryview) -> None:
        if self._tls is None:
            self._transport.write(data)
            return
        try:
            self._transport.write(self._tls.encrypt(data))
        except ssl.SSLError as error:
            raise ConnectionLost(f"TLS broke: {_reason(error)}", sent=True) from error

    def _send_more(self) -> None:
        """Send a large body as fast as the peer takes it; give up once a response begins."""
        while self._unsent and self._can_write and not self._began:
            piece, self._unsent = self._unsent[:SLICE_BYTES], self._unsent[SLICE_BYTES:]
            self._write(piece)

    # TLS

    def _receive_encrypted(self, received: bytes, tls: TlsLayer) -> None:
        try:
            handshake = self._handshake
            if handshake is not None and not handshake.done():
                self._shake_hands(received, tls, handshake)
                if self.closed or not handshake.done():
                    return
                received = b""
            data = tls.decrypt(received)
        except ssl.SSLError as error:
            self.close(ConnectionLost(f"TLS broke: {_reason(error)}", sent=self._holds_place))
            return
        if reply := tls.outgoing():
            self._transport.write(reply)
        if data:
            self._receive(data)
        if tls.ended:
            self._end_of_file(in_order=True)

    def _shake_hands(
        self, received: bytes, tls: TlsLayer, handshake: asyncio.Future[UpstreamError | None]
    ) -> None:
        try:
            done = tls.handshake(received)
        except ssl.SSLError as error:
            self.close(ConnectFailed(f"TLS failed: {_reason(error)}", sent=False))
            return
        self._transport.write(tls.outgoing())
        if done:
            handshake.set_result(None)

    # Time

    def _begin_phase(self, seconds: float) -> None:
        """Expect the next news within so many seconds."""
        self._phase_at = self._loop.time()
        self._phase_seconds = seconds
        self._watch()

    def _watch(self) -> None:
        """See to it that a timer fires in time; one that is too early looks again: few are set."""
        at = self._deadline
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._look_at_the_time)

    @property
    def _deadline(self) -> float:
        return min(self._phase_at + self._phase_seconds, self._total_at)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._exchange is None:
            return
        now = self._loop.time()
        if now < self._deadline:
            self._watch()
            return
        error, phase = (IdleTimeout, "body") if self._began else (HeadTimeout, "head")
        if now >= self._total_at:
            error = TotalTimeout
        self.close(error(f"{error.__name__} in the {phase}", sent=True))


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason or type(error).__name__
