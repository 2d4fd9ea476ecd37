"""`tollhouse` on a pseudo-terminal: its output, and the keys to it."""

import fcntl
import os
import pty
import select
import subprocess
import termios
import time
from pathlib import Path

from tests.support.forked import ForkedProcess
from tests.support.server_process import TOLLHOUSE, clean_environment, restore_sigint

SECONDS = 60


class Terminal:
    """A command on a pseudo-terminal, or a script in the place of `tollhouse`."""

    def __init__(
        self,
        args: tuple[str, ...],
        env: dict[str, str],
        program: str | Path = TOLLHOUSE,
        script: str | None = None,
    ) -> None:
        self._master, slave = pty.openpty()

        def take_terminal() -> None:
            restore_sigint()
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)

        command = [str(program), *args]
        environment = clean_environment({**env, "TERM": "xterm"})
        streams = {"stdin": slave, "stdout": slave, "stderr": slave}
        self._process: subprocess.Popen[bytes] = (
            ForkedProcess(command, env=environment, terminal=True, script=script, **streams)
            if program == TOLLHOUSE
            else subprocess.Popen(
                command,
                env=environment,
                **streams,
                start_new_session=True,
                preexec_fn=take_terminal,  # noqa: PLW1509 - the child alone has this terminal
            )
        )
        os.close(slave)
        self.text = ""

    def read_until(self, text: str) -> None:
        """Read the output until it contains a text."""
        deadline = time.monotonic() + SECONDS
        while text not in self.text:
            assert self._read(deadline), f"no {text!r} in {self.text!r}"

    def type(self, text: str) -> None:
        """Type a text."""
        os.write(self._master, text.encode())

    def press(self, keys: bytes) -> None:
        """Send control characters."""
        os.write(self._master, keys)

    def resize(self, rows: int, columns: int) -> None:
        """Change the size of the terminal."""
        termios.tcsetwinsize(self._master, (rows, columns))

    @property
    def is_raw(self) -> bool:
        """Whether each key goes to the command as it is pressed."""
        return not termios.tcgetattr(self._master)[3] & (termios.ICANON | termios.ECHO)

    @property
    def pid(self) -> int:
        return self._process.pid

    def has_ended(self, seconds: float) -> bool:
        """Tell whether the command ends within a time."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self) -> int:
        """Read the output to its end and return the exit code."""
        deadline = time.monotonic() + SECONDS
        while self._read(deadline):
            pass
        return self._process.wait(SECONDS)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._master)

    def _read(self, deadline: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
        try:
            piece = os.read(self._master, 65_536) if ready else b""
        except OSError:  # the other end is closed
            piece = b""
        self.text += piece.decode(errors="replace")
        return bool(piece)
