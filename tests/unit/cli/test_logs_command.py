"""The server's log, read from its files."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tollhouse.cli.commands.setup import LogReader, logs
from tollhouse.cli.errors import CommandFailed
from tollhouse.observability.server_log import LogFile

if TYPE_CHECKING:
    from pathlib import Path


class Written:
    """A data folder in which a server logs numbers."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.path = data_dir / "logs" / "server.log"
        self._file = LogFile(self.path, 2_500)

    def says(self, *numbers: int, level: str = "info") -> None:
        for number in numbers:
            facts = {"event": "x", "number": number, "level": level, "timestamp": "T"}
            self._file.write(json.dumps(facts) + "\n")


@pytest.fixture
def server(tmp_path: Path) -> Written:
    return Written(tmp_path)


def shown(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [json.loads(line)["number"] for line in capsys.readouterr().out.splitlines()]


def new(log: LogReader) -> list[int]:
    return [json.loads(line)["number"] for line in log.shown("debug", as_json=True)]


def test_the_last_lines_are_shown_whichever_file_has_them(
    server: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    server.says(*range(30))
    logs(server.data_dir, lines=20, as_json=True)
    assert shown(capsys) == list(range(10, 30))


def test_lines_below_a_level_are_left_out_and_not_counted(
    server: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    server.says(1, level="warning")
    server.says(2, 3)
    server.says(4, level="error")
    server.says(5)
    logs(server.data_dir, lines=2, level="warning", as_json=True)
    assert shown(capsys) == [1, 4]


def test_a_person_gets_text_that_cannot_steer_the_terminal(
    server: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    server.says(7, level="warning")
    LogFile(server.path, 2_500).write('{"event":"\\u001b[2J","level":"error","timestamp":"T"}\n')
    logs(server.data_dir)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "T [warning  ] x  number=7"
    assert "\x1b" not in second


def test_what_is_no_line_of_the_log_is_left_out(
    server: Written, capsys: pytest.CaptureFixture[str]
) -> None:
    server.says(1)
    LogFile(server.path, 2_500).write('{"event": "cut o\n[]\n')
    server.says(2)
    logs(server.data_dir, as_json=True)
    assert shown(capsys) == [1, 2]


def test_without_a_log_it_says_who_writes_one(tmp_path: Path) -> None:
    with pytest.raises(CommandFailed, match=r"`tollhouse serve` writes one.*logging\.file_bytes"):
        logs(tmp_path)


def test_what_comes_later_follows_also_into_a_new_file(server: Written) -> None:
    seen = list[int]()
    with closing(LogReader(server.path)) as log:
        assert new(log) == []
        for number in range(60):
            server.says(number)
            seen += new(log)
    assert seen == list(range(60))


def test_a_line_is_shown_once_it_is_whole(server: Written) -> None:
    file = LogFile(server.path, 2_500)
    with closing(LogReader(server.path)) as log:
        file.write('{"number": 1, ')
        assert new(log) == []
        file.write('"level": "info"}\n')
        assert new(log) == [1]


def test_following_goes_on_until_it_is_interrupted(
    server: Written, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = iter([lambda: server.says(2), lambda: server.says(3)])

    def pause(_seconds: float) -> None:
        happens = next(pauses, None)
        if happens is None:
            raise KeyboardInterrupt
        happens()

    monkeypatch.setattr(time, "sleep", pause)
    server.says(0, 1)
    with pytest.raises(KeyboardInterrupt):
        logs(server.data_dir, lines=1, follow=True, as_json=True)
    assert shown(capsys) == [1, 2, 3]
