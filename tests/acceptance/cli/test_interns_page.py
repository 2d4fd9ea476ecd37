"""`docs/guide/interns.md` begins with commands and what they print; it is what a newcomer sees."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.checked_server import chats_of, start_checked_server
from tests.support.forked import forking_program
from tests.support.server_process import clean_environment

PAGE = Path(__file__).parents[3] / "docs" / "guide" / "interns.md"
SECTION = "## From nothing to a shell and back"
OTHER_EACH_TIME = (
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "TIME"),
    (re.compile(r"\s+"), " "),
)
SECONDS = 60


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return the section's commands, and the lines that it shows of what each prints."""
    section = PAGE.read_text().partition(SECTION)[2].partition("\n## ")[0]
    shown = "".join(re.findall(r"```console\n(.*?)```", section, re.DOTALL))
    for block in re.split(r"^\$ ", shown, flags=re.MULTILINE)[1:]:
        command, *lines = block.splitlines()
        yield command, lines


def plain(line: str) -> str:
    """Return a line without what is another one each time."""
    for pattern, name in OTHER_EACH_TIME:
        line = pattern.sub(name, line)
    return line.strip()


def whole_texts(lines: list[str]) -> list[str]:
    """Return lines with the pieces of a text put together, as the page shows it."""
    found: list[str] = []
    text = ""
    for line in [*lines, ""]:
        if line.startswith('{"type": "text"'):
            text += json.loads(line)["text"]
            continue
        if text:
            found.append(json.dumps({"type": "text", "text": text}))
            text = ""
        found.append(line)
    return found


def is_printed(line: str) -> bool:
    """Tell whether a pipe gets a line too: headings are for terminals, `...` is the page's."""
    return line != "..." and not line.isupper()


@pytest.mark.sandbox
def test_the_commands_of_the_page_print_what_it_shows(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    served, exported, *rest = commands()
    assert (served[0], exported[0]) == ("tollhouse serve", "export TOLLHOUSE_API_KEY=sk-th-v1-...")
    folder = tmp_path_factory.mktemp("i")  # its path leaves room for those of sockets
    with start_checked_server(folder) as server:
        there = {"TOLLHOUSE_API_KEY": server.api_key, "TOLLHOUSE_DATA_DIR": str(server.data_dir)}
        environment = clean_environment(there)
        environment["PATH"] = f"{forking_program().parent}:{environment['PATH']}"
        for command, lines in rest:
            done = subprocess.run(
                ["bash", "-c", command],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS,
                check=False,
            )
            assert done.returncode == 0, (command, done.stderr, server.stderr_text())
            printed = [plain(line) for line in whole_texts(done.stdout.splitlines())]
            missing = [
                line for line in map(plain, filter(is_printed, lines)) if line not in printed
            ]
            assert missing == [], (command, done.stdout)
        chats = sum("tollhouse intern chat" in command for command, _ in rest)
        assert len(chats_of(server)) >= chats
