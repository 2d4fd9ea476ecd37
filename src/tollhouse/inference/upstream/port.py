"""The port through which the relay reaches upstream servers.

    response = await upstream.send(request)      # the head has arrived
    try:
        body = await response.read(limit)        # whole ...
        async for chunk in response.chunks():    # ... or as it comes
            ...
    finally:
        await response.close()                   # returns or kills the connection

The contract, which every adapter fulfils and the suite in `tests/` checks:

- The transport never retries. Each error is an `UpstreamError` that knows `.sent`.
- Every phase has its own time limit and its own error; `total` limits slow bodies too.
- A connection is used again only if its last response ended cleanly and the upstream has sent
  nothing since.
- Cancelling the caller at any point closes the connection at once and frees its place.
- An end of file in a counted or chunked body is an error, never a short success.
- Redirects are not followed, bodies are raw, environment proxies are ignored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping


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


@dataclass(frozen=True, slots=True)
class UpstreamRequest:
    """One request. Names and values of headers are plain ASCII without CR, LF or NUL."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    """Host, Content-Length, Transfer-Encoding, Connection and Expect are the transport's own."""
    body: bytes = field(repr=False)
    limits: TimeLimits = TimeLimits()


class UpstreamResponse(Protocol):
    """A response whose head has arrived."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The header fields, names in lower case, the last of repeated ones."""
        ...

    async def read(self, limit: int) -> bytes:
        """Return the whole body.

        Args:
            limit: The largest body in bytes that is accepted.

        Raises:
            UpstreamError: The body did not arrive whole, or is over the limit.
        """
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Return the body piece by piece, as it arrives; ends only if the body ended cleanly.

        Raises:
            UpstreamError: While iterating, where the body did not arrive whole.
        """
        ...

    async def close(self) -> None:
        """End the exchange: a finished connection goes back to the pool, any other is closed."""
        ...


class Upstream(Protocol):
    """A pool of connections to upstream servers."""

    async def send(self, request: UpstreamRequest) -> UpstreamResponse:
        """Send a request once and return when the head of its response has arrived.

        Raises:
            UpstreamError: No response head; `.sent` tells whether the request may have left.
        """
        ...

    async def close(self) -> None:
        """Close every connection at once; later use is `ClientClosed`."""
        ...
