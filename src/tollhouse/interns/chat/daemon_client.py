"""One request to an intern's daemon, over the socket that the host has made for it.

    async with open_response(daemon, request, session) as reply:
        reply.status
        await reply.whole()          a refusal's body
        await reply.events()         those that came next

A connection carries one request. Leaving the block closes it, which ends a run that works.

Nothing that comes back is trusted: heads, bodies and events have bounds, and whatever breaks the
protocol ends the exchange. What is held of an answer is never more than one event and one piece.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

import msgspec

from tollhouse.interns.chat.events import (
    DaemonEventTooLarge,
    EventDecoder,
    MalformedEvent,
    ServerSentEventReader,
)
from tollhouse.interns.chat.request import ChatAnswer, ChatPrompt
from tollhouse.interns.sandboxes import request_head
from tollhouse.outbound.http.parser import ResponseParser
from tollhouse.outbound.http.port import UpstreamError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tollhouse.interns.chat.events import DaemonEvent
    from tollhouse.kernel.secret import Secret

_PIECE: Final = 65_536
_LARGEST_BODY: Final = 65_536
"""Bytes of a body that is no stream."""
_EVENTS: Final = "text/event-stream"


class DaemonUnreachable(Exception):
    """Nobody listens, or the connection broke before an answer began."""


class InvalidDaemonResponse(Exception):
    """What came is no answer of a daemon."""


class StreamSevered(Exception):
    """A stream broke: it ended early, or became garbage."""


class DaemonEndpoint(NamedTuple):
    """How a daemon is reached."""

    path: Path
    """The socket that it listens on."""
    token: Secret


class DaemonError(msgspec.Struct, frozen=True):
    """What a daemon says of a request that it does not take."""

    reason: str | None = None
    message: str | None = None
    retryable: bool = False


class _ErrorEnvelope(msgspec.Struct):
    error: DaemonError


_error_decoder = msgspec.json.Decoder(_ErrorEnvelope)


class DaemonResponse:
    """What a daemon answers."""

    def __init__(self, reader: asyncio.StreamReader, method: str = "POST") -> None:
        self._reader = reader
        self._parser = ResponseParser()
        self._parser.expect(method)
        self._body = bytearray()
        self._events = ServerSentEventReader()
        self._numbered = EventDecoder()
        self._failure: UpstreamError | None = None
        """What broke the answer behind its head."""

    @property
    def status(self) -> int:
        """The status; 0 until the head has come."""
        return self._parser.status

    @property
    def is_stream(self) -> bool:
        """Whether events follow."""
        content_type = self._parser.headers.get("content-type", "")
        return content_type.partition(";")[0].strip().lower() == _EVENTS

    async def head(self) -> None:
        """Wait for the head.

        Raises `DaemonUnreachable` where the connection ends before, or `InvalidDaemonResponse`.
        """
        while not self.status:
            try:
                is_over = not await self._more()
            except OSError:
                is_over = True
            except UpstreamError as error:
                if not self.status:
                    raise InvalidDaemonResponse from error
                self._failure = error.anew()  # what came before it still counts
                return
            if is_over and not self.status:
                raise DaemonUnreachable

    async def whole(self) -> bytes:
        """Return the body of an answer that is no stream.

        Raises `InvalidDaemonResponse` where it is too large, does not end, or is no HTTP.
        """
        try:
            while await self._more():
                if len(self._body) > _LARGEST_BODY:
                    raise InvalidDaemonResponse
        except (OSError, UpstreamError) as error:
            raise InvalidDaemonResponse from error
        if not self._parser.complete:
            raise InvalidDaemonResponse
        return bytes(self._body)

    async def events(self) -> list[DaemonEvent]:
        """Wait for the next bytes, and return the events that are whole with them; maybe none.

        Raises `StreamSevered` where the stream is over, or garbage.
        """
        try:
            while not self._body:
                if not await self._more():
                    raise StreamSevered
            sent = self._events.feed(bytes(self._body))
            self._body.clear()
            found = [self._numbered.read(each) for each in sent]
        except (OSError, UpstreamError, DaemonEventTooLarge, MalformedEvent) as error:
            raise StreamSevered from error
        return [each for each in found if each is not None]

    async def _more(self) -> bool:
        """Take what comes next; false once the answer is over."""
        if self._failure is not None:
            raise self._failure.anew()
        if self._parser.complete:
            return False
        data = await self._reader.read(_PIECE)
        if not data:
            self._parser.end_of_file()
            return False
        try:
            self._parser.feed(data)
        finally:
            self._body += self._parser.take_body()
        return True

    def drop(self) -> None:
        """Let go of the parser, which refers to us."""
        self._parser.drop()


def parse_error(body: bytes) -> DaemonError:
    """Return what the body of a refusal says; nothing where it is none of ours."""
    try:
        return _error_decoder.decode(body).error
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return DaemonError()


@asynccontextmanager
async def open_response(
    daemon: DaemonEndpoint, request: ChatPrompt | ChatAnswer, session: str
) -> AsyncGenerator[DaemonResponse]:
    """Ask a daemon, yield its answer once the head has come, and close the connection after that.

    The session is told by itself, since a prompt need not name one. Raises `DaemonUnreachable`
    where nobody listens or answers, `InvalidDaemonResponse` where the answer is no HTTP.
    """
    async with _exchange(daemon, _request_bytes(daemon, request, session), "POST") as reply:
        yield reply


async def put_file(daemon: DaemonEndpoint, path: str, content: bytes) -> int:
    """Write a file of the workspace, and return the status; raises as `open_response`."""
    head = request_head(
        f"PUT /files/{quote(path)}", daemon.token, f"Content-Length: {len(content)}"
    )
    async with _exchange(daemon, head + content, "PUT") as reply:
        return reply.status


@asynccontextmanager
async def _exchange(
    daemon: DaemonEndpoint, request: bytes, method: str
) -> AsyncGenerator[DaemonResponse]:
    try:
        reader, writer = await asyncio.open_unix_connection(str(daemon.path), limit=_PIECE)
    except OSError as error:
        raise DaemonUnreachable from error
    reply = DaemonResponse(reader, method)
    try:
        writer.write(request)
        try:
            await writer.drain()
        except OSError as error:
            raise DaemonUnreachable from error
        await reply.head()
        yield reply
    finally:
        writer.transport.abort()
        reply.drop()


def _request_bytes(daemon: DaemonEndpoint, request: ChatPrompt | ChatAnswer, session: str) -> bytes:
    if isinstance(request, ChatPrompt):
        what = "runs"
        said = {"input": request.text, "approval_mode": request.approval_mode}
    else:
        what = "answers"
        said = {"interaction": request.interaction, "answer": request.text}
    body = msgspec.json.encode(said)
    # `.` and `..` mean something in paths, and `quote` leaves them.
    name = quote(session, safe="").replace(".", "%2E")
    fields = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return request_head(f"POST /sessions/{name}/{what}", daemon.token, *fields) + body
