"""One connection to one origin. It carries one exchange at a time, and is dropped when in doubt.

    resting ── exchange() ──> busy ── response ended cleanly ──> resting
       │                        │
       └── anything arrives ────┴── cut, garbage, limit, cancel ──> closed

It returns its place in the pool itself, once, whether it rests or closes.
"""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol, cast

from tollhouse.inference.upstream.errors import (
    ConnectFailed,
    ConnectionLost,
    HeadTimeout,
    IdleTimeout,
    TotalTimeout,
    UpstreamError,
)
from tollhouse.inference.upstream.parser import ResponseParser
from tollhouse.inference.upstream.response import HIGH_WATER, ConnectionResponse

if TYPE_CHECKING:
    from tollhouse.inference.upstream.port import TimeLimits
    from tollhouse.outbound.tls import TlsLayer

SLICE_BYTES: Final = 262_144
"""Bodies above this are written in slices, each after the peer has taken the one before."""

_LEFT_UNREAD_BYTES: Final = 65_536
_LOOK_AFTER_SECONDS: Final = 1.0


class ConnectionOwner(Protocol):
    """The pool that a connection belongs to."""

    def appeared(self, connection: Connection) -> None:
        """Take note of a connection that is open."""
        ...

    def came_back(self, connection: Connection) -> None:
        """Take a connection that may carry another exchange, and its place."""
        ...

    def went_away(self, connection: Connection, *, held_place: bool) -> None:
        """Forget a connection that closed."""
        ...


class Connection(asyncio.Protocol):
    """A TCP connection, perhaps with TLS on it."""

    __slots__ = (
        "_body_left",
        "_deadline",
        "_handshake",
        "_holds_place",
        "_home",
        "_idle_seconds",
        "_loop",
        "_parser",
        "_paused",
        "_response",
        "_socket",
        "_timer",
        "_timer_at",
        "_tls",
        "_total_at",
        "_transport",
        "_writable",
        "closed",
        "rested_at",
    )

    def __init__(self, home: ConnectionOwner, sock: socket.socket, tls: TlsLayer | None) -> None:
        """Belong to a pool.

        Args:
            home: The pool.
            sock: The socket, connected; it is the transport's from now on.
            tls: What is spoken over it, where it is not HTTP at once.
        """
        self._loop = asyncio.get_running_loop()
        self._home = home
        self._socket = sock
        self._transport: asyncio.Transport
        self._tls = tls
        self._handshake: asyncio.Future[UpstreamError | None] | None = None
        self._parser = ResponseParser()
        self._response: ConnectionResponse | None = None
        self._holds_place = False
        self._body_left = False
        self._writable: asyncio.Future[None] | None = None
        self._paused = False
        self._idle_seconds = 0.0
        self._total_at = math.inf
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self.rested_at = 0.0
        """When (the loop's time) its last exchange ended."""
        self.closed = False

    # For the pool

    async def secured(self) -> None:
        """Wait for the TLS handshake.

        Raises:
            UpstreamError: It failed; the connection is closed.
        """
        error = None if self._handshake is None else await self._handshake
        if error is not None:
            raise error

    def is_usable(self, now: float) -> bool:
        """Tell whether a resting connection may carry an exchange."""
        if self.closed or self._transport.is_closing():
            return False
        return now - self.rested_at < _LOOK_AFTER_SECONDS or self._is_silent()

    async def exchange(
        self, method: str, head: bytes, body: bytes, limits: TimeLimits, total_at: float
    ) -> ConnectionResponse:
        """Send a request and return when the head of its response has arrived.

        Args:
            method: The request's method.
            head: Everything up to the body.
            body: The body.
            limits: The limits for the head and for pauses.
            total_at: When (the loop's time) the exchange must have ended.

        Raises:
            UpstreamError: It did not; the connection is closed.
        """
        response = self._response = ConnectionResponse(self)
        self._holds_place = True
        self._parser.expect(response, method)
        self._idle_seconds = limits.idle
        self._total_at = total_at
        self._expire_at(min(self._loop.time() + limits.head, total_at))
        try:
            if len(body) <= SLICE_BYTES:
                self._write(head + body)
            else:
                await self._upload(head, body, response)
            await response.head()
        except BaseException as error:
            self.close(_as_lost(error))
            raise
        return response

    def close(self, error: UpstreamError) -> None:
        """Drop the connection now; whoever waits for something of it gets the error."""
        if self.closed:
            return
        self.closed = True
        response, self._response = self._response, None
        if response is not None:
            response.end(error)
        if self._handshake is not None and not self._handshake.done():
            self._handshake.set_result(error)
        if self._timer is not None:
            self._timer.cancel()
        self.resume_writing()
        self._parser.drop()
        self._transport.abort()
        held, self._holds_place = self._holds_place, False
        self._home.went_away(self, held_place=held)

    def resume(self) -> None:
        """Read on, after the unread bytes were taken."""
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()
            self._expire_at(min(self._loop.time() + self._idle_seconds, self._total_at))

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake, where there is one."""
        self._transport = cast("asyncio.Transport", transport)
        self._home.appeared(self)
        if self._tls is not None:
            self._handshake = self._loop.create_future()
            self._shake_hands(b"", self._tls, self._handshake)

    def data_received(self, data: bytes) -> None:
        """Take what arrived."""
        if self.closed:
            return
        try:
            if self._tls is not None:
                data = self._decrypt(data, self._tls)
            if data:
                self._receive(data)
            if self._tls is not None and self._tls.ended:
                self._end_of_file(in_order=True)
        except ssl.SSLError as error:
            self.close(ConnectionLost(f"TLS broke: {_reason(error)}", sent=self._holds_place))
        except UpstreamError as error:
            self.close(error)

    def eof_received(self) -> None:
        """Take the end of the connection, which on TLS has to be said in TLS, too."""
        self._end_of_file(in_order=self._tls is None)

    def connection_lost(self, exc: Exception | None) -> None:
        """End whatever is under way."""
        if self.closed:
            return
        if exc is not None and self._response is not None and not self._response.began:
            self._read_what_is_left()
        reason = "reset" if exc is None else (getattr(exc, "strerror", None) or type(exc).__name__)
        self.close(ConnectionLost(f"the connection was lost: {reason}", sent=self._holds_place))

    def pause_writing(self) -> None:
        """Note that the peer does not keep up."""
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        """Let an upload go on."""
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # Receiving

    def _receive(self, data: bytes) -> None:
        response = self._response
        if response is None:
            self.close(ConnectionLost("something arrived that nobody asked for", sent=False))
            return
        self._parser.feed(data)
        if self._parser.complete:
            self._finish(response)
            return
        if response.began:
            if response.unread > HIGH_WATER:
                self._pause()
            else:
                self._expire_at(min(self._loop.time() + self._idle_seconds, self._total_at))
            if self._body_left:
                self.resume_writing()
        response.wake()

    def _finish(self, response: ConnectionResponse) -> None:
        """End an exchange; where nothing is left over, the connection may carry the next."""
        self._response = None
        response.end()
        clean = (
            self._parser.reusable
            and not self._body_left
            and not (self._tls is not None and self._tls.ended)
            and not self._transport.is_closing()
            and not self._transport.get_write_buffer_size()
        )
        if clean:
            self._deadline = math.inf
            self._holds_place = False
            self._home.came_back(self)
        else:
            self.close(ConnectionLost("the connection is not used again", sent=True))

    def _end_of_file(self, *, in_order: bool) -> None:
        if self.closed:
            return
        response = self._response
        if response is not None and in_order and self._parser.end_of_file():
            self._finish(response)
            return
        how = "the connection ended" if in_order else "the connection was cut"
        self.close(ConnectionLost(how, sent=self._holds_place))

    def _pause(self) -> None:
        """Leave the rest with the upstream until the reader keeps up; the idle limit rests."""
        if not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._deadline = self._total_at

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

    async def _upload(self, head: bytes, body: bytes, response: ConnectionResponse) -> None:
        """Send a large body as fast as the peer takes it; give up once a response begins."""
        self._body_left = True
        self._write(head)
        view = memoryview(body)
        for start in range(0, len(body), SLICE_BYTES):
            while self._writable is not None and not self.closed and not response.began:
                await self._writable
            if self.closed or response.began:
                return
            self._write(view[start : start + SLICE_BYTES])
        self._body_left = False

    # TLS

    def _decrypt(self, received: bytes, tls: TlsLayer) -> bytes:
        handshake = self._handshake
        if handshake is not None and not handshake.done():
            self._shake_hands(received, tls, handshake)
            if self.closed or not handshake.done():
                return b""
            received = b""
        data = tls.decrypt(received)
        if reply := tls.outgoing():
            self._transport.write(reply)
        return data

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

    def _expire_at(self, at: float) -> None:
        """Move the deadline. A timer that fires too early looks again, so few are ever set."""
        self._deadline = at
        if self._timer is None or at < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        response, now = self._response, self._loop.time()
        if response is None or self.closed:
            return
        if now < self._deadline:
            self._expire_at(self._deadline)
            return
        error = IdleTimeout if response.began else HeadTimeout
        if now >= self._total_at:
            error = TotalTimeout
        self.close(error(f"{error.__name__} in the {_phase(response)}", sent=True))


def _phase(response: ConnectionResponse) -> str:
    return "body" if response.began else "head"


def _as_lost(error: BaseException) -> UpstreamError:
    if isinstance(error, UpstreamError):
        return error
    return ConnectionLost("the request was cancelled", sent=True)


def _reason(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return error.reason or type(error).__name__
