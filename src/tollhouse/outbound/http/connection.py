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
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from msgspec import Struct

from tollhouse.outbound.http.parser import ResponseParser
from tollhouse.outbound.http.port import (
    ConnectionLost,
    HeadTimeout,
    IdleTimeout,
    ResponseReceiver,
    TakeResponse,
    TotalTimeout,
    UpstreamError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.outbound.http.port import UpstreamRequest

SLICE_BYTES: Final = 262_144
"""Bodies above this are written in slices, each after the peer has taken the one before."""

_LEFT_UNREAD_BYTES: Final = 65_536
_LOOK_AFTER_SECONDS: Final = 1.0
_UNUSED: Final = "the connection is not used again"
_NOTHING: Final = memoryview(b"")


class StartedExchange(Struct, eq=False):
    """An exchange as its caller has it in hand, from before it has a connection until it is over.

    Fulfils `UpstreamExchange`.
    """

    receiver: ResponseReceiver
    on_whole: TakeResponse | None
    connection: Connection | None = None
    """What carries it now."""
    opening: asyncio.Task[None] | None = None
    """What looks for a connection now."""
    paused: bool = False
    ended: bool = False

    def __repr__(self) -> str:
        """Show nothing of what it carries: after its end there is nothing."""
        return f"<{type(self).__name__}>"

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
        if self.ended:
            return
        self.end()
        if self.connection is not None:
            self.connection.abandon()
        elif self.opening is not None:
            self.opening.cancel()

    def fail(self, error: UpstreamError) -> None:
        """Give the receiver an error, unless the exchange has ended."""
        if not self.ended:
            receiver = self.receiver
            self.end()
            receiver.on_error(error)

    def end(self) -> None:
        """Let go of the receiver, which refers to this object."""
        self.ended = True
        del self.receiver, self.on_whole


class ConnectionOwner(Protocol):
    """The pool that a connection belongs to."""

    def came_up(self, connection: Connection) -> None:
        """Take note of a new connection."""
        ...

    def leave(self, connection: Connection) -> None:
        """Take a connection that may carry another exchange, and its place."""
        ...

    def went_away(self, connection: Connection, *, held_place: bool) -> None:
        """Forget a connection that closed."""
        ...


class Connection(asyncio.Protocol):
    """A TCP connection."""

    _speaks_unasked = False
    """Whether bytes between two exchanges may be something else than a response."""

    def __init__(self, owner: ConnectionOwner, sock: socket.socket) -> None:
        """Belong to a pool, on a connected socket that is the transport's from now on."""
        self._loop = asyncio.get_running_loop()
        self._owner = owner
        self._socket = sock
        self._transport: asyncio.Transport
        self._write: Callable[[bytes | memoryview], None]
        self._parser = ResponseParser()
        self._exchange: StartedExchange | None = None
        self._began = False
        self._holds_place = False
        self._unsent = _NOTHING
        self._can_write = True
        self._reads = True
        self._peer_ended = False
        """Whether the peer has said that nothing follows, on a connection that is still there."""
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
        if self._timer is not None:
            self._timer.cancel()
        self._unsent = _NOTHING
        self._parser.drop()
        del self._write  # with TLS, it refers to this object
        self._transport.abort()
        held, self._holds_place = self._holds_place, False
        self._owner.went_away(self, held_place=held)
        if exchange is not None:
            exchange.connection = None
            exchange.fail(error)

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take what writes to the socket."""
        self._transport = cast("asyncio.Transport", transport)
        self._write = self._transport.write
        self._owner.came_up(self)

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
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
            if self._began:
                self._phase_at = self._loop.time()
            else:
                self._begin_response(exchange)
            if parser.pieces and self._exchange is exchange:
                exchange.receiver.on_body(parser.take_body())
            if self._exchange is not exchange:
                return  # it is over
        if violation is not None:
            self.close(violation)
        elif parser.complete:
            self._finish(exchange)
        elif exchange.paused:
            self.pause()

    def eof_received(self) -> None:
        """Take the end of the connection."""
        self._end_of_file(in_order=True)

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

    def _begin_response(self, exchange: StartedExchange) -> None:
        """Give away the head; or the whole response, where it is there and wanted at once."""
        parser = self._parser
        self._began = True
        if not parser.complete:
            self._begin_phase(self._idle_seconds)
        elif (on_whole := exchange.on_whole) is not None:
            self._end(exchange)
            on_whole(parser.status, parser.headers, parser.take_body())
            return
        exchange.receiver.on_head(parser.status, parser.headers)

    def _finish(self, exchange: StartedExchange) -> None:
        receiver = exchange.receiver
        self._end(exchange)
        receiver.on_end()

    def _end(self, exchange: StartedExchange) -> None:
        """End an exchange; where nothing is left over, the connection may carry the next."""
        self._exchange = exchange.connection = None
        exchange.end()
        transport = self._transport
        clean = (
            self._parser.reusable
            and not self._unsent
            and not self._peer_ended
            and not transport.is_closing()
            and not transport.get_write_buffer_size()
        )
        if clean:
            self._holds_place = False
            self.rested_at = self._loop.time()
            self._owner.leave(self)
        else:
            self.close(ConnectionLost(_UNUSED, sent=True))

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
        return bool(seen) and self._speaks_unasked

    # Sending

    def _send_more(self) -> None:
        """Send a large body as fast as the peer takes it; give up once a response begins."""
        while self._unsent and self._can_write and not self._began:
            piece, self._unsent = self._unsent[:SLICE_BYTES], self._unsent[SLICE_BYTES:]
            self._write(piece)

    # Time

    def _begin_phase(self, seconds: float) -> None:
        """Expect the next news within so many seconds."""
        self._phase_at = self._loop.time()
        self._phase_seconds = seconds
        if self._phase_at + seconds < self._timer_at or self._total_at < self._timer_at:
            self._set_timer()

    def _set_timer(self) -> None:
        """See to it that a timer fires in time; one that is too early looks again: few are set."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._timer_at, self._look_at_the_time)

    @property
    def _deadline(self) -> float:
        return min(self._phase_at + self._phase_seconds, self._total_at)

    def _look_at_the_time(self) -> None:
        self._timer, self._timer_at = None, math.inf
        if self._exchange is None:
            return
        now = self._loop.time()
        if now < self._deadline:
            self._set_timer()
            return
        error, phase = (IdleTimeout, "body") if self._began else (HeadTimeout, "head")
        if now >= self._total_at:
            error = TotalTimeout
        self.close(error(f"{error.__name__} in the {phase}", sent=True))
