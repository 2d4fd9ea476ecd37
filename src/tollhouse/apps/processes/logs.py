"""The log of a server with several processes: theirs come through pipes, and one process writes."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from tollhouse.observability.server_log import text_line

if TYPE_CHECKING:
    from tollhouse.observability.logging import LogFormat
    from tollhouse.observability.server_log import LogFile


class LogSink:
    """Writes lines of JSON to standard error, perhaps as text for people, and to the log's file.

    What is no JSON (a line of an interpreter that cannot go on) goes to standard error alone.
    """

    def __init__(self, style: LogFormat, file: LogFile | None) -> None:
        self._for_people = style == "console" or (style == "auto" and sys.stderr.isatty())
        self._file = file

    def write(self, data: bytes) -> None:
        """Write whole lines; what cannot be written is lost."""
        if data.count(b"\n{") + data.startswith(b"{") == data.count(b"\n"):
            in_json = data  # as a rule
        else:
            lines = data.splitlines(keepends=True)
            in_json = b"".join(line for line in lines if line.startswith(b"{"))
        with suppress(OSError, ValueError):
            if self._file is not None and in_json:
                self._file.write_bytes(in_json)
        shown = data.decode("utf-8", "backslashreplace")
        if self._for_people:
            shown = "".join(map(_as_text, shown.splitlines(keepends=True)))
        with suppress(OSError, ValueError):
            sys.stderr.write(shown)
            sys.stderr.flush()


def _as_text(line: str) -> str:
    try:
        return f"{text_line(msgspec.json.decode(line, type=dict[str, object]))}\n"
    except msgspec.DecodeError:
        return line
