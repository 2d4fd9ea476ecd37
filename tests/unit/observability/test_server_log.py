"""The log in the data folder: whole, bounded, and never in the way of what is logged."""

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from tests.support.clock import START, FakeClock
from tests.support.waiting import until
from tollhouse.observability.logging import configure_logging
from tollhouse.observability.server_log import (
    FinishedRequest,
    LogFile,
    RequestLog,
    log_files,
    log_request,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "logs" / "server.log"


@pytest.fixture
def logging_kept() -> Iterator[None]:
    """Leave logging as it was."""
    root = logging.getLogger()
    before = root.handlers, root.level, logging.raiseExceptions
    yield
    root.handlers, root.level, logging.raiseExceptions = before
    structlog.reset_defaults()


def lines(path: Path) -> list[str]:
    return [line for file in log_files(path) for line in file.read_text().splitlines()]


def test_it_has_the_latest_lines_in_order_and_never_more_than_its_bytes(path: Path) -> None:
    log = LogFile(path, 500)
    for number in range(1_000):
        log.write(f"{number:09}\n")
        assert sum(file.stat().st_size for file in log_files(path)) <= 500
    kept = lines(path)
    assert kept == [f"{number:09}" for number in range(1_000 - len(kept), 1_000)]
    assert len(kept) >= 40


def test_it_goes_on_where_an_earlier_process_ended(path: Path) -> None:
    LogFile(path, 500).write("a\n")
    LogFile(path, 500).write("b\n")
    assert lines(path) == ["a", "b"]


def test_a_line_that_is_longer_than_a_file_is_kept_whole(path: Path) -> None:
    log = LogFile(path, 50)
    log.write("short\n")
    log.write("x" * 100 + "\n")
    assert lines(path) == ["short", "x" * 100]


def test_only_the_servers_user_can_read_it(path: Path) -> None:
    LogFile(path, 500).write("a\n")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.usefixtures("logging_kept")
def test_it_gets_json_without_secrets_whatever_standard_error_gets(path: Path) -> None:
    out = io.StringIO()
    configure_logging("info", "console", out, LogFile(path, 10_000))
    structlog.get_logger("tollhouse.test").warning("provider_failed", token="hidden", model="m")
    log_request(FinishedRequest(status=200))
    first, second = map(json.loads, lines(path))
    assert (first["event"], first["level"], first["model"]) == ("provider_failed", "warning", "m")
    assert (second["event"], second["level"], second["status"]) == ("request", "info", 200)
    assert "hidden" not in path.read_text()
    assert [text in out.getvalue() for text in ("provider_failed", "request")] == [True, True]


@pytest.mark.usefixtures("logging_kept")
def test_one_that_cannot_be_written_is_in_nobodys_way(path: Path) -> None:
    path.parent.write_text("no folder")
    out = io.StringIO()
    configure_logging("info", "json", out, LogFile(path, 10_000))
    structlog.get_logger("tollhouse.test").warning("still_logged")
    log_request(FinishedRequest(status=200))
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == [
        "still_logged",
        "request",
    ]


# One line a request, in both styles


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


def test_a_line_is_json_with_what_is_known(out: io.StringIO) -> None:
    configure_logging("info", "json", out)
    log_request(FinishedRequest(method="GET", route="/key", status=200, ms=3, model=None))
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


def test_the_facts_of_a_line_have_an_order(out: io.StringIO) -> None:
    clock = FakeClock(START + timedelta(microseconds=5))
    log = RequestLog(clock)
    log.open(out, console=False)
    line = FinishedRequest(
        generation="gen-1",
        key_label="sk-th-v1-abc...xyz",
        cost="0.5",
        provider="Acme",
        model="maker/name",
        first_token_ms=1,
        ms=2,
        error="timeout",
        status=408,
        route="/chat/completions",
        method="POST",
    )
    log.add(line)
    clock.set(START)
    log.add(FinishedRequest(status=0, caller="operator"), logging.DEBUG)
    assert out.getvalue() == (
        '{"event":"request","method":"POST","route":"/chat/completions","status":408,'
        '"error":"timeout","ms":2,"first_token_ms":1,"model":"maker/name","provider":"Acme",'
        '"cost":"0.5","key_label":"sk-th-v1-abc...xyz","generation":"gen-1","level":"info",'
        '"timestamp":"2026-03-12T10:30:00.000005Z"}\n'
        '{"event":"request","status":0,"caller":"operator","level":"debug",'
        '"timestamp":"2026-03-12T10:30:00Z"}\n'
    )


def test_a_line_for_people_is_one_line_of_names_and_values(out: io.StringIO) -> None:
    configure_logging("info", "console", out)
    log_request(FinishedRequest(method="GET", route="/key", status=200))
    [line] = out.getvalue().splitlines()
    assert line.endswith("request  method=GET route=/key status=200")


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
        log.add(FinishedRequest(status=status))
    assert out.writes == 0
    await until(lambda: out.writes)
    assert out.writes == 1
    statuses = [json.loads(line)["status"] for line in out.getvalue().splitlines()]
    assert statuses == list(range(200, 210))


def test_a_log_that_cannot_be_written_is_in_nobodys_way() -> None:
    log, out = RequestLog(FakeClock()), io.StringIO()
    log.open(out, console=False)
    out.close()
    log.add(FinishedRequest(status=200))
