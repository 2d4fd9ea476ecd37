"""One reply, between the task that produces it and the client that reads it.

    producer                       reader
    write(bytes) ... end()         read() -> bytes ... b"" at the end
                                   pour(sink)       ... or straight into a sink that has room
    fail(error)                    read() raises it, if nothing was written
                                   abandon()        the client went away

The reader only subscribes: when it goes away the producer goes on, books, and decides itself what
becomes of the call. A slow reader stops the producer at `HIGH_WATER` bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tollhouse.kernel.errors import TollhouseError

HIGH_WATER = 256 * 1024
Sink = Callable[[bytes], bool]
"""Takes bytes at once; false says that it should be given no more for now."""


@dataclass(frozen=True, slots=True)
class GenerationOutcome:
    """How a generation ended, for the log."""

    status: int
    """HTTP status; that of the failure where the reply broke off after its head."""
    error: str | None
    """The error's type."""
    model: str
    provider: str | None
    """None where none was asked."""
    milliseconds: int
    first_byte_milliseconds: int | None
    cost_nano: int


class ReplyBuffer:
    """A one-way buffer with a bound."""

    def __init__(self, generation_id: str) -> None:
        """Start empty."""
        self.generation_id = generation_id
        self.booked = False
        """Whether `generation_id` can be looked up."""
        self.output_limit: int | None = None
        """The limit of each answer's output that was set because no more can be paid for."""
        self.begun = False
        """Whether anything was written."""
        self.abandoned = False
        self.on_abandon: Callable[[], None] | None = None
        self.on_outcome: Callable[[GenerationOutcome], None] | None = None
        """Called once it is booked, or is not to be; also where the reader left before."""
        self._pieces: list[bytes] = []
        self._size = 0
        self.ended = False
        self._error: TollhouseError | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._sink: Sink | None = None
        self._silent = True
        self._beat: asyncio.TimerHandle | None = None

    def keep_alive(self, seconds: float, comment: bytes) -> None:
        """Write a comment whenever nothing else was written for so long, until the end.

        Proxies and clients close a connection on which nothing happens. A comment is a beginning,
        too: a failure after it is told in the stream.
        """
        if self.ended or self.abandoned:
            return
        if self._beat is not None and self._silent:
            self.begun = True
            self._hand_over(comment)
        self._silent = True
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(seconds, self.keep_alive, seconds, comment)

    async def read(self) -> bytes:
        """Return what has been written since the last call; empty at the end, or once abandoned.

        Raises:
            TollhouseError: The reply failed before its first byte.
        """
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.ended or self.abandoned:
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._drop()
        return data

    async def stream_to(self, sink: Sink) -> None:
        """Let what is written go straight to a sink: no task has to wake up for it.

        Returns:
            Once the sink is full, the reply is over, or there is something to read instead.
        """
        if self._pieces or self.ended or self.abandoned:
            return
        self._reader = asyncio.get_running_loop().create_future()
        self._sink = sink
        try:
            await self._reader
        finally:
            self._sink = None

    @property
    def drained(self) -> bool:
        """Whether everything was read: further reads are empty."""
        return not self._pieces and (self.ended or self.abandoned)

    def client_left(self) -> None:
        """Say that the client went away; what is written from now on is thrown away."""
        if self.abandoned or self.ended:
            return
        self.abandoned = True
        self._drop()
        _wake(self._reader)
        if self.on_abandon is not None:
            self.on_abandon()

    async def write(self, data: bytes) -> None:
        """Hand bytes to the reader; wait while it is far behind."""
        self.begun = True
        if self.abandoned:
            return
        self._silent = False
        self._hand_over(data)
        while self._size > HIGH_WATER:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def _hand_over(self, data: bytes) -> None:
        if self._sink is not None:
            if not self._sink(data):
                self._sink = None
                _wake(self._reader)
            return
        self._pieces.append(data)
        self._size += len(data)
        _wake(self._reader)

    def finish(self, data: bytes) -> None:
        """Hand over the last bytes, however far behind the reader is, and end."""
        self.begun = True
        if not self.abandoned:
            self._pieces.append(data)
        self.end()

    def end(self) -> None:
        """Say that nothing more comes."""
        self.ended = True
        # It refers to the producer, which refers to us: without it both go with the last reader.
        self.on_abandon = None
        if self._beat is not None:
            self._beat.cancel()
        _wake(self._reader)

    def fail(self, error: TollhouseError) -> None:
        """End with an error that the reader gets in place of a reply; after the end it is moot."""
        if not self.ended:
            self._error = error
            self.end()

    def _drop(self) -> None:
        self._pieces.clear()
        self._size = 0
        _wake(self._writer)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
