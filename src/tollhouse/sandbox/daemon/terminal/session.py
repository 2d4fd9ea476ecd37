"""A terminal: a shell, what it printed last, and at most one client that watches.

    program ──> replay ──> client

What is kept for those who come back is also what waits for a slow client: while one lags too far
behind, the program's output is not read, and the program waits in turn. With nobody attached it
never waits, and the oldest is forgotten.

    client ──> input ──> program

What a program does not read waits here, within bounds, and not in the connection: so a client's
pings are answered, and its leaving is noticed, however long the program is busy.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.terminal.replay import LIMIT, Replay

if TYPE_CHECKING:
    from tollhouse.sandbox.daemon.processes import Children
    from tollhouse.sandbox.daemon.terminal.messages import Size
    from tollhouse.sandbox.daemon.terminal.program import Program

LAG: Final = LIMIT // 2
"""Bytes that a client may be behind before the program waits for it. What is left of the replay
holds all that stands in a terminal, or a pipe, when its program ends."""
MOST_INPUT: Final = 256 * 1024
"""Bytes of input that wait for the program."""
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
        self.acknowledged = 0
        """Bytes of input that the client knows to be taken."""
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
        self.taken = 0
        """Bytes of input that the program took, from its start on."""
        self._input = bytearray()
        self._input_ends = False
        self._writing = False
        self._heed()
        self.ending = asyncio.create_task(self._end(children))
        """Done once it has ended."""

    @property
    def received(self) -> int:
        """Bytes of input that came, from its start on."""
        return self.taken + len(self._input)

    def attach(self, position: int, instead: Farewell) -> View:
        """Let a client watch; the one before it is told to leave.

        Args:
            position: See `Replay.first`.
            instead: What the one before is told.
        """
        if self.view is not None:
            self.view.dismiss(instead)
        self.view = View(self.replay.first(position))
        self.view.acknowledged = self.taken
        self._heed()
        return self.view

    def detach(self, view: View) -> None:
        """Let a client go; the program runs on."""
        if self.view is view:
            self.view = None
            self._heed()

    def printed(self, view: View) -> bytes:
        """Return what a client has not had so far; nothing where that is all."""
        data = self.replay.read(view.position, _PIECE)
        view.position += len(data)
        self._heed()
        return data

    async def news(self) -> None:
        """Wait until something was printed or taken, or the program has ended."""
        self._news.clear()
        await self._news.wait()

    def type(self, data: bytes) -> bool:
        """Type something. What nobody will read any more is lost.

        Returns:
            Whether there was room for it.
        """
        if len(self._input) + len(data) > MOST_INPUT:
            return False
        self._input += data
        self._feed()
        return True

    def end_input(self) -> None:
        """See `Program.end_input`; what was typed before comes before it."""
        self._input_ends = True
        self._feed()

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
        self._stop_writing()
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

    def _feed(self) -> None:
        """Pass input on for as long as the program takes it."""
        file = self._program.writes
        while self._input and file is not None:
            try:
                size = os.write(file, self._input[:_PIECE])
            except BlockingIOError:
                break
            except OSError:  # it reads no more
                size = len(self._input)
            del self._input[:size]
            self.taken += size
            self._news.set()
        if self._input and file is not None:
            if not self._writing:
                self._loop.add_writer(file, self._feed)
                self._writing = True
            return
        self._stop_writing()
        if self._input_ends:
            self._program.end_input()

    def _stop_writing(self) -> None:
        if self._writing and self._program.writes is not None:
            self._loop.remove_writer(self._program.writes)
        self._writing = False
