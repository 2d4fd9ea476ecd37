"""Conventions that people expect of any command line."""

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.support.server_process import ServerProcess
from tests.support.terminal import Terminal
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, template: Path) -> Path:
    """A data folder without a running server, shared by the tests of this file."""
    return shutil.copytree(template, tmp_path_factory.mktemp("habits") / "data")


@pytest.mark.parametrize("command", [[], ["keys"], ["keys", "create"], ["serve"]])
def test_h_is_short_for_help(runner: CommandRunner, command: list[str]) -> None:
    done = runner.run(*command, "-h")
    assert (done.code, "Usage: tollhouse" in done.out) == (0, True)


def test_the_help_of_keys_set_says_what_it_changes(runner: CommandRunner) -> None:
    told = " ".join(runner.run("keys", "set", "-h").out.split())
    assert "Change a key's name, workspace, limit or policy, or disable it" in told
    assert "The key's text stays what it is" in told


@pytest.mark.parametrize(
    "args", [["--json", "keys", "list"], ["keys", "--json", "list"], ["keys", "list", "--json"]]
)
def test_the_json_option_may_come_at_any_position(
    runner: CommandRunner, folder: Path, args: list[str]
) -> None:
    assert len(runner.run(*args, "--data-dir", folder).json()) >= 2


def test_completion_is_offered(runner: CommandRunner) -> None:
    asked = {
        "_TOLLHOUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": "tollhouse ke",
        "COMP_CWORD": "1",
    }
    assert runner.run(env=asked).out.split() == ["keys", "key"]


def test_a_name_may_be_an_option(runner: CommandRunner, folder: Path) -> None:
    on = ("--data-dir", folder, "--json")
    assert runner.run("keys", "create", "--name", "ci", *on).json()["name"] == "ci"
    unnamed = runner.run("keys", "create", *on)
    assert unnamed.code == 2
    assert "tollhouse keys create NAME" in unnamed.err


@pytest.mark.parametrize(("answer", "code", "left"), [("n", 1, True), ("y", 0, False)])
def test_who_deletes_at_a_terminal_is_asked_first(
    runner: CommandRunner, folder: Path, answer: str, code: int, *, left: bool
) -> None:
    made = runner.run("keys", "create", "gone", "--data-dir", folder, "--json").json()
    terminal = Terminal(("keys", "delete", made["hash"], "--data-dir", str(folder)), {})
    try:
        terminal.read_until("for ever? [y/N] ")
        terminal.type(f"{answer}\n")
        assert terminal.end() == code
    finally:
        terminal.close()
    keys = runner.run("keys", "list", "--data-dir", folder, "--json").json()
    assert (made["hash"] in {key["hash"] for key in keys}) is left


def test_who_has_said_yes_at_a_terminal_is_not_asked(runner: CommandRunner, folder: Path) -> None:
    on = ("--data-dir", folder, "--json")
    made = runner.run("keys", "create", "sure", *on).json()
    terminal = Terminal(("keys", "delete", made["hash"], "--yes", "--data-dir", str(folder)), {})
    try:
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert "[y/N]" not in terminal.text
    assert made["hash"] not in {key["hash"] for key in runner.run("keys", "list", *on).json()}


def test_a_script_that_deletes_is_not_asked(runner: CommandRunner, folder: Path) -> None:
    on = ("--data-dir", folder, "--json")
    made = runner.run("keys", "create", "scripted", *on).json()
    assert runner.run("keys", "delete", made["hash"], *on).json() == {"deleted": True}


def test_a_management_key_looks_like_one(runner: CommandRunner, folder: Path) -> None:
    on = ("--data-dir", folder, "--json")
    made = runner.run("keys", "create", "boss", "--kind", "management", *on).json()
    assert made["key"].startswith("sk-th-mgmt-v1-")
    assert runner.run("keys", "create", "ci2", *on).json()["key"].startswith("sk-th-v1-")
    label = runner.run("keys", "show", "boss", *on).json()["label"]
    assert label == f"sk-th-mgmt-v1-{made['key'][14:17]}...{made['key'][-3:]}"


def test_the_status_of_a_server_needs_no_key(
    runner: CommandRunner, server: "ServerProcess"
) -> None:
    for where in (("--data-dir", server.data_dir), ("--base-url", server.origin)):
        found = runner.run("status", *where, "--json").json()
        assert (found["status"], found["address"]) == ("ready", server.origin)


def test_the_log_of_a_server_is_shown(runner: CommandRunner, server: "ServerProcess") -> None:
    def recovered() -> list[dict[str, object]]:
        shown = runner.run("logs", "--data-dir", server.data_dir, "-n", 100_000, "--json")
        lines = map(json.loads, shown.out.splitlines())
        return [line for line in lines if line["event"] == "recovered"]

    # It is written after the server has said that it serves.
    assert wait_until(recovered)[0].keys() >= {"batches_seconds", "interns_seconds"}


def test_the_status_without_a_server_is_shown_without_starting_one(
    runner: CommandRunner, tmp_path: Path
) -> None:
    done = runner.run("status", "--data-dir", tmp_path)
    assert (done.code, "not running" in done.out) == (1, True)
    assert list(tmp_path.iterdir()) == []
