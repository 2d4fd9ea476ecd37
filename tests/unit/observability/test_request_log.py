"""One line a request, in both styles."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from tollhouse.observability.logging import configure_logging
from tollhouse.observability.request_log import log_request

if TYPE_CHECKING:
    from tollhouse.observability.logging import LogLevel


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_a_line_is_json_with_what_is_known(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    log_request(method="GET", route="/key", status=200, ms=3, model=None)
    line = json.loads(out.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "request",
        "level": "info",
        "method": "GET",
        "route": "/key",
        "status": 200,
        "ms": 3,
    }


def test_a_line_for_people_is_one_line_of_names_and_values(out: io.StringIO) -> None:
    configure_logging("info", "console", out)
    log_request(method="GET", route="/key", status=200)
    [line] = out.getvalue().splitlines()
    assert line.endswith("request  method=GET route=/key status=200")


@pytest.mark.parametrize(
    ("level", "lines"), [("debug", 2), ("info", 1), ("warning", 0), ("error", 0)]
)
def test_a_line_has_a_level(out: io.StringIO, level: LogLevel, lines: int) -> None:
    configure_logging(level, "json", out)
    log_request(status=200)
    log_request(logging.DEBUG, status=200)
    assert len(out.getvalue().splitlines()) == lines
