"""A connection that goes to another process where a request begins that is not answered here."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from tollhouse.api.connection import HEAD_SECONDS, HttpConnection

if TYPE_CHECKING:
    import asyncio

    from tollhouse.api.handover import Passing
    from tollhouse.api.server_context import ServerContext

_UNWRITTEN_SECONDS: Final = 0.02


class PassingConnection(HttpConnection):
    """An `HttpConnection` of one of several processes."""

    __slots__ = ("_early", "_passing")

    def __init__(
        self,
        context: ServerContext,
        loop: asyncio.AbstractEventLoop,
        passing: Passing,
        early: bytes = b"",
    ) -> None:
        """Begin a connection, of which another process has read so many bytes already."""
        super().__init__(context, loop)
        self._passing = passing
        self._early = early
        """The beginning of a request of which it is not known yet who answers it."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, and what another process has read of it."""
        super().connection_made(transport)
        if self._early:
            self._look_again()

    def data_received(self, data: bytes) -> None:
        """Take bytes; where a request begins with them, find out who answers it."""
        if self._refusal is None and self._is_idle:
            data = self._for_us(self._early + data)
        if data:
            super().data_received(data)

    def on_headers_complete(self) -> None:
        """End the head; that of a request for another process must not stand behind one for us.

        The response to that one is the last then, and who sent both sends the later one again.

        Raises:
            ValueError: It does; stops the parser.

        Source: RFC 9112, section 9.3.2.
        """
        newest = self._waiting[-1] if self._waiting else self._exchange
        if newest is not None and not self._passing.answers_all:
            line = b"%b %b " % (self._parser.get_method(), self._url)
            if self._passing.is_ours(line) is False:
                newest.keep_alive, self._refusal = False, b""
                raise ValueError("a request for another process")
        super().on_headers_complete()

    def hand_over(self) -> None:
        """Hand the connection to another process, if it is idle, and lose it."""
        if self._refusal is None and self._is_idle and not self.transport.is_closing():
            self._leave_with(self._early)

    @property
    def _is_idle(self) -> bool:
        """Whether no request is under way, apart from bytes that are only kept."""
        return (
            self._in_head
            and self._exchange is None
            and not (self._has_head or self._head_bytes or self._waiting)
        )

    def _for_us(self, data: bytes) -> bytes:
        """Return the bytes with which a request begins; none if it is not, or not yet, for us."""
        self._early = b""
        is_ours = self._passing.is_ours(data)
        if is_ours:
            return data
        if is_ours is False:
            if self._is_written:
                return b"" if self._leave_with(data) else data
            # Another process must not write before what is still to be written here.
            self.transport.pause_reading()
            self.loop.call_later(_UNWRITTEN_SECONDS, self._look_again)
        self._early = data
        if not self._is_timed:
            self._is_timed = True
            self._deadline.set(HEAD_SECONDS)
        return b""

    @property
    def _is_written(self) -> bool:
        return not self.transport.get_write_buffer_size()

    def _look_again(self) -> None:
        if self._refusal is None and not self.transport.is_closing():
            self.transport.resume_reading()
            early, self._early = self._early, b""
            self.data_received(early)

    def _leave_with(self, data: bytes) -> bool:
        if not self._is_written:
            return False
        descriptor = os.dup(self.transport.get_extra_info("socket").fileno())
        if not self._passing.hand(descriptor, data):
            os.close(descriptor)
            return False
        self._early = b""
        self._refusal = b""  # whatever else comes is for the other one
        self.transport.abort()
        return True
