"""This process's side of a terminal: its input and output, the detach keys, unsent input."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Final

from tollhouse.cli.values import one_line

ESCAPE: Final = b"\x1d"
"""Ctrl-]. No shell and no editor needs it, and telnet has used it for the same."""
_DETACH: Final = frozenset(b"qQ")
WINDOW: Final = 192 * 1024
"""Bytes that may be under way; a daemon holds 256 KiB."""
_PIECE: Final = 32 * 1024
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_LEAVE_MODES: Final = b"\x1b[?1049l\x1b[?2004l\x1b[?1000l\x1b[?1006l\x1b[?25h\x1b[0m"
"""Out of the alternate screen, bracketed paste and mouse reports; cursor on, colours off."""


class DetachKeys:
    """Looks for Ctrl-] q. Ctrl-] twice is one for the program, as it is before any other key."""

    def __init__(self) -> None:
        self._escaped = False

    def typed(self, data: bytes) -> tuple[bytes, bool]:
        """Take pieces of what was typed; return what is for the program, and whether to leave."""
        passed = bytearray()
        for key in data:
            if not self._escaped:
                self._escaped = key == ESCAPE[0]
                if not self._escaped:
                    passed.append(key)
                continue
            self._escaped = False
            if key in _DETACH:
                return bytes(passed), True
            passed += ESCAPE
            if key != ESCAPE[0]:
                passed.append(key)
        return bytes(passed), False


class InputBuffer:
    """Input, by its position in all that a terminal was ever sent."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._start = 0
        self._begun = False
        self._sent = 0

    @property
    def room(self) -> int:
        """How many bytes more may be taken."""
        return WINDOW - len(self._kept)

    def add(self, data: bytes) -> None:
        """Take input."""
        self._kept += data

    def next(self, most: int) -> bytes:
        """Return what is to be sent next."""
        data = bytes(self._kept[self._sent : self._sent + most])
        self._sent += len(data)
        return data

    def taken(self, position: int) -> None:
        """Forget what the program has taken."""
        size = min(max(0, position - self._start), len(self._kept))
        del self._kept[:size]
        self._start += size
        self._sent = max(0, self._sent - size)

    def attached(self, position: int) -> None:
        """Begin to send on a new connection, to a terminal that has had so much so far."""
        if not self._begun:
            self._begun = True
            self._start = position
        self.taken(position)
        self._sent = 0


class LocalTerminal:
    """Where input comes from and output goes to."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self.is_terminal = os.isatty(self._input)

    def size(self) -> tuple[int, int] | None:
        """Return rows and columns of the terminal; None where it has no size."""
        for file in (self._input, self._output):
            with suppress(OSError):
                columns, rows = os.get_terminal_size(file)
                if rows and columns:
                    return rows, columns
        return None

    @contextmanager
    def raw(self, resized: Callable[[], None]) -> Generator[None]:
        """Pass each key on as it is typed; `resized` is called when the terminal has another size.

        What the program had switched on in the terminal is switched off at the end. Where standard
        input is no terminal this does nothing.
        """
        if not self.is_terminal:
            yield
            return
        loop = asyncio.get_running_loop()
        before = termios.tcgetattr(self._input)

        def again() -> None:  # the shell has set its own mode while this was stopped
            tty.setraw(self._input, termios.TCSANOW)
            resized()

        loop.add_signal_handler(signal.SIGWINCH, resized)
        loop.add_signal_handler(signal.SIGCONT, again)
        try:
            # At once: otherwise what was typed ahead is thrown away.
            tty.setraw(self._input, termios.TCSANOW)
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_signal_handler(signal.SIGCONT)
            if os.isatty(self._output):
                with suppress(OSError):
                    os.write(self._output, _LEAVE_MODES)
            # What was typed ahead was for the program there, not for the shell here.
            # Not after all output: that may never be read.
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(self._input, termios.TCSANOW, before)
                termios.tcflush(self._input, termios.TCIFLUSH)

    @contextmanager
    def ended_by(self, end: Callable[[int], None]) -> Generator[None]:
        """Call somebody when a signal asks this process to end, for as long as the block runs."""
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, end, number)
        try:
            yield
        finally:
            for number in _ENDING:
                loop.remove_signal_handler(number)

    async def read(self) -> bytes:
        """Wait for input; nothing at its end."""
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            loop.remove_reader(self._input)
            if not ready.done():
                ready.set_result(None)

        try:
            loop.add_reader(self._input, wake)
        except PermissionError:  # a file is always ready
            return self._read()
        try:
            await ready
        finally:
            loop.remove_reader(self._input)
        return self._read()

    async def write(self, data: bytes) -> bool:
        """Write output, as fast as it is taken; tell whether anybody reads on."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, self._write, data)

    def say(self, text: str) -> None:
        """Tell a person something; nothing where nobody watches."""
        if self.is_terminal and os.isatty(sys.stderr.fileno()):
            with suppress(OSError):
                os.write(sys.stderr.fileno(), f"\r\n[{one_line(text)}]\r\n".encode())

    def _read(self) -> bytes:
        try:
            return os.read(self._input, _PIECE)
        except OSError:  # the terminal is gone
            return b""

    def _write(self, data: bytes) -> bool:
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._output, view) :]
        except OSError:
            return False
        return True
