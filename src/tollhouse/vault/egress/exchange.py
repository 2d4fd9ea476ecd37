"""Requests of one connection, each read from one side and written anew to the other.

    client ──> head checked ──> values put in ──> written anew ──> host
    client <── values taken out <── written anew <── head checked <── host

Both directions run at once: a host may answer before it has the whole body. Nothing of a response
is sent to the client before its head is known to be allowed. Requests that follow each other all go
to the same place, each read by a reader of its own, which knows nothing of the one before. A
rejection is the last thing on a connection: what follows it is not read.

Source: RFC 9112 (messages); RFC 9110, sections 10.1.1 (Expect) and 15.2 (interim responses).
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

import h11

from tollhouse.kernel.redaction import Redactor
from tollhouse.vault.egress import rejections
from tollhouse.vault.egress.messages import Grant
from tollhouse.vault.egress.rejections import REASON_HEADER, Rejected
from tollhouse.vault.egress.request_head import (
    LARGEST_HEAD,
    Field,
    HeadReader,
    check_extensions,
    check_framing,
    check_host,
    check_method,
    check_origin_form,
    host_header,
    passed_on,
    values_of,
    wants_websocket,
)
from tollhouse.vault.egress.routes import PreparedHead, RequestHead, Route
from tollhouse.vault.egress.streams import (
    BandwidthLimiter,
    ByteStream,
    PeerDisconnected,
    in_slices,
    tunnel,
)
from tollhouse.vault.egress.websocket import FrameRedactor

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]

HEAD_SECONDS: Final = 30.0
"""How long a head may take to arrive once it has begun, and a handshake."""
_SWITCHING: Final = 101
_NOT_SENT_WITH_VALUES: Final = frozenset(
    (b"accept-encoding", b"a-im", b"range", b"if-range", b"sec-websocket-extensions")
)
"""What would make an answer unreadable, or show a part of it."""
_NOT_PASSED_BACK: Final = frozenset((b"alt-svc", REASON_HEADER))
"""The first tells clients of ways around, the second is for the proxy alone to say."""
_UNENCODED: Final = frozenset((b"", b"identity"))
_WEBSOCKET: Final[Sequence[Field]] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))


async def next_head(
    client: ByteStream, heads: HeadReader
) -> tuple[h11.Connection, h11.Request] | None:
    """Return what `request_in` does of a client's next request; None where it ended before one.

    Raises `PeerDisconnected` where the client ends in the middle of a head.
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
    """Return what reads the rest of a request, and the request, from a head that `heads` took.

    Raises `Rejected` where it is no request, or can be read in more than one way.
    """
    incoming = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * LARGEST_HEAD)
    try:
        incoming.receive_data(head)
        request = incoming.next_event()
        if not isinstance(request, h11.Request):
            raise Rejected(rejections.MALFORMED)
        if rest := heads.rest():
            incoming.receive_data(rest)
    except h11.RemoteProtocolError:
        raise Rejected(rejections.MALFORMED) from None
    check_framing(request.http_version, list(request.headers))
    return incoming, request


async def _rest_of_head(client: ByteStream, heads: HeadReader) -> bytes:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            while (head := heads.take()) is None:
                data = await client.receive()
                if not data:
                    raise PeerDisconnected
                heads.feed(data)
            return head
    except TimeoutError:
        raise Rejected(rejections.TOO_SLOW) from None


def forwarded_head(request: h11.Request, path: bytes, host: bytes) -> RequestHead:
    """Return what goes on of a request's head, with the host's name in our own spelling.

    Raises `Rejected` where its fields contradict each other.
    """
    fields = list(request.headers)
    headers = [(b"host", host)] + [each for each in passed_on(fields) if each[0] != b"host"]
    if values_of(fields, b"transfer-encoding"):
        headers.append((b"transfer-encoding", b"chunked"))
    if wants_websocket(request.method, fields):
        headers.extend(_WEBSOCKET)
    return RequestHead(request.method, path, headers)


@dataclass(slots=True, repr=False)
class RequestSequence:
    """Requests of one client to one place."""

    client: ByteStream
    route: Route
    bandwidth: BandwidthLimiter
    """What the session may move."""
    used: Callable[[Grant], None]
    """Called with every grant whose value is sent."""
    host: ByteStream | None = None
    """The connection to where requests go, while there is one."""
    _answered: bool = False
    _values: set[str] = field(default_factory=set[str])
    _redactor: Redactor | None = None

    async def connect(self) -> None:
        """Connect before anything is asked; raises `Rejected` where that fails."""
        self.host = await self.route.connect()

    async def run(self) -> None:
        """Answer requests until one side has had enough; raises what `exchange` does."""
        heads = HeadReader()
        while (found := await next_head(self.client, heads)) is not None:
            incoming, request = found
            check_method(request.method)
            check_origin_form(request.target)
            if not await self.exchange(incoming, request, request.target):
                return
            heads = HeadReader(incoming.trailing_data[0])

    async def exchange(self, incoming: h11.Connection, request: h11.Request, path: bytes) -> bool:
        """Answer one request, whose rest `incoming` reads; tell whether another can follow.

        Raises `Rejected` where it may not go on, with nothing answered, and `PeerDisconnected`
        where one side leaves in the middle.
        """
        target, default_port = self.route.target, self.route.default_port
        named, hosts = host_header(target, default_port), values_of(request.headers, b"host")
        if hosts != [named]:
            check_host(hosts, target, default_port)
        asked = forwarded_head(request, path, named)
        prepared = await self.route.prepare(asked)
        redactor = await self._redactor_for(prepared)
        host = await self._connected()
        exchange = HttpExchange(self.client, incoming, host, redactor, self.bandwidth)
        goes_on = False
        try:
            goes_on = await exchange.run(asked, prepared)
            self._answered = True
        except Rejected:
            if exchange.answered:
                raise PeerDisconnected from None
            raise
        finally:
            if not goes_on or host.ended:
                host.abort()
                self.host = None
        return goes_on

    async def _redactor_for(self, prepared: PreparedHead) -> Redactor | None:
        """Return what takes values out of the answer; None where there are none to take out.

        They are all that have gone out on this connection: a host may show what an earlier request
        held.
        """
        for grant in prepared.grants:
            self.used(grant)
        new = set(prepared.values) - self._values
        self._values |= new
        known = self._redactor
        if new:  # long values or many of them take tens of milliseconds
            self._redactor = await asyncio.to_thread((known or Redactor(())).anew, new)
        elif known is not None:
            self._redactor = known.anew()
        return self._redactor

    async def _connected(self) -> ByteStream:
        if self.host is not None and (self.host.ended or (self._answered and not self.host.quiet)):
            # Bytes that it sent without a request would pass for the answer to this one. (Before
            # the first request they are what remains of the handshake.)
            self.host.abort()
            self.host = None
        if self.host is None:
            self.host = await self.route.connect()
            self._answered = False
        return self.host


@dataclass(slots=True, repr=False)
class HttpExchange:
    """A request that was read as far as its head, on its way to a host, and the response to it."""

    client: ByteStream
    incoming: h11.Connection
    """Reads what the client sends; has returned the request."""
    host: ByteStream
    redactor: Redactor | None
    """Takes the values out that have gone to the host; None where none have."""
    bandwidth: BandwidthLimiter
    answered: bool = False
    """Whether anything of a response has been sent."""
    _outgoing: h11.Connection = field(
        default_factory=lambda: h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
    )
    _uploading: asyncio.Task[None] | None = None
    """Sends the request's body; None where it has none."""

    async def run(self, asked: RequestHead, prepared: PreparedHead) -> bool:
        """Send the request and answer the client; tell whether both connections can go on.

        Raises `Rejected` where the host's answer may not be passed on, with nothing of it sent, and
        `PeerDisconnected` where the client is gone, or the host in the middle of an answer.
        """
        begun = _next(self.incoming, Rejected(rejections.MALFORMED))
        head = _outgoing_head(asked, prepared, readable=self.redactor is not None)
        try:
            await self.host.send(self._outgoing.send(head) or b"")
        except h11.LocalProtocolError:
            raise Rejected(rejections.MALFORMED) from None
        except PeerDisconnected:
            raise Rejected(rejections.BROKEN) from None
        await self._upload(begun)
        self.client.when_ended(self.host.abort)
        try:
            return await self._answer(head)
        finally:
            self.client.when_ended(None)
            if self._uploading is not None:
                self._uploading.cancel()
                await asyncio.gather(self._uploading, return_exceptions=True)

    # The request's body

    async def _upload(self, begun: Event) -> None:
        if isinstance(begun, h11.EndOfMessage):
            await self._tell_host(begun)
            return

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or task.exception() is not None:
                self.host.abort()  # it would wait for the rest

        self._uploading = asyncio.create_task(self._send_body(begun))
        self._uploading.add_done_callback(ended)

    async def _send_body(self, event: Event) -> None:
        pieces: list[bytes] = []
        while True:
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            else:
                if pieces:  # sent at once: each chunk by itself would cost far more than its sender
                    data = b"".join(pieces)
                    pieces.clear()
                    await self.bandwidth.consume(len(data))
                    if not await self._tell_host(h11.Data(data=data)):
                        return  # what it answered may still be read
                if isinstance(event, h11.EndOfMessage):
                    break
                await self._more_body()
            event = _next(self.incoming, Rejected(rejections.MALFORMED))
        await self._tell_host(h11.EndOfMessage())

    async def _tell_host(self, event: h11.Data | h11.EndOfMessage) -> bool:
        """Send a part of the body; tell whether the host still takes it."""
        try:
            await self.host.send(self._outgoing.send(event) or b"")
        except PeerDisconnected:
            return False
        return True

    async def _more_body(self) -> None:
        incoming = self.incoming
        if incoming.they_are_waiting_for_100_continue:
            proceed = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            await self.client.send(incoming.send(proceed) or b"")
        data = await self.client.receive()
        if not data:
            raise PeerDisconnected
        incoming.receive_data(data)

    # The response

    async def _answer(self, asked: h11.Request) -> bool:
        event = await self._host_event()
        while isinstance(event, h11.InformationalResponse):
            if event.status_code == _SWITCHING:
                check_extensions(asked.headers, event.headers)
                await self._switch(event)
                return False
            event = await self._host_event()
        if not isinstance(event, h11.Response):
            raise Rejected(rejections.BROKEN)
        headers = await _allowed_back(event, self.redactor)
        status = event.status_code
        answer = h11.Response(status_code=status, headers=headers, reason=_phrase(status))
        head = self._head_back(answer)
        self.answered = True
        await self._send_answer(head)
        return self._can_go_on()

    async def _host_event(self) -> Event:
        """Return what comes next of a response's head."""
        try:
            while (event := self._outgoing.next_event()) is h11.NEED_DATA:
                self._outgoing.receive_data(await self.host.receive())
        except (PeerDisconnected, h11.RemoteProtocolError):
            uploading = self._uploading
            if uploading is not None and uploading.done() and not uploading.cancelled():
                uploading.result()  # raises what ended it, where that was the client
            raise Rejected(rejections.BROKEN) from None
        return event

    def _head_back(self, answer: h11.Response | h11.InformationalResponse) -> bytes:
        try:
            return self.incoming.send(answer) or b""
        except h11.LocalProtocolError:
            raise Rejected(rejections.BROKEN) from None

    async def _send_answer(self, head: bytes) -> None:
        """Send the head, with as much of the body as has come, and what follows."""
        pieces: list[bytes] = []
        while True:
            event = _next(self._outgoing, PeerDisconnected())
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
                continue
            data = b"".join(pieces)
            pieces.clear()
            await self.bandwidth.consume(len(data))
            ended = isinstance(event, h11.EndOfMessage)
            if self.redactor is not None:
                data = await in_slices(self.redactor.feed, data)
                data += self.redactor.flush() if ended else b""
            piece = self.incoming.send(h11.Data(data=data)) if data else None
            end = self.incoming.send(h11.EndOfMessage()) if ended else None
            await self.client.send(head + (piece or b"") + (end or b""))
            if ended:
                return
            head = b""
            self._outgoing.receive_data(await self.host.receive())

    def _can_go_on(self) -> bool:
        uploading, (left, _) = self._uploading, self._outgoing.trailing_data
        return (
            (uploading is None or (uploading.done() and not uploading.cancelled()))
            and not left  # a host that says more than it was asked is not asked again
            and all(
                state is h11.DONE
                for each in (self._outgoing, self.incoming)
                for state in (each.our_state, each.their_state)
            )
        )

    async def _switch(self, response: h11.InformationalResponse) -> None:
        """Go on as a WebSocket: bytes both ways."""
        given = await _masked(_for_the_client(list(response.headers)), self.redactor)
        agreed = h11.InformationalResponse(
            status_code=_SWITCHING, headers=[*given, *_WEBSOCKET], reason=_phrase(_SWITCHING)
        )
        head = self._head_back(agreed)
        self.answered = True
        self.client.when_ended(None)
        early, _ = self._outgoing.trailing_data
        frames = None if self.redactor is None else FrameRedactor(self.redactor)
        await self.client.send(head)
        await self.client.send(early if frames is None else await in_slices(frames.feed, early))
        await self.host.send(self.incoming.trailing_data[0])
        await tunnel(self.client, self.host, self.bandwidth, frames)


def _outgoing_head(asked: RequestHead, prepared: PreparedHead, *, readable: bool) -> h11.Request:
    """Return the head that goes out, for an answer in which values can be found where asked to."""
    headers = prepared.headers
    if readable:
        headers = [each for each in headers if each[0] not in _NOT_SENT_WITH_VALUES]
        headers.append((b"accept-encoding", b"identity"))
    return h11.Request(method=asked.method, target=asked.path, headers=headers)


async def _allowed_back(response: h11.Response, redactor: Redactor | None) -> list[Field]:
    """Return the fields of a response that the client gets.

    Raises `Rejected` where they contradict each other, or the body cannot be read for values.
    """
    fields = list(response.headers)
    if values_of(fields, b"transfer-encoding") and values_of(fields, b"content-length"):
        raise Rejected(rejections.BROKEN)
    headers = _for_the_client(fields)
    if redactor is None:
        return headers
    encodings = values_of(fields, b"content-encoding")
    if any(value.strip().lower() not in _UNENCODED for value in encodings):
        raise Rejected(rejections.COMPRESSED)
    return await _masked(headers, redactor)


def _for_the_client(headers: Sequence[Field]) -> list[Field]:
    try:
        found = passed_on(headers)
    except Rejected:
        raise Rejected(rejections.BROKEN) from None
    return [each for each in found if each[0] not in _NOT_PASSED_BACK]


async def _masked(headers: Sequence[Field], redactor: Redactor | None) -> list[Field]:
    if redactor is None:
        return list(headers)
    lines = redactor.anew()
    text = b"\n".join(part for each in headers for part in each)
    masked = await in_slices(lines.feed, text) + lines.flush()
    if masked == text:
        return list(headers)
    parts = iter(masked.split(b"\n"))
    return list(zip(parts, parts, strict=True))


def _phrase(status: int) -> bytes:
    """Return a status in our own words: the host's could say anything."""
    with suppress(ValueError):
        return HTTPStatus(status).phrase.encode()
    return b""


def _next(connection: h11.Connection, otherwise: Exception) -> Event:
    """Return the next event of a body; raises `otherwise` where what came is no HTTP."""
    try:
        return connection.next_event()
    except h11.RemoteProtocolError:
        raise otherwise from None
