"""Every row of "What works today" in README.md has commands, and they do what the row says."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.curl import find_curl
from tests.acceptance.egress_hosts import BOUND, EgressHosts, serve_hosts
from tests.support.canaries import PLANTED
from tests.support.forked import forking_program
from tests.support.server_process import ServerProcess, clean_environment, start_server

README = Path(__file__).parents[3] / "README.md"
SECTION = README.read_text().partition("## What works today\n")[2].partition("\n## ")[0]
ROWS = re.findall(r"^\| (\w+) \| ", SECTION, re.MULTILINE)
ADDRESS = "http://127.0.0.1:8080"
HOST = "api.github.com"
TOKEN = PLANTED[45]
SECONDS = 60
PRINTED = {
    "Inference": [r'"model":"simulated/echo".*"content":"Hello".*"cost":[0-9.e-]+'],
    "Money": [r"total_credits\t1000\n"],
    "Batches": [r"status\tcompleted\n"],
    "Keys": [r"key\tsk-th-v1-.*\nlimit\t5\n"],
    "Secrets": [rf"hosts\t{BOUND}\n", r'"authorization": "Bearer \*+"'],
    "Interns": [r"name\tada\nstatus\trunning\n", r"\nLinux "],
    "Inspection": [r"cost at most\t0\.\d+\n"],
}
"""What each command of a row prints."""


def commands() -> dict[str, list[str]]:
    """Return the commands below the table by the row that their heading names."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"^    # ", SECTION, flags=re.MULTILINE)[1:]:
        heading, _, lines = block.partition("\n")
        name = re.split(r"\W", heading)[0]
        found[name] = re.split(r"\n    (?! )", lines.removeprefix("    ").rstrip())
    return found


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EgressHosts]:
    with serve_hosts(tmp_path_factory.mktemp("hosts")) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hosts: EgressHosts) -> Iterator[ServerProcess]:
    find_curl()
    folder = tmp_path_factory.mktemp("r")  # its path leaves room for those of sockets
    with start_server(folder, config=hosts.config()) as server:
        yield server


def run(command: str, env: dict[str, str]) -> str:
    """Run a line of a shell, and return what it prints."""
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        env=env | {"PATH": f"{forking_program().parent}:{env['PATH']}"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, (command, done.stdout, done.stderr)
    return done.stdout


def test_every_row_has_commands() -> None:
    assert ROWS
    assert list(commands()) == ROWS == list(PRINTED)
    assert {row: len(each) for row, each in commands().items()} == {
        row: len(each) for row, each in PRINTED.items()
    }


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.sandbox if row == "Interns" else ()) for row in PRINTED],
)
def test_the_commands_of_a_row_print_what_it_says(
    row: str, server: ServerProcess, hosts: EgressHosts
) -> None:
    there = {
        "TOLLHOUSE_API_KEY": server.api_key,
        "TOLLHOUSE_DATA_DIR": str(server.data_dir),
        "GITHUB_TOKEN": TOKEN,
    }
    for command, printed in zip(commands()[row], PRINTED[row], strict=True):
        here = command.replace(ADDRESS, server.origin)
        here = here.replace(f"https://{HOST}/user", hosts.url(BOUND)).replace(HOST, BOUND)
        out = run(here, clean_environment(there))
        assert re.search(printed, out, re.DOTALL), (command, out, server.stderr_text())
    if row == "Secrets":
        assert hosts.authorizations(BOUND) == [f"Bearer {TOKEN}"]
