"""Structured logs: what happened, never what was said.

Keys, secrets and bodies do not reach a log because nothing logs them; what follows is the second
line of defence, for a foreign exception or a careless field.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TextIO, cast

import structlog

from tollhouse.kernel.secret import Secret
from tollhouse.observability.server_log import LogFile, request_log

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["json", "console", "auto"]

_FORBIDDEN: Final = frozenset(
    {
        "api_key",
        "authorization",
        "body",
        "cookie",
        "key",
        "messages",
        "password",
        "proxy_authorization",
        "secret",
        "token",
        "x_api_key",
    }
)
_CREDENTIAL: Final = re.compile(
    r"(?<![a-z0-9])sk-[a-z0-9_-]{8,}|(?<=bearer)\s+\S+|(?<=://)[^/\s:@]*:\S*(?=@)", re.IGNORECASE
)
_TASK_ERROR: Final = re.compile(r"(?<=exception=)(\w+)\(.*\)", re.DOTALL)
"""How asyncio's own log shows a task that failed: with the exception's message."""

_DEEPEST: Final = 8
_LEVELS: Final = {"debug": 10, "info": 20, "warning": 30, "error": 40}


def configure_logging(
    level: LogLevel, style: LogFormat, stream: TextIO | None = None, file: LogFile | None = None
) -> None:
    """Set up logging for the process, the standard library's loggers included.

    Of libraries no less than a warning is logged. `auto` is text for people on a terminal, and one
    JSON object a line elsewhere; `file` gets JSON besides.
    """
    out = sys.stderr if stream is None else stream
    console = style == "console" or (style == "auto" and out.isatty())
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _without_source_lines,
    ]
    as_json = structlog.processors.JSONRenderer()
    renderer = structlog.dev.ConsoleRenderer(colors=out.isatty()) if console else as_json
    structlog.configure(
        processors=[*shared, redact, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    root = logging.getLogger()
    root.handlers = [_handler(out, shared, renderer)]
    if file is not None:
        root.handlers.append(_handler(file, shared, as_json))
    # A record that cannot be rendered would be printed raw, with its arguments.
    logging.raiseExceptions = False
    # What libraries note on their way is no news to an operator, and a database driver's notes
    # hold whole statements with their values.
    root.setLevel(max(logging.WARNING, _LEVELS[level]))
    logging.getLogger("tollhouse").setLevel(_LEVELS[level])
    request_log.open(out, console=console, file=file)


def _handler(
    out: TextIO | LogFile, shared: Sequence[Processor], renderer: Processor
) -> logging.Handler:
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                redact,
                renderer,
            ],
        )
    )
    return handler


def redact(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Mask fields that must never be logged, and what looks like a credential anywhere else."""
    for name, value in event.items():
        event[name] = _masked(name, value, 0)
    return event


def _masked(name: str, value: object, depth: int) -> object:
    if name.lower().replace("-", "_") in _FORBIDDEN:
        return Secret.MASK
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if depth < _DEEPEST and isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {_text(key): _masked(str(key), each, depth + 1) for key, each in items}
    if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset)):
        return [_masked("", each, depth + 1) for each in cast("Iterable[object]", value)]
    return _text(value)


def _text(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return _CREDENTIAL.sub(Secret.MASK, _TASK_ERROR.sub(r"\1", text))


def _without_source_lines(_logger: object, _method: str, event: EventDict) -> EventDict:
    """Render an exception as its type and places alone.

    Its message, and the values that frames hold, may carry a key or a body.
    """
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    if isinstance(info, BaseException):
        info = (type(info), info, info.__traceback__)
    if not info or info[0] is None:
        return event
    places: list[str] = []
    trace = info[2]
    while trace is not None:
        code = trace.tb_frame.f_code
        places.append(f"{code.co_filename}:{trace.tb_lineno} {code.co_name}")
        trace = trace.tb_next
    event["exception"] = info[0].__name__
    event["trace"] = places
    return event
