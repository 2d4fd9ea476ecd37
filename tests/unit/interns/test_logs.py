"""An intern's log: what happened, in order, in bounded files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tollhouse.interns.logs import LARGEST_LOG, InternLogs

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.clock import FakeClock


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
