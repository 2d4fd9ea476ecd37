"""Child processes that speak JSON lines and are always ended."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from contextlib import AbstractContextManager, suppress
from select import select
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import IO

_TERM_SECONDS = 35.0
"""Longer than the gateway waits for running requests."""
_STDERR_TAIL = 2_000
_SETTINGS = "TOLLHOUSE_"
_object = msgspec.json.Decoder(dict[str, Any])


class BenchError(Exception):
    """The benchmark cannot continue; the text is for the user."""


class Child(AbstractContextManager["Child"]):
    """A child process; as a context manager it is ended on the way out.

    Its standard input stays open as long as we live: children of ours end when it closes.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        seconds: float = 30.0,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._seconds = seconds
        self._buffer = b""
        # A file, not a pipe: nobody reads it while the child runs, and a full pipe would stop it.
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `stop`
        inherited = {name: v for name, v in os.environ.items() if not name.startswith(_SETTINGS)}
        self.started = perf_counter()
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**inherited, **(environment or {})},
            # Ctrl-C is for us: we end the children in order.
            start_new_session=True,
        )
        self.pid = self._process.pid

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def __exit__(self, *_: object) -> None:
        self.stop()

    def send_line(self, line: str) -> None:
        """Write a line to its standard input."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.write(line.encode() + b"\n")
                self._process.stdin.flush()

    def receive_object(self, seconds: float | None = None) -> dict[str, Any]:
        """Return the next JSON object from its standard output."""
        deadline = perf_counter() + (self._seconds if seconds is None else seconds)
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        while True:
            while b"\n" not in self._buffer:
                if not select([output], [], [], max(0.0, deadline - perf_counter()))[0]:
                    raise self._failed("said nothing in time")
                if not (piece := os.read(output, 65_536)):
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(5)
                    raise self._failed(f"ended with exit code {self._process.returncode}")
                self._buffer += piece
            line, _, self._buffer = self._buffer.partition(b"\n")
            with suppress(msgspec.DecodeError):
                return _object.decode(line)

    def stop(self) -> None:
        """End it with SIGTERM, then with SIGKILL."""
        if self.running:
            self._process.terminate()
            try:
                self._process.wait(_TERM_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _failed(self, what: str) -> BenchError:
        size = self._stderr.seek(0, 2)
        self._stderr.seek(max(0, size - _STDERR_TAIL))
        words = self._stderr.read().decode("utf-8", "replace").strip()
        return BenchError(f"{self.name} {what}" + (f"; its last words:\n{words}" if words else ""))


def free_port() -> int:
    """Return a port that is free now, for programs that cannot choose one themselves."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_until_listening(child: Child, port: int, seconds: float) -> None:
    """Return once a process accepts connections."""
    deadline = perf_counter() + seconds
    while perf_counter() < deadline:
        if not child.running:
            child.receive_object(1.0)  # raises, with its last words
        with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port), 1.0):
            return
        sleep(0.01)
    raise BenchError(f"{child.name} did not listen within {seconds:.0f} s")
