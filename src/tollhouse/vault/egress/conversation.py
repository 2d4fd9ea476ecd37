"""Requests that follow each other on one connection, all to the same place.

Each is read by a reader of its own, which knows nothing of the one before. A refusal is the last
thing on a connection: what follows it is not read.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import h11

from tollhouse.kernel.redaction import Redactor
from tollhouse.vault.egress.exchange import Exchange, asked_in
from tollhouse.vault.egress.heads import (
    LARGEST_HEAD,
    HeadReader,
    check_framing,
    check_method,
    values_of,
)
from tollhouse.vault.egress.refusals import MALFORMED, TOO_SLOW, Refused
from tollhouse.vault.egress.targets import check_host, check_origin_form, host_header
from tollhouse.vault.egress.wire import Gone

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.vault.egress.pace import Pace
    from tollhouse.vault.egress.ports import Grant
    from tollhouse.vault.egress.ways import Outgoing, Way
    from tollhouse.vault.egress.wire import Wire


HEAD_SECONDS: Final = 30.0
"""How long a head may take to arrive once it has begun, and a handshake."""


async def next_head(client: Wire, heads: HeadReader) -> tuple[h11.Connection, h11.Request] | None:
    """Return the next request of a client, read as far as its head.

    Returns:
        What reads the rest of it, and the request; None where the client has ended before one.

    Raises:
        Refused: It is no request, or can be read in more than one way.
        Gone: The client ended in the middle of it.
    """
    head = heads.take()
    if head is None and not heads.begun:
        data = await client.receive()
        if not data:
            return None
        heads.feed(data)
        head = heads.take()
    if head is None:
        head = await _rest_of_head(client, heads)
    return request_in(head, heads)


def request_in(head: bytes, heads: HeadReader) -> tuple[h11.Connection, h11.Request]:
    """Return the request of a head, and what reads the rest of it.

    Args:
        head: As `HeadReader.take` returned it.
        heads: What has followed it until now.

    Raises:
        Refused: It is no request, or can be read in more than one way.
    """
    incoming = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * LARGEST_HEAD)
    try:
        incoming.receive_data(head)
        request = incoming.next_event()
        if not isinstance(request, h11.Request):
            raise Refused(MALFORMED)
        if rest := heads.rest():
            incoming.receive_data(rest)
    except h11.RemoteProtocolError:
        raise Refused(MALFORMED) from None
    check_framing(request.http_version, list(request.headers))
    return incoming, request


async def _rest_of_head(client: Wire, heads: HeadReader) -> bytes:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            while (head := heads.take()) is None:
                data = await client.receive()
                if not data:
                    raise Gone
                heads.feed(data)
            return head
    except TimeoutError:
        raise Refused(TOO_SLOW) from None


class Conversation:
    """Requests of one client to one place."""

    def __init__(self, client: Wire, way: Way, pace: Pace, used: Callable[[Grant], None]) -> None:
        """Take both ends.

        Args:
            client: The client's connection.
            way: Where requests go.
            pace: What the session may move.
            used: Told of every value that is sent.
        """
        self._client = client
        self._way = way
        self._pace = pace
        self._used = used
        self._named = host_header(way.target, way.default_port)
        self._values: set[str] = set()
        self._redactor: Redactor | None = None
        self._answered = False
        self.host: Wire | None = None
        """The connection to where requests go, while there is one."""

    async def connect(self) -> None:
        """Connect before anything is asked.

        Raises:
            Refused: There is no connection.
        """
        self.host = await self._way.connect()

    async def run(self, received: bytes) -> None:
        """Answer requests until one side has had enough.

        Args:
            received: What the client has sent already.

        Raises:
            Refused: One may not go on; nothing was answered.
            Gone: One side left in the middle.
        """
        heads = HeadReader(received)
        while (found := await next_head(self._client, heads)) is not None:
            incoming, request = found
            check_method(request.method)
            check_origin_form(request.target)
            if not await self.exchange(incoming, request, request.target):
                return
            heads = HeadReader(incoming.trailing_data[0])

    async def exchange(self, incoming: h11.Connection, request: h11.Request, path: bytes) -> bool:
        """Answer one request; tell whether another one can follow.

        Args:
            incoming: What reads the rest of it.
            request: As far as its head.
            path: What is asked for at the host.

        Raises:
            Refused: It may not go on; nothing was answered.
            Gone: One side left in the middle.
        """
        hosts = values_of(request.headers, b"host")
        if hosts != [self._named]:
            check_host(hosts, self._way.target, self._way.default_port)
        asked = asked_in(request, path, self._named)
        outgoing = await self._way.prepare(asked)
        redactor = await self._redactor_for(outgoing)
        host = await self._connected()
        exchange = Exchange(self._client, incoming, self._pace)
        goes_on = False
        try:
            goes_on = await exchange.run(asked, outgoing, host, redactor)
            self._answered = True
        except Refused:
            if exchange.answered:
                raise Gone from None
            raise
        finally:
            if not goes_on or host.ended:
                host.abort()
                self.host = None
        return goes_on

    async def _redactor_for(self, outgoing: Outgoing) -> Redactor | None:
        """Return what takes values out of the answer; None where there are none to take out.

        They are all that have gone out on this connection: a host may show what an earlier request
        held.
        """
        for grant in outgoing.grants:
            self._used(grant)
        new = set(outgoing.values) - self._values
        self._values |= new
        known = self._redactor
        if new:  # long values or many of them take tens of milliseconds
            self._redactor = await asyncio.to_thread((known or Redactor(())).anew, new)
        elif known is not None:
            self._redactor = known.anew()
        return self._redactor

    async def _connected(self) -> Wire:
        if self.host is not None and (self.host.ended or (self._answered and not self.host.quiet)):
            # Bytes that it sent without a request would pass for the answer to this one. (Before
            # the first request they are what remains of the handshake.)
            self.host.abort()
            self.host = None
        if self.host is None:
            self.host = await self._way.connect()
            self._answered = False
        return self.host
