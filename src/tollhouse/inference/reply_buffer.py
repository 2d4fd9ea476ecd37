"""One reply, between the generation that produces it and the client that reads it.

    producer                       reader of a `ReplyBuffer`
    write(bytes) ... finish()      read() -> bytes ... b"" at the end
    fail(error)                    read() raises it, if nothing was written
                                   client_left()    the client went away

The reader only subscribes: when it goes away the producer goes on, books, and decides itself what
becomes of the call. One that is behind by more than `HIGH_WATER` bytes makes the producer wait.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from msgspec import Struct

from tollhouse.kernel.eager_task import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tollhouse.kernel.errors import TollhouseError

HIGH_WATER = 256 * 1024


class GenerationOutcome(Struct, frozen=True, gc=False):
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


class Reply(ABC):
    """The producer's side of one reply."""

    def __init__(self, generation_id: str) -> None:
        self.generation_id = generation_id
        self.booked = False
        """Whether `generation_id` can be looked up."""
        self.output_limit: int | None = None
        """The limit of each answer's output that was set because no more can be paid for."""
        self.begun = False
        """Whether anything was written."""
        self.ended = False
        self.abandoned = False
        """Whether the client went away."""
        self.on_abandon: Callable[[], None] | None = None
        self.on_outcome: Callable[[GenerationOutcome], None] | None = None
        """Called once it is booked, or is not to be; also where the reader left before."""
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
            self._hand_over(comment)
            self.begun = True
        self._silent = True
        loop = asyncio.get_running_loop()
        self._beat = loop.call_later(seconds, self.keep_alive, seconds, comment)

    def write(self, data: bytes) -> bool:
        """Hand bytes to the client; false says that it is far behind: wait for `room`."""
        self._silent = False
        has_room = self.abandoned or self._hand_over(data)
        self.begun = True
        return has_room

    def finish(self, data: bytes) -> None:
        """Hand over the last bytes, however far behind the client is, and end."""
        if not self.abandoned:
            self._hand_over_last(data)
        self.begun = True
        self._end()

    def fail(self, error: TollhouseError) -> None:
        """End with an error that the client gets in place of a reply; after the end it is moot."""
        if not self.ended:
            self._fail(error)
            self._end()

    def client_left(self) -> None:
        """Say that the client went away; what is written from now on is thrown away."""
        if self.abandoned or self.ended:
            return
        self.abandoned = True
        self._drop()
        if self.on_abandon is not None:
            self.on_abandon()

    def _end(self) -> None:
        """Say that nothing more comes."""
        self.ended = True
        # It refers to the producer, which refers to us: without it both go with the last reader.
        self.on_abandon = None
        if self._beat is not None:
            self._beat.cancel()

    @abstractmethod
    async def room(self) -> None:
        """Wait until the client is no longer far behind, or has gone away."""

    @abstractmethod
    def _hand_over(self, data: bytes) -> bool: ...

    @abstractmethod
    def _hand_over_last(self, data: bytes) -> None: ...

    @abstractmethod
    def _fail(self, error: TollhouseError) -> None: ...

    @abstractmethod
    def _drop(self) -> None:
        """Forget what was not read, and let the producer go on."""


class ReplyBuffer(Reply):
    """A reply that a task reads."""

    def __init__(self, generation_id: str) -> None:
        super().__init__(generation_id)
        self._pieces: list[bytes] = []
        self._size = 0
        self._error: TollhouseError | None = None
        loop = asyncio.get_running_loop()
        self._written, self._read = Waiter(loop), Waiter(loop)

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
            await self._written
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._drop()
        return data

    @property
    def drained(self) -> bool:
        """Whether everything was read: further reads are empty."""
        return not self._pieces and (self.ended or self.abandoned)

    async def room(self) -> None:
        """Wait until the reader is no longer far behind, or has gone away."""
        while self._size > HIGH_WATER:
            await self._read

    def _hand_over(self, data: bytes) -> bool:
        self._pieces.append(data)
        self._size += len(data)
        self._written.wake()
        return self._size <= HIGH_WATER

    def _hand_over_last(self, data: bytes) -> None:
        self._pieces.append(data)

    def _fail(self, error: TollhouseError) -> None:
        self._error = error

    def _end(self) -> None:
        super()._end()
        self._written.wake()

    def _drop(self) -> None:
        self._pieces.clear()
        self._size = 0
        self._read.wake()
        if self.abandoned:
            self._written.wake()
