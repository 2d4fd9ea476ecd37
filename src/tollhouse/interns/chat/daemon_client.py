"""One request to an intern's daemon, over the socket that the host has made for it.

    async with asking(line, request) as reply:
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

from tollhouse.inference.upstream.errors import UpstreamError
from tollhouse.inference.upstream.parser import ResponseParser
from tollhouse.interns.chat.events import Garbled, Numbered
from tollhouse.interns.chat.request import Prompt
from tollhouse.interns.chat.sse import EventReader, Oversized
from tollhouse.interns.daemon_head import head

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from tollhouse.interns.chat.events import Event
    from tollhouse.interns.chat.request import Answer
    from tollhouse.kernel.secret import Secret

_PIECE: Final = 65_536
_LARGEST_BODY: Final = 65_536
"""Bytes of a body that is no stream."""
_EVENTS: Final = "text/event-stream"


class Unreachable(Exception):
    """Nobody listens, or the connection broke before an answer began."""


class Nonsense(Exception):
    """What came is no answer of a daemon."""


class Severed(Exception):
    """A stream broke: it ended early, or became garbage."""


class Line(NamedTuple):
    """How a daemon is reached."""

    path: Path
    """The socket that it listens on."""
    token: Secret


class Refusal(NamedTuple):
    """What a daemon says of a request that it does not take."""

    reason: str | None
    message: str | None
    retryable: bool


class _Error(msgspec.Struct):
    reason: str | None = None
    message: str | None = None
    retryable: bool = False


class _Envelope(msgspec.Struct):
    error: _Error


_envelope = msgspec.json.Decoder(_Envelope)


class Reply:
    """What a daemon answers."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        """Take the connection; nothing is read yet."""
        self._reader = reader
        self._parser = ResponseParser()
        self._parser.expect(self, "POST")
        self._body = bytearray()
        self._events = EventReader()
        self._numbered = Numbered()
        self.status = 0
        """0 until the head has come."""
        self._content_type = ""
        self._failure: UpstreamError | None = None
        """What broke the answer behind its head."""

    # What the parser calls

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Take the head."""
        self.status = status
        self._content_type = headers.get("content-type", "")

    def feed(self, piece: bytes) -> None:
        """Take a piece of the body."""
        self._body += piece

    # What comes next

    @property
    def is_stream(self) -> bool:
        """Whether events follow."""
        return self._content_type.partition(";")[0].strip().lower() == _EVENTS

    async def head(self) -> None:
        """Wait for the head.

        Raises:
            Unreachable: The connection ended before it.
            Nonsense: It is none.
        """
        while not self.status:
            try:
                is_over = not await self._more()
            except OSError:
                is_over = True
            except UpstreamError as error:
                if not self.status:
                    raise Nonsense from error
                self._failure = error.anew()  # what came before it still counts
                return
            if is_over and not self.status:
                raise Unreachable

    async def whole(self) -> bytes:
        """Return the body of an answer that is no stream.

        Raises:
            Nonsense: It is too large, does not end, or is no HTTP.
        """
        try:
            while await self._more():
                if len(self._body) > _LARGEST_BODY:
                    raise Nonsense
        except (OSError, UpstreamError) as error:
            raise Nonsense from error
        if not self._parser.complete:
            raise Nonsense
        return bytes(self._body)

    async def events(self) -> list[Event]:
        """Wait for the next bytes, and return the events that are whole with them; maybe none.

        Raises:
            Severed: The stream is over, or garbage.
        """
        try:
            while not self._body:
                if not await self._more():
                    raise Severed
            sent = self._events.feed(bytes(self._body))
            self._body.clear()
            found = [self._numbered.read(each) for each in sent]
        except (OSError, UpstreamError, Oversized, Garbled) as error:
            raise Severed from error
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
        self._parser.feed(data)
        return True

    def drop(self) -> None:
        """Let go of the parser, which refers to us."""
        self._parser.drop()


def refusal(body: bytes) -> Refusal:
    """Return what the body of a refusal says; nothing where it is none of ours."""
    try:
        error = _envelope.decode(body).error
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return Refusal(None, None, retryable=False)
    return Refusal(error.reason, error.message, error.retryable)


@asynccontextmanager
async def asking(line: Line, request: Prompt | Answer, session: str) -> AsyncGenerator[Reply]:
    """Ask a daemon, and yield its answer once the head has come; close the connection after that.

    Args:
        line: How it is reached.
        request: What is asked for.
        session: The session, which a prompt need not name.

    Raises:
        Unreachable: Nobody listens, or nothing was answered.
        Nonsense: The answer is no HTTP.
    """
    try:
        reader, writer = await asyncio.open_unix_connection(str(line.path), limit=_PIECE)
    except OSError as error:
        raise Unreachable from error
    reply = Reply(reader)
    try:
        writer.write(_written(line, request, session))
        try:
            await writer.drain()
        except OSError as error:
            raise Unreachable from error
        await reply.head()
        yield reply
    finally:
        writer.transport.abort()
        reply.drop()


def _written(line: Line, request: Prompt | Answer, session: str) -> bytes:
    if isinstance(request, Prompt):
        what = "runs"
        said = {"input": request.text, "approval_mode": request.approval_mode}
    else:
        what = "answers"
        said = {"interaction": request.interaction, "answer": request.text}
    body = msgspec.json.encode(said)
    # `.` and `..` mean something in paths, and `quote` leaves them.
    name = quote(session, safe="").replace(".", "%2E")
    fields = ("Content-Type: application/json", f"Content-Length: {len(body)}")
    return head(f"POST /sessions/{name}/{what}", line.token, *fields) + body
