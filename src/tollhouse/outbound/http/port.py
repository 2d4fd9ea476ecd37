"""The port through which everything in Tollhouse calls other HTTP servers.

    response = await upstream.send(request)      # the head has arrived
    try:
        body = await response.read(limit)        # whole ...
        async for chunk in response.chunks():    # ... or as it comes
            ...
    finally:
        await response.close()                   # returns or kills the connection

or, with callbacks and without a task:

    exchange = upstream.start(request, receiver)   # receiver.on_head, on_body ..., on_end
    exchange.pause(), .resume(), .cancel()

The contract, which every adapter fulfils and the suite in `tests/` checks:

- The transport never retries. Each error is an `UpstreamError` that knows `.sent`.
- Every phase has its own time limit and its own error; `total` limits slow bodies too.
- A connection is used again only if its last response ended cleanly and the upstream has sent
  nothing since.
- Cancelling the caller, or the exchange, at any point closes the connection at once and frees its
  place.
- An end of file in a counted or chunked body is an error, never a short success.
- Redirects are not followed, bodies are raw, environment proxies are ignored.

`sent` tells whether anything of the request may have left this machine. Only where it is false
may the request be sent somewhere else without the risk of doing the work twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

TakeResponse = Callable[[int, Mapping[str, str], bytes], None]
"""Takes a response that has ended: its status, its headers as `on_head` has them, its body."""


class UpstreamError(Exception):
    """An exchange with an upstream server failed."""

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent

    def anew(self) -> Self:
        """Return an error that says the same and was never raised, to be kept and raised later.

        One that was raised refers to every frame that it passed, and so to the bodies they hold.
        """
        return type(self)(str(self), sent=self.sent)


class ConnectFailed(UpstreamError):
    """No connection: refused, unreachable, no such name, TLS refused."""


class ConnectTimeout(UpstreamError):
    """No connection in time."""


class PoolTimeout(UpstreamError):
    """No free place in the host's pool in time."""


class HeadTimeout(UpstreamError):
    """The request went out and no response head came in time."""


class IdleTimeout(UpstreamError):
    """The body paused for too long."""


class TotalTimeout(UpstreamError):
    """The hard deadline of the whole exchange passed."""


class ConnectionLost(UpstreamError):
    """The connection died before the head or in the body."""


class ProtocolViolation(UpstreamError):
    """What came is not HTTP or breaks its framing rules."""


class ResponseTooLarge(UpstreamError):
    """The body is over the reader's limit."""


class ClientClosed(UpstreamError):
    """Our own client was closed."""


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """How long each phase of one exchange may take, in seconds."""

    connect: float = 5.0
    """Name lookup, TCP and TLS together."""
    pool: float = 2.0
    """Waiting for a place in the host's pool."""
    head: float = 60.0
    """From the request being sent to the response head."""
    idle: float = 120.0
    """Between two pieces of the body."""
    total: float = 600.0
    """The hard deadline of the whole exchange."""


class UpstreamRequest(Struct, frozen=True):
    """One request. Names and values of headers are plain ASCII without CR, LF or NUL."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    """Host, Content-Length, Transfer-Encoding, Connection and Expect are the transport's own."""
    body: bytes
    limits: TimeLimits = TimeLimits()

    def __repr__(self) -> str:
        """Show where it goes: headers carry keys, and bodies what people wrote."""
        return f"<{type(self).__name__} {self.method} {self.url}>"


class UpstreamResponse(Protocol):
    """A response whose head has arrived."""

    status: int
    headers: Mapping[str, str]
    """The header fields, names in lower case, the last of repeated ones."""

    async def read(self, limit: int) -> bytes:
        """Return the whole body; an error if it is cut or larger than that many bytes."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body piece by piece, as it arrives; ends only if the body ended cleanly."""
        ...

    async def close(self) -> None:
        """End the exchange: a finished connection goes back to the pool, any other is closed."""
        ...


class ResponseReceiver(Protocol):
    """Takes one response as it comes: a head, pieces of the body, and its end; or an error.

    Exactly one of `on_end` and `on_error` comes, once and as the last, unless the exchange was
    cancelled: then nothing comes any more. None of them may raise.
    """

    def on_head(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head; the names of fields are in lower case, of repeated ones the last counts.

        Interim responses are left out.
        """
        ...

    def on_body(self, piece: bytes) -> None:
        """Take the next piece of the body, which is not empty."""
        ...

    def on_end(self) -> None:
        """Take note that the body has come whole."""
        ...

    def on_error(self, error: UpstreamError) -> None:
        """Take the error that ended the exchange, before the head or in the body."""
        ...


class UpstreamExchange(Protocol):
    """A request that was started. After its end, all of these do nothing."""

    @property
    def waits(self) -> bool:
        """Whether there is no connection for it yet, so that nothing of it has left."""
        ...

    def pause(self) -> None:
        """Leave the rest of the body with the upstream; the idle limit rests, the total does not.

        What had been read from the socket already still comes: a few hundred kilobytes at most.
        """
        ...

    def resume(self) -> None:
        """Take the body again; the idle limit starts anew."""
        ...

    def cancel(self) -> None:
        """Close the connection and free its place at once; the receiver is not called any more."""
        ...


class Upstream(Protocol):
    """A pool of connections to upstream servers."""

    def start(
        self,
        request: UpstreamRequest,
        receiver: ResponseReceiver,
        on_whole: TakeResponse | None = None,
    ) -> UpstreamExchange:
        """Send a request once and give the receiver its response, or its error.

        A response that was read all at once goes to `on_whole`, where that is given, in place of
        the receiver; the exchange has ended by then.

        Must be called on the loop. It never raises and calls the receiver only after it has
        returned. A resting connection carries the request at once, otherwise one is opened.
        """
        ...

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request once and return when the head of its response has arrived."""
        ...

    async def close(self) -> None:
        """Close every connection at once; later use is `ClientClosed`."""
        ...
