"""One line a request, in both styles."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from typing import TYPE_CHECKING

import pytest

from tests.support.clock import FakeClock
from tests.support.waiting import until
from tollhouse.observability.logging import configure_logging
from tollhouse.observability.server_log import RequestLog, log_request

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


async def test_a_server_writes_the_lines_of_a_moment_at_once() -> None:
    class Out(io.StringIO):
        writes = 0

        def write(self, text: str) -> int:
            self.writes += 1
            return super().write(text)

    log, out = RequestLog(FakeClock()), Out()
    log.open(out, console=False)
    log.gather(asyncio.get_running_loop())
    for status in range(200, 210):
        log.add(logging.INFO, {"status": status})
    assert out.writes == 0
    await until(lambda: out.writes)
    assert out.writes == 1
    statuses = [json.loads(line)["status"] for line in out.getvalue().splitlines()]
    assert statuses == list(range(200, 210))


async def test_what_is_gathered_is_written_when_the_server_ends() -> None:
    log, out = RequestLog(FakeClock()), io.StringIO()
    log.open(out, console=False)
    log.gather(asyncio.get_running_loop())
    log.add(logging.INFO, {"status": 200})
    log.close()
    log.add(logging.INFO, {"status": 201})
    assert len(out.getvalue().splitlines()) == 2


def test_a_log_that_cannot_be_written_is_in_nobodys_way() -> None:
    log, out = RequestLog(FakeClock()), io.StringIO()
    log.open(out, console=False)
    out.close()
    log.add(logging.INFO, {"status": 200})
