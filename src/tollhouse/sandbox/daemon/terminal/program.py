"""A shell that runs, on a terminal of its own or between two pipes.

Source: pty(7), setsid(2): a process that leads a session and opens a terminal gets it as its
controlling one.
"""

from __future__ import annotations

import os
import signal
import termios
from typing import TYPE_CHECKING

from tollhouse.sandbox.daemon.processes import kill_session, signal_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tollhouse.sandbox.daemon.processes import Children
    from tollhouse.sandbox.daemon.terminal.messages import Size


class Program:
    """A shell, and the descriptors that lead to it."""

    def __init__(self, pid: int, reads: int, writes: int, *, tty: bool) -> None:
        """Take what was started.

        Args:
            pid: Its number.
            reads: Where its output comes from.
            writes: Where its input goes to; the same on a terminal.
            tty: Whether it has a terminal.
        """
        self.pid = pid
        self.tty = tty
        self.reads: int | None = reads
        """None once there is nothing more to read."""
        self.writes: int | None = writes
        """None once its input has ended."""

    def resize(self, size: Size) -> None:
        """Tell it how large its terminal is; without one, do nothing."""
        if self.tty and self.reads is not None:
            termios.tcsetwinsize(self.reads, (size.rows, size.columns))

    def end_input(self) -> None:
        """End its input; a terminal's goes on, as there Ctrl-D is typed."""
        if not self.tty and self.writes is not None:
            os.close(self.writes)
            self.writes = None

    def close(self) -> None:
        """Close what leads to it: the terminal hangs up."""
        for file in {self.reads, self.writes} - {None}:
            assert file is not None  # noqa: S101 - for the type checker
            os.close(file)
        self.reads = self.writes = None

    def hang_up(self) -> None:
        """Ask it to end, as a terminal does that is closed."""
        for number in (signal.SIGHUP, signal.SIGCONT):
            signal_group(self.pid, number)

    def kill(self) -> None:
        """Kill it, and what it has started in its session."""
        kill_session(self.pid)


def start_shell(
    children: Children, environment: Mapping[str, str], size: Size, *, tty: bool
) -> Program:
    """Start a login shell in the daemon's folder.

    Args:
        children: Starts it.
        environment: All of its variables; `SHELL` is its path.
        size: Of its terminal.
        tty: Whether it gets a terminal. Else it reads a script, and what it prints on standard
            output and standard error comes as one.

    Raises:
        OSError: There is no terminal left, or no process.
    """
    shell = environment["SHELL"]
    name = f"-{shell.rpartition('/')[2]}"  # the hyphen makes it a login shell
    if tty:
        return _on_terminal(children, shell, name, environment, size)
    pid, reads, writes = children.start_piped(shell, [name], environment, errors=True)
    return Program(pid, reads, writes, tty=False)


def _on_terminal(
    children: Children, shell: str, name: str, environment: Mapping[str, str], size: Size
) -> Program:
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
    return Program(pid, ours, ours, tty=True)
