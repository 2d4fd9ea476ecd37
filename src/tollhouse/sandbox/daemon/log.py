"""The daemon's own log, on standard error: lines without tokens, bodies and contents of files."""

from __future__ import annotations

import logging
import sys
import traceback


def begin_log() -> None:
    """Write warnings and worse from now on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines())
    logging.root.handlers = [handler]
    logging.root.setLevel(logging.WARNING)


class _Lines(logging.Formatter):
    """One line for each record. Of an exception it has the type and the places, not the text.

    The text of an exception quotes what could not be read, which is somebody's.
    """

    def format(self, record: logging.LogRecord) -> str:
        line = f"{record.levelname.lower()} {record.name}: {record.getMessage().strip()}"
        kind, _, trace = record.exc_info or (None, None, None)
        if kind is not None:
            places = " < ".join(
                f"{frame.name}:{frame.lineno}" for frame in reversed(traceback.extract_tb(trace))
            )
            line = f"{line} ({kind.__name__} at {places})"
        return line.replace("\n", " ")
