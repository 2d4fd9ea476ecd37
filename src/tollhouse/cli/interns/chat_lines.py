"""Lines that a person types, or that a program writes to standard input."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import TYPE_CHECKING

from tollhouse.cli.failures import CommandFailed
from tollhouse.cli.interns.chat import Interrupted
from tollhouse.sandbox.daemon.sessions.limits import MOST_INPUT

if TYPE_CHECKING:
    from collections.abc import Generator


def is_typed() -> bool:
    """Tell whether standard input is a terminal. It may not be there at all."""
    return bool(sys.stdin) and sys.stdin.isatty()


class Lines:
    """Standard input, line by line. Nothing else of this program runs meanwhile."""

    def __init__(self) -> None:
        """Take it; on a terminal with editing and history, where Python has them."""
        self.is_terminal = is_typed()
        self.was_interrupted = False
        """Set where Ctrl-C came before the wait for a line began: the next wait ends at once."""
        self._edits = self.is_terminal and sys.stdout.isatty()
        if self._edits:
            with suppress(ImportError):
                readline = import_module("readline")  # `input` uses it once it is there
                # What is pasted is one text, whatever lines it has; Python switches that off.
                readline.parse_and_bind("set enable-bracketed-paste on")

    def read(self, prompt: str) -> str | None:
        """Return the next line without its end; None where there is none.

        Args:
            prompt: Shown before it, to people only.

        Raises:
            CommandFailed: It is no UTF-8.
            Interrupted: Ctrl-C.
        """
        with _from_input(self.is_terminal):
            if self.was_interrupted:
                raise KeyboardInterrupt
            return self._next(prompt)

    def read_text(self, prompt: str) -> str | None:
        r"""Return the next text: a line, or several where each but the last ends with `\\`.

        Raises:
            CommandFailed: It is no UTF-8.
            Interrupted: Ctrl-C.
        """
        lines = list[str]()
        while (line := self.read("... " if lines else prompt)) is not None:
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line.removesuffix("\\"))
        return "\n".join(lines) if lines else None

    def _next(self, prompt: str) -> str | None:
        if self._edits:
            try:
                return input(prompt)
            except EOFError:
                print()
                return None
        if self.is_terminal:
            print(prompt, end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline() if sys.stdin else ""
        return line.removesuffix("\n") if line else None


def whole_input() -> str:
    """Return all of standard input, or so much that it is longer than a prompt may be.

    Raises:
        CommandFailed: It is no UTF-8.
        Interrupted: Ctrl-C.
    """
    with _from_input(is_typed()):
        return sys.stdin.read(MOST_INPUT + 2).removesuffix("\n") if sys.stdin else ""


@contextmanager
def _from_input(is_terminal: bool) -> Generator[None]:
    """Wait for input so that Ctrl-C ends the wait, and nothing else."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        if is_terminal:
            print(file=sys.stderr)
        raise Interrupted from None
    except UnicodeDecodeError:
        message = "standard input holds bytes that are no UTF-8 text"
        raise CommandFailed(message) from None
    finally:
        signal.signal(signal.SIGINT, before)
