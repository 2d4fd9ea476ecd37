"""A session: an intern, or a program that somebody started, known by the socket that it uses."""

from __future__ import annotations

import asyncio
import base64
import hmac
from typing import TYPE_CHECKING, Protocol

from tollhouse.kernel.secret import Secret
from tollhouse.vault.egress.certificates import Authority
from tollhouse.vault.egress.heads import values_of
from tollhouse.vault.egress.pace import Pace
from tollhouse.vault.egress.refusals import PASSWORD, Refused

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterable

    from tollhouse.kernel.clock import Clock
    from tollhouse.vault.egress.heads import Field
    from tollhouse.vault.egress.messages import Limits, Open
    from tollhouse.vault.egress.ports import Grant

_LONGEST_NAME = 64


class Leaving(Protocol):
    """A connection that may be ended."""

    task: asyncio.Task[None]
    """Runs until it ends."""

    def drop(self) -> None:
        """End it now."""
        ...


class Connected(Leaving, Protocol):
    """A client's connection."""

    grants: set[Grant]
    """What it has sent; once one of these lapses, the connection ends."""
    began: float
    """When, on the event loop's clock."""

    @property
    def touched(self) -> float:
        """When something last went through, on the event loop's clock."""
        ...


class Session:
    """What belongs to one session."""

    def __init__(self, opened: Open, limits: Limits, clock: Clock) -> None:
        """Make what it needs; it accepts nothing yet."""
        self.id = opened.session
        self.key = None if opened.key is None else Secret(opened.key)
        self.plain_http = opened.plain_http
        self.reads = frozenset(each.encode() for each in opened.reads)
        self._password = None if opened.password is None else Secret(opened.password)
        self.limits = limits
        self.authority = Authority(f"Tollhouse egress {opened.session}"[:_LONGEST_NAME], clock)
        self.pace = Pace(limits.bytes_per_minute)
        self.connections: set[Connected] = set()
        self.turned_away: set[Leaving] = set()
        self.server: asyncio.AbstractServer | None = None
        self.closed = False

    def check_password(self, headers: Iterable[Field]) -> None:
        """Make sure that a client may use it, where that takes a password.

        Raises:
            Refused: It may not.

        Source: RFC 9110, section 11.7.2 (Proxy-Authorization).
        """
        if self._password is None:
            return
        expected = base64.b64encode(f"tollhouse:{self._password.reveal()}".encode())
        for value in values_of(headers, b"proxy-authorization"):
            scheme, _, given = value.partition(b" ")
            if scheme.lower() == b"basic" and hmac.compare_digest(given.strip(), expected):
                return
        raise Refused(PASSWORD)

    @property
    def full(self) -> bool:
        """Whether it has as many connections as it may."""
        return len(self.connections) >= self.limits.connections

    async def close(self) -> None:
        """Accept nothing more, and drop every connection."""
        self.closed = True
        if self.server is not None:
            self.server.close()
        all_of_them = (*self.connections, *self.turned_away)
        for each in all_of_them:
            each.drop()
        await asyncio.gather(*(each.task for each in all_of_them), return_exceptions=True)


def listening(sock: socket.socket) -> socket.socket:
    """Return a socket as the event loop wants it."""
    sock.setblocking(False)  # noqa: FBT003 - its only form
    return sock
