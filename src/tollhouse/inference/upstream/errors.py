"""What can go wrong between us and an upstream server.

    UpstreamError
     ├─ ConnectFailed        no connection: refused, unreachable, no such name, TLS refused
     ├─ ConnectTimeout       no connection in time
     ├─ PoolTimeout          no free place in the host's pool in time
     ├─ HeadTimeout          the request went out, no response head came in time
     ├─ IdleTimeout          the body paused for too long
     ├─ TotalTimeout         the hard deadline of the whole exchange passed
     ├─ ConnectionLost       the connection died: before the head, or in the body
     ├─ ProtocolViolation    what came is not HTTP, or breaks its framing rules
     ├─ ResponseTooLarge     the body is over the reader's limit
     └─ ClientClosed         our own client was closed

`sent` tells whether anything of the request may have left this machine. Only where it is false
may the request be sent somewhere else without the risk of doing the work twice.
"""

from __future__ import annotations

from typing import Self


class UpstreamError(Exception):
    """An exchange with an upstream server failed."""

    def __init__(self, message: str, *, sent: bool) -> None:
        """Say what failed, and whether anything of the request may have left."""
        super().__init__(message)
        self.sent = sent

    def anew(self) -> Self:
        """Return an error that says the same and was never raised.

        Whoever keeps an error to raise it later keeps such a one: what was raised refers to every
        frame that it passed, and so to the bodies that they hold.
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
