"""One request and its response, read from one side and written anew to the other.

    client ──> head checked ──> values put in ──> written anew ──> host
    client <── values taken out <── written anew <── head checked <── host

Both directions run at once: a host may answer before it has the whole body. Nothing of a response
is sent to the client before its head is known to be allowed.

Source: RFC 9112 (messages); RFC 9110, sections 10.1.1 (Expect) and 15.2 (interim responses).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import h11

from tollhouse.vault.egress.heads import (
    LARGEST_HEAD,
    check_extensions,
    passed_on,
    values_of,
    wants_websocket,
)
from tollhouse.vault.egress.pace import in_slices
from tollhouse.vault.egress.refusals import BROKEN, COMPRESSED, MALFORMED, REASON_HEADER, Refused
from tollhouse.vault.egress.tunnel import tunnel
from tollhouse.vault.egress.ways import Asked
from tollhouse.vault.egress.websocket import FrameRedactor
from tollhouse.vault.egress.wire import Gone

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tollhouse.kernel.redaction import Redactor
    from tollhouse.vault.egress.heads import Field
    from tollhouse.vault.egress.pace import Pace
    from tollhouse.vault.egress.ways import Outgoing
    from tollhouse.vault.egress.wire import Wire

Event = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]

_SWITCHING: Final = 101
_NOT_SENT_WITH_VALUES: Final = frozenset(
    (b"accept-encoding", b"a-im", b"range", b"if-range", b"sec-websocket-extensions")
)
"""What would make an answer unreadable, or show a part of it."""
_NOT_PASSED_BACK: Final = frozenset((b"alt-svc", REASON_HEADER))
"""The first tells clients of ways around, the second is for the proxy alone to say."""
_UNENCODED: Final = frozenset((b"", b"identity"))
_WEBSOCKET: Final[Sequence[Field]] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))


def asked_in(request: h11.Request, path: bytes, host: bytes) -> Asked:
    """Return what goes on of a request.

    Args:
        request: As far as its head.
        path: What is asked for.
        host: How the host is called there, whatever spelling the client has chosen.

    Raises:
        Refused: Its fields contradict each other.
    """
    fields = list(request.headers)
    headers = [(b"host", host)] + [each for each in passed_on(fields) if each[0] != b"host"]
    if values_of(fields, b"transfer-encoding"):
        headers.append((b"transfer-encoding", b"chunked"))
    if wants_websocket(request.method, fields):
        headers.extend(_WEBSOCKET)
    return Asked(request.method, path, headers)


class Exchange:
    """A request that was read as far as its head, on its way."""

    def __init__(self, client: Wire, incoming: h11.Connection, pace: Pace) -> None:
        """Take the client's side.

        Args:
            client: Its connection.
            incoming: What reads it; has returned the request.
            pace: What the session may move.
        """
        self._client = client
        self._incoming = incoming
        self._pace = pace
        self.answered = False
        """Whether anything of a response has been sent."""

    async def run(
        self, asked: Asked, outgoing: Outgoing, host: Wire, redactor: Redactor | None
    ) -> bool:
        """Send the request to a host, and its response to the client.

        Args:
            asked: What the client asked for.
            outgoing: What goes out for it.
            host: Where.
            redactor: Takes the values out that have gone there; None where none have.

        Returns:
            Whether both connections can carry another request.

        Raises:
            Refused: The host's answer is none that may be passed on; nothing of it was.
            Gone: The client is, or the host in the middle of an answer.
        """
        outer = h11.Connection(h11.CLIENT, max_incomplete_event_size=LARGEST_HEAD)
        begun = _next_of_request(self._incoming)
        head = _head(asked, outgoing, readable=redactor is not None)
        await self._send_request(head, outer, host)
        uploading = await self._upload(begun, outer, host)
        self._client.when_ended(host.abort)
        try:
            return await self._answer(head, outer, host, redactor, uploading)
        finally:
            self._client.when_ended(None)
            await _stopped(uploading)

    # The request

    async def _send_request(self, head: h11.Request, outer: h11.Connection, host: Wire) -> None:
        try:
            await host.send(outer.send(head) or b"")
        except h11.LocalProtocolError:
            raise Refused(MALFORMED) from None
        except Gone:
            raise Refused(BROKEN) from None

    async def _upload(
        self, begun: Event, outer: h11.Connection, host: Wire
    ) -> asyncio.Task[None] | None:
        """Begin to send the body; None where there is none."""
        if isinstance(begun, h11.EndOfMessage):
            await _heard(host, outer.send(h11.EndOfMessage()))
            return None

        def ended(task: asyncio.Task[None]) -> None:
            if task.cancelled() or task.exception() is not None:
                host.abort()  # it would wait for the rest

        uploading = asyncio.create_task(self._send_body(begun, outer, host))
        uploading.add_done_callback(ended)
        return uploading

    async def _send_body(self, event: Event, outer: h11.Connection, host: Wire) -> None:
        """Send what the client sends.

        Raises:
            Refused: That is no HTTP.
            Gone: It left.
        """
        pieces: list[bytes] = []
        while True:
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            else:
                if pieces and not await self._pass_out(pieces, outer, host):
                    return  # what it answered may still be read
                pieces.clear()
                if isinstance(event, h11.EndOfMessage):
                    break
                await self._more_body()
            event = _next_of_request(self._incoming)
        await _heard(host, outer.send(h11.EndOfMessage()))

    async def _pass_out(self, pieces: Sequence[bytes], outer: h11.Connection, host: Wire) -> bool:
        """Send what was read at once; each chunk by itself would cost far more than its sender."""
        data = b"".join(pieces)
        await self._pace.pay(len(data))
        return await _heard(host, outer.send(h11.Data(data=data)))

    async def _more_body(self) -> None:
        incoming = self._incoming
        if incoming.they_are_waiting_for_100_continue:
            proceed = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            await self._client.send(incoming.send(proceed) or b"")
        data = await self._client.receive()
        if not data:
            raise Gone
        incoming.receive_data(data)

    # The response

    async def _answer(
        self,
        asked: h11.Request,
        outer: h11.Connection,
        host: Wire,
        redactor: Redactor | None,
        uploading: asyncio.Task[None] | None,
    ) -> bool:
        event = await self._host_event(outer, host, uploading)
        while isinstance(event, h11.InformationalResponse):
            if event.status_code == _SWITCHING:
                check_extensions(asked.headers, event.headers)
                await self._switch(event, outer, host, redactor)
                return False
            event = await self._host_event(outer, host, uploading)
        if not isinstance(event, h11.Response):
            raise Refused(BROKEN)
        head = await self._head_back(event, redactor)
        self.answered = True
        await self._send_answer(head, outer, host, redactor)
        return self._can_go_on(outer, uploading)

    async def _host_event(
        self, outer: h11.Connection, host: Wire, uploading: asyncio.Task[None] | None
    ) -> Event:
        """Return what comes next of a response's head."""
        try:
            while (event := outer.next_event()) is h11.NEED_DATA:
                outer.receive_data(await host.receive())
        except (Gone, h11.RemoteProtocolError):
            _raise_of(uploading)
            raise Refused(BROKEN) from None
        return event

    async def _head_back(self, response: h11.Response, redactor: Redactor | None) -> bytes:
        headers = await _allowed_back(response, redactor)
        phrase = _phrase(response.status_code)
        answer = h11.Response(status_code=response.status_code, headers=headers, reason=phrase)
        try:
            return self._incoming.send(answer) or b""
        except h11.LocalProtocolError:
            raise Refused(BROKEN) from None

    async def _send_answer(
        self, head: bytes, outer: h11.Connection, host: Wire, redactor: Redactor | None
    ) -> None:
        """Send the head, with as much of the body as has come, and what follows."""
        pieces: list[bytes] = []
        while True:
            event = _next(outer)
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
                continue
            data = b"".join(pieces)
            pieces.clear()
            await self._pace.pay(len(data))
            ended = isinstance(event, h11.EndOfMessage)
            if redactor is not None:
                data = await in_slices(redactor.feed, data)
                data += redactor.flush() if ended else b""
            await self._client.send(head + self._body_back(data, ended=ended))
            if ended:
                return
            head = b""
            outer.receive_data(await host.receive())

    def _body_back(self, data: bytes, *, ended: bool) -> bytes:
        piece = self._incoming.send(h11.Data(data=data)) if data else None
        end = self._incoming.send(h11.EndOfMessage()) if ended else None
        return (piece or b"") + (end or b"")

    def _can_go_on(self, outer: h11.Connection, uploading: asyncio.Task[None] | None) -> bool:
        uploaded = uploading is None or (uploading.done() and not uploading.cancelled())
        left, _ = outer.trailing_data
        return (
            uploaded
            and not left  # a host that says more than it was asked is not asked again
            and outer.our_state is h11.DONE
            and outer.their_state is h11.DONE
            and self._incoming.our_state is h11.DONE
            and self._incoming.their_state is h11.DONE
        )

    async def _switch(
        self,
        response: h11.InformationalResponse,
        outer: h11.Connection,
        host: Wire,
        redactor: Redactor | None,
    ) -> None:
        """Go on as a WebSocket: bytes both ways."""
        given = await _masked(_for_the_client(list(response.headers)), redactor)
        headers = [*given, *_WEBSOCKET]
        agreed = h11.InformationalResponse(
            status_code=_SWITCHING, headers=headers, reason=_phrase(_SWITCHING)
        )
        try:
            head = self._incoming.send(agreed)
        except h11.LocalProtocolError:
            raise Refused(BROKEN) from None
        self.answered = True
        self._client.when_ended(None)
        early, _ = outer.trailing_data
        frames = None if redactor is None else FrameRedactor(redactor)
        await self._client.send(head or b"")
        await self._client.send(early if frames is None else await in_slices(frames.feed, early))
        await host.send(self._incoming.trailing_data[0])
        await tunnel(self._client, host, self._pace, frames)


def _head(asked: Asked, outgoing: Outgoing, *, readable: bool) -> h11.Request:
    """Return the head that goes out, for an answer in which values can be found where asked to."""
    headers = outgoing.headers
    if readable:
        headers = [field for field in headers if field[0] not in _NOT_SENT_WITH_VALUES]
        headers.append((b"accept-encoding", b"identity"))
    return h11.Request(method=asked.method, target=asked.path, headers=headers)


async def _allowed_back(response: h11.Response, redactor: Redactor | None) -> list[Field]:
    """Return the fields of a response that the client gets.

    Raises:
        Refused: They contradict each other, or the body cannot be read for values.
    """
    fields = list(response.headers)
    if values_of(fields, b"transfer-encoding") and values_of(fields, b"content-length"):
        raise Refused(BROKEN)
    headers = _for_the_client(fields)
    if redactor is None:
        return headers
    encodings = values_of(fields, b"content-encoding")
    if any(value.strip().lower() not in _UNENCODED for value in encodings):
        raise Refused(COMPRESSED)
    return await _masked(headers, redactor)


def _for_the_client(headers: Sequence[Field]) -> list[Field]:
    """Return the fields of a response that the client may see.

    Raises:
        Refused: It calls one so that never is.
    """
    try:
        found = passed_on(headers)
    except Refused:
        raise Refused(BROKEN) from None
    return [field for field in found if field[0] not in _NOT_PASSED_BACK]


async def _masked(headers: Sequence[Field], redactor: Redactor | None) -> list[Field]:
    if redactor is None:
        return list(headers)
    lines = redactor.anew()
    text = b"\n".join(part for field in headers for part in field)
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


def _next_of_request(incoming: h11.Connection) -> Event:
    """Return the next event of a request's body.

    Raises:
        Refused: What came is no HTTP.
    """
    try:
        return incoming.next_event()
    except h11.RemoteProtocolError:
        raise Refused(MALFORMED) from None


def _next(connection: h11.Connection) -> Event:
    """Return the next event of a response's body.

    Raises:
        Gone: What came is no HTTP, or it broke off.
    """
    try:
        return connection.next_event()
    except h11.RemoteProtocolError:
        raise Gone from None


def _raise_of(uploading: asyncio.Task[None] | None) -> None:
    """Raise what ended the upload, where that was the client."""
    if uploading is not None and uploading.done() and not uploading.cancelled():
        uploading.result()


async def _heard(host: Wire, data: bytes | None) -> bool:
    try:
        await host.send(data or b"")
    except Gone:
        return False
    return True


async def _stopped(uploading: asyncio.Task[None] | None) -> None:
    if uploading is not None:
        uploading.cancel()
        await asyncio.gather(uploading, return_exceptions=True)
