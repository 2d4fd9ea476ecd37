"""`tollhouse logs` on the files that a server has left, and on those that it goes on writing."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.support.forked import forking_program
from tests.support.server_process import clean_environment, restore_sigint


def line(number: int, level: str = "info", event: str = "x") -> str:
    told = {"event": event, "number": number, "level": level, "timestamp": "T"}
    return json.dumps(told) + "\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs" / "server.log"


def shown(runner: CommandRunner, log: Path, *args: str) -> list[int]:
    done = runner.run("logs", "--data-dir", log.parent.parent, "--json", *args)
    assert (done.code, done.err) == (0, "")
    return [json.loads(each)["number"] for each in done.out.splitlines()]


def test_the_last_lines_are_shown_whichever_file_has_them(runner: CommandRunner, log: Path) -> None:
    log.with_name("server.log.1").write_text("".join(map(line, range(20))))
    log.write_text("".join(map(line, range(20, 30))))
    assert shown(runner, log, "-n", "20") == list(range(10, 30))


def test_lines_below_a_level_are_left_out_and_not_counted(runner: CommandRunner, log: Path) -> None:
    log.write_text(line(1, "warning") + line(2) + line(3) + line(4, "error") + line(5))
    assert shown(runner, log, "-n", "2", "--level", "warning") == [1, 4]


def test_what_is_no_line_of_the_log_is_left_out(runner: CommandRunner, log: Path) -> None:
    log.write_text(line(1) + '{"event": "cut o\n[]\n' + line(2))
    assert shown(runner, log) == [1, 2]


def test_a_person_gets_text_that_cannot_steer_the_terminal(
    runner: CommandRunner, log: Path
) -> None:
    log.write_text(line(7, "warning") + line(8, "error", "\x1b[2J"))
    first, second = runner.run("logs", "--data-dir", log.parent.parent).out.splitlines()
    assert first == "T [warning  ] x  number=7"
    assert "\x1b" not in second


def test_without_a_log_it_says_who_writes_one(runner: CommandRunner, tmp_path: Path) -> None:
    said = runner.run("logs", "--data-dir", tmp_path).error_line(1)
    assert "`tollhouse serve` writes one" in said
    assert "logging.file_bytes" in said


def test_following_shows_whole_lines_of_each_new_file_until_it_is_interrupted(log: Path) -> None:
    log.write_text(line(0) + line(1))
    with subprocess.Popen(
        [forking_program(), "logs", "--data-dir", log.parent.parent, "--json", "-n", "1", "-f"],
        env=clean_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore_sigint,  # noqa: PLW1509 - no thread here holds a lock
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == line(1)
            with log.open("a") as file:
                file.write(line(2)[:9])
                file.flush()
                file.write(line(2)[9:])
            assert process.stdout.readline() == line(2)
            log.rename(log.with_name("server.log.1"))
            log.write_text(line(3))
            assert process.stdout.readline() == line(3)
            process.send_signal(signal.SIGINT)
            assert process.communicate(timeout=30) == ("", "")
        finally:
            process.kill()
    assert process.returncode == 130
