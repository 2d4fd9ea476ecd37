"""The server's log: its files, for `tollhouse logs`, and one line for each request that is over.

    server.log      what was logged last, as JSON lines
    server.log.1    what was logged before that, and so on until `.4`, which is deleted next

All files together have a bound, so that a log never fills the disk.

Every request passes here, so its line is built from facts alone (statuses, ids, labels, figures)
and written without the processors of other log lines, which cost ten times as much. A fact never
comes from a header or a body. A server writes the lines of many requests at once, a moment later.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from datetime import datetime
from threading import Lock
from typing import TYPE_CHECKING, Final, TextIO

import msgspec
from msgspec import Struct

from tollhouse.kernel.clock import Clock, SystemClock

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FILES: Final = 5
_OWNER_ONLY: Final = 0o600
_LOGGER: Final = logging.getLogger("tollhouse.requests")
"""Says at which level requests are logged."""
_GATHER_SECONDS: Final = 0.05
_MOST_GATHERED: Final = 500
_NAMES: Final = {logging.DEBUG: "debug", logging.INFO: "info"}
"""The levels at which requests are logged."""
_FIRST: Final = frozenset(("timestamp", "level", "event"))
_encode_lines: Final = msgspec.json.Encoder().encode_lines


class FinishedRequest(Struct, omit_defaults=True, tag_field="event", tag="request"):
    """The facts of a request that is over, in the order of a line; those that are None are no part.

    Its level and time are the log's to say.
    """

    method: str | None = None
    route: str | None = None
    status: int | None = None
    error: str | None = None
    ms: int | None = None
    first_token_ms: int | None = None
    model: str | None = None
    provider: str | None = None
    cost: str | None = None
    key_label: str | None = None
    caller: str | None = None
    generation: str | None = None
    level: str = ""
    timestamp: datetime | None = None


class LogFile:
    """A stream of lines into files of which the oldest is deleted when a new one begins."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Name a file in a folder that is made if it is missing; opened when the first line comes.

        All files together hold so many bytes, unless one line alone is longer.
        """
        self._path = path
        self._most = most_bytes // FILES
        self._lock = Lock()  # the handlers that write here have a lock each
        self._file: int | None = None
        self._size = 0

    def write(self, text: str) -> None:
        """Append a line; OSError if the disk is full, say."""
        self._append(text.encode("utf-8", "backslashreplace"))

    def write_bytes(self, data: bytes) -> None:
        """Append whole lines as they are stored; OSError as above."""
        if self._size + len(data) <= self._most:
            self._append(data)
        else:
            for line in data.splitlines(keepends=True):
                self._append(line)

    def _append(self, data: bytes) -> None:
        with self._lock:
            file = self._opened()
            if self._size and self._size + len(data) > self._most:
                self._rotate(file)
                file = self._opened()
            self._size += os.write(file, data)

    def _opened(self) -> int:
        if self._file is None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._file = os.open(self._path, flags, _OWNER_ONLY)
            self._size = os.fstat(self._file).st_size
        return self._file

    def _rotate(self, file: int) -> None:
        self._file = None
        os.close(file)
        files = _file_names(self._path)
        for newer, older in zip(files[-2::-1], files[:0:-1], strict=True):
            if newer.exists():
                newer.replace(older)


def log_files(path: Path) -> Sequence[Path]:
    """Return the files of a log that are there, the oldest first."""
    return [each for each in reversed(_file_names(path)) if each.exists()]


def _file_names(path: Path) -> Sequence[Path]:
    """Return the names of all files that a log may have, the newest first."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, FILES))]


class RequestLog:
    """Lines of requests, and where they are written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._out: TextIO | None = None
        self._is_console = False
        self._file: LogFile | None = None
        self._lines: list[FinishedRequest] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def open(self, out: TextIO, *, console: bool, file: LogFile | None = None) -> None:
        """Write lines to a stream, as JSON or as text for people, and to a file as JSON."""
        self._out, self._is_console, self._file = out, console, file

    def gather(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write from now on what came in a moment at once: a write costs as much as a request.

        A process that is killed loses the lines of that moment.
        """
        self._loop = loop

    def add(self, line: FinishedRequest, level: int = logging.INFO) -> None:
        """Take a line."""
        line.level = _NAMES[level]
        line.timestamp = self._clock.now()
        self._lines.append(line)
        if self._loop is None or len(self._lines) >= _MOST_GATHERED:
            self.flush()
        elif len(self._lines) == 1:
            self._loop.call_later(_GATHER_SECONDS, self.flush)

    def close(self) -> None:
        """Write what is gathered, and each line at once from now on."""
        self._loop = None
        self.flush()

    def flush(self) -> None:
        """Write what is gathered; what cannot be written is lost, and holds up no request."""
        lines, self._lines = self._lines, []
        if not lines:
            return
        as_json = _encode_lines(lines)
        if self._file is not None:
            with suppress(OSError):
                self._file.write_bytes(as_json)
        if self._out is not None:
            with suppress(OSError, ValueError):
                if self._is_console:
                    shown = map(msgspec.to_builtins, lines)
                    self._out.write("".join(f"{text_line(line)}\n" for line in shown))
                else:
                    self._out.write(as_json.decode())
                self._out.flush()


request_log: Final = RequestLog(SystemClock())
"""That of this process."""


def log_request(line: FinishedRequest, level: int = logging.INFO) -> None:
    """Log that a request is over."""
    if _LOGGER.isEnabledFor(level):
        request_log.add(line, level)


def text_line(facts: Mapping[str, object]) -> str:
    """Return a line of the log, whose facts are those of its JSON, as text for people."""
    shown = " ".join(f"{name}={fact}" for name, fact in facts.items() if name not in _FIRST)
    return f"{facts.get('timestamp')} [{facts.get('level')!s:9}] {facts.get('event')}  {shown}"
