"""`docs/guide/own-keys.md` begins with commands: each of them does what the page says."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.forked import forking_program
from tests.support.server_process import ServerProcess, clean_environment, start_server

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "own-keys.md"
KEYS = {"key.txt": "the-first-key-of-the-team", "next-key.txt": "the-second-key-of-it"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One with a single account, which no command of the page names."""
    with start_server(tmp_path) as started:
        yield started


def test_the_commands_of_the_page_work(server: ServerProcess, tmp_path: Path) -> None:
    for name, text in KEYS.items():
        (tmp_path / name).write_text(f"{text}\n")
    environment = clean_environment({"TOLLHOUSE_DATA_DIR": str(server.data_dir)})
    environment["PATH"] = f"{forking_program().parent}:{environment['PATH']}"
    printed: list[str] = []
    for command in re.findall(r"^\$ (.*)$", PAGE.read_text(), re.MULTILINE):
        done = subprocess.run(
            ["bash", "-c", command],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), command
        printed.append(done.stdout)
    added, listed, changed, rotated, removed = printed
    assert "the...eam" in added
    assert "first" in listed
    assert "simulated/echo" in changed
    assert "the...-it" in rotated
    assert "the..." in removed
    assert not [text for text in KEYS.values() if text in "".join(printed)]
