"""The server's log in its data folder, as JSON lines, for `tollhouse logs`.

    server.log      what was logged last
    server.log.1    what was logged before that, and so on until `.4`, which is deleted next

All of them together have a bound, so that a log never fills the disk.
"""

from __future__ import annotations

import os
from threading import Lock
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

FILES: Final = 5
_ONLY_OURS: Final = 0o600


class LogFile:
    """A stream of lines into files of which the oldest is deleted when a new one begins."""

    def __init__(self, path: Path, most_bytes: int) -> None:
        """Name the file; it is opened when the first line comes.

        Args:
            path: The file, in a folder that is made if it is missing.
            most_bytes: How much all files together hold, unless one line alone is longer.
        """
        self._path = path
        self._most = most_bytes // FILES
        self._lock = Lock()  # the handlers that write here have a lock each
        self._file: int | None = None
        self._size = 0

    def write(self, text: str) -> None:
        """Append a line.

        Raises:
            OSError: The disk is full, say.
        """
        data = text.encode("utf-8", "backslashreplace")
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
            self._file = os.open(self._path, flags, _ONLY_OURS)
            self._size = os.fstat(self._file).st_size
        return self._file

    def _rotate(self, file: int) -> None:
        self._file = None
        os.close(file)
        files = _names(self._path)
        for newer, older in zip(files[-2::-1], files[:0:-1], strict=True):
            if newer.exists():
                newer.replace(older)


def log_files(path: Path) -> Sequence[Path]:
    """Return the files of a log that are there, the oldest first."""
    return [each for each in reversed(_names(path)) if each.exists()]


def _names(path: Path) -> Sequence[Path]:
    """Return the names of all files that a log may have, the newest first."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, FILES))]
