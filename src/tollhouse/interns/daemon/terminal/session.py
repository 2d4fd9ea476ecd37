"""A terminal: a shell, what it printed last, and at most one client that watches.

    program ──> replay ──> client

What is kept for those who come back is also what waits for a slow client: while one lags too far
behind, the program's output is not read, and the program waits in turn. With nobody attached it
never waits, and the oldest is forgotten.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.interns.daemon.terminal.replay import LIMIT, Replay

if TYPE_CHECKING:
    from tollhouse.interns.daemon.processes import Children
    from tollhouse.interns.daemon.terminal.messages import Size
    from tollhouse.interns.daemon.terminal.program import Program

LAG: Final = LIMIT // 2
"""Bytes that a client may be behind before the program waits for it. What is left of the replay
holds all that stands in a terminal, or a pipe, when its program ends."""
GRACE_SECONDS: Final = 2.0
"""Between asking a shell to end and killing it."""
_PIECE: Final = 65_536


@dataclass(frozen=True, slots=True)
class Farewell:
    """How a client's connection ends."""

    code: int
    """Of the WebSocket."""
    reason: str


class View:
    """A client's place in the output."""

    def __init__(self, position: int) -> None:
        """Begin at a position."""
        self.position = position
        self.farewell: asyncio.Future[Farewell] = asyncio.get_running_loop().create_future()
        """Done once the client has to leave."""

    def dismiss(self, farewell: Farewell) -> None:
        """Have the client leave."""
        if not self.farewell.done():
            self.farewell.set_result(farewell)


class Session:
    """A terminal that runs, or has ended and is kept for who wants to know how."""

    def __init__(self, name: str, program: Program, children: Children) -> None:
        """Take what was started; needs the running loop."""
        self.name = name
        self.tty = program.tty
        self.view: View | None = None
        self.exit_code: int | None = None
        """None while it runs."""
        self.told = False
        """Whether a client was told of its end."""
        self.replay = Replay()
        self._program = program
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._reading = False
        self._typing = asyncio.Lock()
        self._room: asyncio.Future[None] | None = None
        self._heed()
        self.ending = asyncio.create_task(self._end(children))
        """Done once it has ended."""

    def attach(self, position: int, instead: Farewell) -> View:
        """Let a client watch; the one before it is told to leave.

        Args:
            position: See `Replay.first`.
            instead: What the one before is told.
        """
        if self.view is not None:
            self.view.dismiss(instead)
        self.view = View(self.replay.first(position))
        self._heed()
        return self.view

    def detach(self, view: View) -> None:
        """Let a client go; the program runs on."""
        if self.view is view:
            self.view = None
            self._heed()

    async def output(self, view: View) -> bytes:
        """Wait for what is printed next; nothing where all is over."""
        while True:
            if data := self.replay.read(view.position, _PIECE):
                view.position += len(data)
                self._heed()
                return data
            if self.exit_code is not None:
                return b""
            self._news.clear()
            await self._news.wait()

    async def write(self, data: bytes) -> None:
        """Type something; waits while the program reads nothing. What nobody reads is lost."""
        rest = memoryview(data)
        async with self._typing:
            while rest and (file := self._program.writes) is not None:
                try:
                    rest = rest[os.write(file, rest) :]
                except BlockingIOError:
                    await self._wait_for_room(file)
                except OSError:  # it has ended, or reads no more
                    return

    def end_input(self) -> None:
        """See `Program.end_input`."""
        self._let_write()
        self._program.end_input()

    def resize(self, size: Size) -> None:
        """See `Program.resize`."""
        self._program.resize(size)

    def hang_up(self) -> None:
        """End it: politely first, and by force after `GRACE_SECONDS`."""
        if self.exit_code is None:
            self._program.hang_up()
            self._loop.call_later(GRACE_SECONDS, self._kill)

    def _kill(self) -> None:
        if self.exit_code is None:
            self._program.kill()

    async def _end(self, children: Children) -> None:
        code = await children.ended(self._program.pid)
        children.forget(self._program.pid)
        self._read_last()
        self._stop_reading()
        self._let_write()
        self._program.close()
        self.exit_code = code
        self._news.set()

    def _read_last(self) -> None:
        """Read what it printed before it ended; what others print there later is theirs."""
        rest = _PIECE  # a pipe holds no more, and a terminal less
        with suppress(OSError):
            while size := self._take(rest):
                rest -= size

    def _heed(self) -> None:
        """Read the program's output, unless a client is too far behind."""
        file = self._program.reads
        lag = 0 if self.view is None else self.replay.end - self.view.position
        if file is None or lag >= LAG:
            self._stop_reading()
        elif not self._reading:
            self._loop.add_reader(file, self._readable)
            self._reading = True

    def _readable(self) -> None:
        try:
            size = self._take(_PIECE)
        except BlockingIOError:
            return
        except OSError:  # nobody has the terminal open any more
            size = 0
        if size:
            self._heed()
        else:
            self._stop_reading()

    def _take(self, most: int) -> int:
        if self._program.reads is None or not most:
            return 0
        data = os.read(self._program.reads, most)
        self.replay.append(data)
        self._news.set()
        return len(data)

    def _stop_reading(self) -> None:
        if self._reading and self._program.reads is not None:
            self._loop.remove_reader(self._program.reads)
        self._reading = False

    async def _wait_for_room(self, file: int) -> None:
        self._room = self._loop.create_future()
        self._loop.add_writer(file, self._let_write)
        try:
            await self._room
        finally:
            self._let_write()

    def _let_write(self) -> None:
        """Wake whoever waits for room."""
        if self._room is None:
            return
        if self._program.writes is not None:
            self._loop.remove_writer(self._program.writes)
        if not self._room.done():
            self._room.set_result(None)
        self._room = None
