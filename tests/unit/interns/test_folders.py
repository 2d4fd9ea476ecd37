"""What a machine keeps of its interns in files: their logs, and its own name."""

from pathlib import Path

import pytest

from tests.support.clock import FakeClock
from tests.support.ids import SequentialIds
from tollhouse.interns.logs import LARGEST_LOG, InternLogs
from tollhouse.interns.workspaces.folders import machine_name


@pytest.fixture
def logs(tmp_path: Path, clock: FakeClock) -> InternLogs:
    return InternLogs(tmp_path / "logs", clock)


def test_a_line_is_one_line_and_not_endless(logs: InternLogs) -> None:
    logs.note("ada", "a\nb\x1b[2J" + "x" * 10_000)
    (line,) = logs.tail("ada", 10)
    assert line.text.startswith("a b [2Jx")
    assert len(line.text) == 2_000


def test_a_log_takes_no_more_than_two_files(logs: InternLogs, tmp_path: Path) -> None:
    for number in range(3 * LARGEST_LOG // 1_000):
        logs.note("ada", f"{number} " + "x" * 1_000)
    sizes = [path.stat().st_size for path in (tmp_path / "logs").iterdir()]
    assert len(sizes) == 2
    assert max(sizes) < LARGEST_LOG + 2_000
    assert logs.tail("ada", 1)[0].text.startswith(f"{3 * LARGEST_LOG // 1_000 - 1} ")


def test_a_disk_that_takes_nothing_stops_nobody(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "logs").write_text("no folder")
    logs = InternLogs(tmp_path / "logs", clock)
    logs.note("ada", "running")
    with pytest.raises(NotADirectoryError):
        logs.tail("ada", 1)


def test_what_nobody_knows_any_more_is_swept_away(logs: InternLogs) -> None:
    for name in ("ada", "bob"):
        for _ in range(LARGEST_LOG // 1_000 + 2):
            logs.note(name, "x" * 1_000)
    logs.sweep({"bob"})
    assert logs.tail("ada", 1) == []
    assert len(logs.tail("bob", LARGEST_LOG)) == LARGEST_LOG // 1_000 + 2


# The name of a machine is made once, and whole


def test_a_machine_keeps_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "interns"
    made = machine_name(folder, SequentialIds())
    assert made
    assert machine_name(folder, SequentialIds()) == made
    assert [path.name for path in folder.iterdir()] == ["machine"]


def test_a_name_that_was_cut_off_before_it_was_written_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "machine").touch()
    assert machine_name(tmp_path, SequentialIds())


def test_a_name_is_never_there_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(*_: object) -> None:
        raise OSError

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", cut)
        with pytest.raises(OSError):  # noqa: PT011 - any
            machine_name(tmp_path, SequentialIds())
    assert not (tmp_path / "machine").exists()
