"""The log of requests: one line each, at `info`, once it is over.

Every request passes here, so a line is built from facts alone (statuses, ids, labels, figures) and
written without the processors of other log lines, which cost ten times as much. A fact never comes
from a header or a body.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

Fact = str | int | None
"""One that is None is left out."""
_LOGGER: Final = logging.getLogger("tollhouse.requests")
_encode = msgspec.json.Encoder().encode


def log_request(level: int = logging.INFO, **facts: Fact) -> None:
    """Log that a request is over."""
    if _LOGGER.isEnabledFor(level):
        known = {name: fact for name, fact in facts.items() if fact is not None}
        # What the standard library's own methods add, the place of the call, takes longer than all.
        _LOGGER.handle(_LOGGER.makeRecord(_LOGGER.name, level, "", 0, "", (known,), None))


def write_request_log(out: TextIO, *, console: bool) -> None:
    """Write the lines to a stream.

    Args:
        out: The stream.
        console: Text for people instead of a JSON object a line.
    """
    handler = logging.StreamHandler(out)
    handler.setFormatter(_Text() if console else _Json())
    _LOGGER.handlers = [handler]
    _LOGGER.propagate = False


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    # A single mapping as argument stands in `args` itself.
    return record.args if isinstance(record.args, Mapping) else {}


def _timestamp(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line = {
            "event": "request",
            **_facts(record),
            "level": record.levelname.lower(),
            "timestamp": _timestamp(record),
        }
        return _encode(line).decode()


class _Text(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        facts = " ".join(f"{name}={fact}" for name, fact in _facts(record).items())
        return f"{_timestamp(record)} [{record.levelname.lower():9}] request  {facts}"
