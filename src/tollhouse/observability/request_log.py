"""The log of requests: one line each, at `info`, once it is over.

Every request passes here, so a line is built from facts alone (statuses, ids, labels, figures) and
written without the processors of other log lines, which cost ten times as much. A fact never comes
from a header or a body.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TextIO

import msgspec

if TYPE_CHECKING:
    from tollhouse.observability.log_file import LogFile

Fact = str | int | None
"""One that is None is left out."""
_LOGGER: Final = logging.getLogger("tollhouse.requests")
_FIRST: Final = frozenset(("timestamp", "level", "event"))
_encode = msgspec.json.Encoder().encode


def log_request(level: int = logging.INFO, **facts: Fact) -> None:
    """Log that a request is over."""
    if _LOGGER.isEnabledFor(level):
        known = {name: fact for name, fact in facts.items() if fact is not None}
        # What the standard library's own methods add, the place of the call, takes longer than all.
        _LOGGER.handle(_LOGGER.makeRecord(_LOGGER.name, level, "", 0, "", (known,), None))


def write_request_log(out: TextIO, *, console: bool, file: LogFile | None = None) -> None:
    """Write the lines to a stream.

    Args:
        out: The stream.
        console: Text for people instead of a JSON object a line.
        file: Where to besides, as JSON.
    """
    _LOGGER.handlers = [_handler(out, _Text() if console else _Json())]
    if file is not None:
        _LOGGER.handlers.append(_handler(file, _Json()))
    _LOGGER.propagate = False


def text_line(facts: Mapping[str, object]) -> str:
    """Return a line of the log, whose facts are those of its JSON, as text for people."""
    shown = " ".join(f"{name}={fact}" for name, fact in facts.items() if name not in _FIRST)
    return f"{facts.get('timestamp')} [{facts.get('level')!s:9}] {facts.get('event')}  {shown}"


def _handler(out: TextIO | LogFile, formatter: logging.Formatter) -> logging.Handler:
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    return handler


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    # A single mapping as argument stands in `args` itself.
    return record.args if isinstance(record.args, Mapping) else {}


def _line(record: logging.LogRecord) -> Mapping[str, object]:
    timestamp = datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")
    level = record.levelname.lower()
    return {"event": "request", **_facts(record), "level": level, "timestamp": timestamp}


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return _encode(_line(record)).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return text_line(_line(record))
