"""This process's own input and output: raw where they are a terminal, and as before afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import termios
import tty
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from tollhouse.cli.output import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

_PIECE: Final = 32 * 1024
_ENDING: Final = (signal.SIGTERM, signal.SIGHUP)
_LEAVE_MODES: Final = b"\x1b[?1049l\x1b[?2004l\x1b[?1000l\x1b[?1006l\x1b[?25h\x1b[0m"
"""Out of the alternate screen, bracketed paste and mouse reports; cursor on, colours off."""


class Local:
    """Where input comes from and output goes to."""

    def __init__(self) -> None:
        """Take standard input and output."""
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
        """Pass each key on as it is typed, for as long as the block runs.

        Args:
            resized: Called when the terminal has another size.

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
