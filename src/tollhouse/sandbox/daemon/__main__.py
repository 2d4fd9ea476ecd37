"""The daemon's process: `python -P -m tollhouse.sandbox.daemon`.

standard input    one line of JSON (`settings`); then nothing, and its end is the daemon's
standard error    the daemon's log
exit code         0 once it was told to end; 1 where it cannot serve; 2 for wrong settings
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import traceback

from tollhouse.sandbox.daemon.app import serve
from tollhouse.sandbox.daemon.settings import LONGEST_LINE, InvalidSettings, read_settings


def configure_logging() -> None:
    """Write warnings and worse from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LogFormatter())
    logging.root.handlers = [handler]
    logging.root.setLevel(logging.WARNING)


class _LogFormatter(logging.Formatter):
    """One line for each record. Of an exception it has the type and the places, not the text.

    The text of an exception quotes what could not be read, which is somebody's.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.levelname.lower()} {record.name}: {record.getMessage().strip()}"
        kind, _, trace = record.exc_info or (None, None, None)
        if kind is not None:
            frames = reversed(traceback.extract_tb(trace))
            places = " < ".join(f"{frame.name}:{frame.lineno}" for frame in frames)
            line = f"{line} ({kind.__name__} at {places})"
        return line.replace("\n", " ")


def main() -> int:
    """Serve until the end; return the exit code."""
    configure_logging()
    stdin = _take_over_stdin()
    try:
        settings = read_settings(_read_line(stdin))
    except InvalidSettings as error:
        sys.stderr.write(f"tollhouse daemon: {error}\n")
        return 2
    try:
        asyncio.run(serve(settings, stdin))
    except OSError as error:
        sys.stderr.write(f"tollhouse daemon: cannot serve: {error}\n")
        return 1
    return 0


def _take_over_stdin() -> int:
    """Return a descriptor of standard input that no program inherits; leave an empty one there."""
    stdin = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    return stdin


def _read_line(stdin: int) -> bytes:
    line = bytearray()
    while b"\n" not in line:
        piece = os.read(stdin, 65_536)
        if not piece:
            raise InvalidSettings("standard input ended before the settings did")
        line += piece
        if len(line) > LONGEST_LINE:
            raise InvalidSettings(f"the settings are longer than {LONGEST_LINE} bytes")
    return bytes(line).partition(b"\n")[0]


if __name__ == "__main__":
    sys.exit(main())
