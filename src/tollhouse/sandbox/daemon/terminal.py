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
import signal
import termios
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tollhouse.sandbox.daemon.processes import ChildProcesses, kill_session, signal_group

if TYPE_CHECKING:
    from collections.abc import Mapping

SCROLLBACK_BYTES: Final = 256 * 1024
MOST_LAG: Final = SCROLLBACK_BYTES // 2
"""Bytes that a client may be behind before the program waits for it. What is left of the
scrollback holds all that stands in a terminal, or a pipe, when its program ends."""
MOST_INPUT: Final = 256 * 1024
"""Bytes of input that wait for the program."""
GRACE_SECONDS: Final = 2.0
"""Between asking a shell to end and killing it."""
_PIECE: Final = 65_536
_CONTINUES: Final = 0b1000_0000
_CONTINUES_MASK: Final = 0b1100_0000
_LONGEST_CHARACTER: Final = 4


@dataclass(frozen=True, slots=True)
class TerminalSize:
    """In characters."""

    rows: int = 24
    columns: int = 80


class Scrollback:
    """The last bytes of a program's output. A position is the number of bytes before it."""

    def __init__(self, limit: int = SCROLLBACK_BYTES) -> None:
        self._limit = limit
        self._kept = bytearray()
        self._start = 0

    @property
    def end(self) -> int:
        """The position after all output."""
        return self._start + len(self._kept)

    def append(self, data: bytes) -> None:
        """Add output; forget the oldest."""
        self._kept += data
        excess = len(self._kept) - self._limit
        if excess > 0:
            del self._kept[:excess]
            self._start += excess

    def start_from(self, wanted: int) -> int:
        """Return where output starts for a client that wants everything from a position on.

        That is the wanted position if it is kept, or the end if that comes first; otherwise the
        oldest that is kept and does not split a character.
        """
        if wanted >= self._start:
            return min(wanted, self.end)
        head = self._kept[: _LONGEST_CHARACTER - 1]
        begins = (at for at, byte in enumerate(head) if byte & _CONTINUES_MASK != _CONTINUES)
        return self._start + next(begins, len(head))

    def read(self, position: int, limit: int) -> bytes:
        """Return output from a kept position on; nothing at the end."""
        at = position - self._start
        return bytes(self._kept[at : at + limit])


def start_shell(
    children: ChildProcesses, environment: Mapping[str, str], size: TerminalSize, *, tty: bool
) -> tuple[int, int, int]:
    """Start the login shell `SHELL` in the daemon's folder, on a terminal or between two pipes.

    Without a terminal it reads a script, and its standard output and error come as one. Returned
    are its number, and the descriptors of its output and input: the same one for a terminal.
    """
    shell = environment["SHELL"]
    name = f"-{shell.rpartition('/')[2]}"  # the hyphen makes it a login shell
    if not tty:
        return children.start_piped(shell, [name], environment, errors=True)
    ours, theirs = os.openpty()
    try:
        termios.tcsetwinsize(ours, (size.rows, size.columns))
        os.set_blocking(ours, False)
        files = [
            (os.POSIX_SPAWN_OPEN, 0, os.ttyname(theirs), os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        pid = children.start(shell, [name], environment, files)
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return pid, ours, ours


@dataclass(frozen=True, slots=True)
class CloseReason:
    """Code and reason with which a client's WebSocket is closed."""

    code: int
    reason: str


class Attachment:
    """A client's place in the output."""

    def __init__(self, position: int, acknowledged: int) -> None:
        self.position = position
        self.acknowledged = acknowledged
        """Bytes of input that were acknowledged to the client."""
        self.close_reason: asyncio.Future[CloseReason] = asyncio.get_running_loop().create_future()
        """Done once the client has to leave."""

    def dismiss(self, reason: CloseReason) -> None:
        """Have the client disconnected."""
        if not self.close_reason.done():
            self.close_reason.set_result(reason)


class Terminal:
    """A terminal that runs, or has ended and is kept so that clients learn its exit code."""

    def __init__(
        self, name: str, shell: tuple[int, int, int], children: ChildProcesses, *, tty: bool
    ) -> None:
        self.name = name
        self.tty = tty
        self._pid, reads, writes = shell
        self._reads: int | None = reads
        """Descriptor of its output; None once it is closed."""
        self._writes: int | None = writes
        """Descriptor of its input; None once that has ended."""
        self.attachment: Attachment | None = None
        self.exit_code: int | None = None
        """None while it runs."""
        self.exit_reported = False
        self.replay = Scrollback()
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self.taken = 0
        """Bytes of input that the program has read."""
        self._input = bytearray()
        self._input_ends = False
        self._resume_reading()
        self.ending = asyncio.create_task(self._wait_for_end(children))

    @property
    def received(self) -> int:
        """Bytes of input that have arrived."""
        return self.taken + len(self._input)

    def attach(self, position: int, instead: CloseReason) -> Attachment:
        """Attach a client at a position; one before it is dismissed for the reason `instead`."""
        if self.attachment is not None:
            self.attachment.dismiss(instead)
        self.attachment = Attachment(self.replay.start_from(position), self.taken)
        self._resume_reading()
        return self.attachment

    def detach(self, attachment: Attachment) -> None:
        """Detach a client; the program runs on."""
        if self.attachment is attachment:
            self.attachment = None
            self._resume_reading()

    def next_output(self, attachment: Attachment) -> bytes:
        """Return the next output for a client; nothing if it has all."""
        data = self.replay.read(attachment.position, _PIECE)
        attachment.position += len(data)
        self._resume_reading()
        return data

    async def wait_for_news(self) -> None:
        """Wait until there is output, input was read, or the program has ended."""
        self._news.clear()
        await self._news.wait()

    def type_input(self, data: bytes) -> bool:
        """Add input, and return whether there was room; after the program's end it is lost."""
        if len(self._input) + len(data) > MOST_INPUT:
            return False
        self._input += data
        self._write_input()
        return True

    def end_input(self) -> None:
        """End the input, after what was added to it before."""
        self._input_ends = True
        self._write_input()

    def resize(self, size: TerminalSize) -> None:
        """Set the terminal's size, if it is one and no two pipes."""
        if self.tty and self._reads is not None:
            termios.tcsetwinsize(self._reads, (size.rows, size.columns))

    def hang_up(self) -> None:
        """Ask it to end, as a closed terminal does, and kill it after `GRACE_SECONDS`."""
        if self.exit_code is None:
            for number in (signal.SIGHUP, signal.SIGCONT):
                signal_group(self._pid, number)
            self._loop.call_later(GRACE_SECONDS, self._kill)

    def _kill(self) -> None:
        if self.exit_code is None:
            kill_session(self._pid)

    async def _wait_for_end(self, children: ChildProcesses) -> None:
        code = await children.ended(self._pid)
        self._read_last()
        self._stop_reading()
        self._stop_writing()
        for file in {self._reads, self._writes}:
            if file is not None:
                os.close(file)
        self._reads = self._writes = None
        self.exit_code = code
        self._news.set()

    def _read_last(self) -> None:
        """Read what it printed before it ended; later output is other programs'."""
        rest = _PIECE  # a pipe holds no more, and a terminal less
        with suppress(OSError):
            while size := self._read_piece(rest):
                rest -= size

    def _resume_reading(self) -> None:
        """Read the program's output, unless a client is too far behind."""
        file = self._reads
        lag = 0 if self.attachment is None else self.replay.end - self.attachment.position
        if file is None or lag >= MOST_LAG:
            self._stop_reading()
        else:
            self._loop.add_reader(file, self._readable)

    def _readable(self) -> None:
        try:
            size = self._read_piece(_PIECE)
        except BlockingIOError:
            return
        except OSError:  # nobody has the terminal open any more
            size = 0
        if size:
            self._resume_reading()
        else:
            self._stop_reading()

    def _read_piece(self, most: int) -> int:
        if self._reads is None or not most:
            return 0
        data = os.read(self._reads, most)
        self.replay.append(data)
        self._news.set()
        return len(data)

    def _stop_reading(self) -> None:
        if self._reads is not None:
            self._loop.remove_reader(self._reads)

    def _write_input(self) -> None:
        """Write input for as long as the program reads it."""
        file = self._writes
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
            self._loop.add_writer(file, self._write_input)
            return
        self._stop_writing()
        if self._input_ends and not self.tty and file is not None:
            os.close(file)  # the input of a terminal goes on, since Ctrl-D is typed there
            self._writes = None

    def _stop_writing(self) -> None:
        if self._writes is not None:
            self._loop.remove_writer(self._writes)
