"""Resources are found by name, also where an installation has several accounts."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner
from tests.support.server_process import ServerProcess, start_server

NUMBERS = count(1)


@dataclass
class FolderCommands:
    """Commands of one user on one data folder, who has an account of a name of its own."""

    runner: CommandRunner
    folder: Path
    env: dict[str, str]
    acme: str

    def run(self, *args: str, **env: str) -> CommandResult:
        return self.runner.run(*args, "--data-dir", self.folder, env=self.env | env)

    def json(self, *args: str, **env: str) -> Any:
        return self.run(*args, "--json", **env).json()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with an account Default, and those that tests make."""
    with start_server(tmp_path_factory.mktemp("several")) as server:
        yield server


@pytest.fixture
def cli(server: ServerProcess, tmp_path: Path, runner: CommandRunner) -> FolderCommands:
    env = {"XDG_CONFIG_HOME": str(tmp_path / "config")}
    cli = FolderCommands(runner, server.data_dir, env, f"Acme {next(NUMBERS)}")
    cli.json("accounts", "create", cli.acme)
    return cli


def test_an_account_is_named_by_its_name(cli: FolderCommands) -> None:
    made = cli.json("users", "create", "Ada", "--account", cli.acme)
    assert made["account_id"] == cli.json("accounts", "show", cli.acme)["id"]
    assert "No such account: 'Acne'" in cli.run("users", "list", "--account", "Acne").error_line(1)


def test_a_chosen_account_is_meant_until_none_is(cli: FolderCommands) -> None:
    assert "tollhouse accounts use" in cli.run("users", "list").error_line(1)
    cli.json("accounts", "use", cli.acme)
    cli.json("users", "create", "Ada")
    assert [each["name"] for each in cli.json("users", "list")] == ["Ada"]
    assert cli.json("users", "list", "--account", "Default") == []
    cli.json("accounts", "use", "--none")
    cli.run("users", "list").error_line(1)


def test_the_environment_chooses_an_account_before_that(cli: FolderCommands) -> None:
    cli.json("accounts", "use", "Default")
    cli.json("users", "create", "Ada", TOLLHOUSE_ACCOUNT=cli.acme)
    assert cli.json("users", "list") == []
    assert len(cli.json("users", "list", TOLLHOUSE_ACCOUNT=cli.acme)) == 1


@pytest.mark.parametrize("part", ["hash", "name", "label"])
def test_a_key_is_found_across_accounts(cli: FolderCommands, part: str) -> None:
    made = cli.json("keys", "create", f"ci of {cli.acme}", "--account", cli.acme)
    name = made["hash"][:12] if part == "hash" else made[part]
    assert cli.json("keys", "show", name)["hash"] == made["hash"]
    assert cli.json("keys", "set", name, "--disabled")["disabled"] is True
    assert "No such key" in cli.run("keys", "show", name, "--account", "Default").error_line(1)


def test_of_two_keys_of_a_name_that_of_the_chosen_account_is_meant(cli: FolderCommands) -> None:
    mine = cli.json("keys", "create", "two", "--account", cli.acme)
    cli.json("keys", "create", "two", "--account", "Default")
    assert "2 keys are called 'two'" in cli.run("keys", "show", "two").error_line(1)
    cli.json("accounts", "use", cli.acme)
    assert cli.json("keys", "show", "two")["hash"] == mine["hash"]


def test_users_and_workspaces_are_named_by_their_names(cli: FolderCommands) -> None:
    cli.json("accounts", "use", cli.acme)
    ada = cli.json("users", "create", "Ada")
    team = cli.json("workspaces", "create", "Data team")
    assert cli.json("users", "show", "Ada")["id"] == ada["id"]
    assert cli.json("workspaces", "show", "Data team")["id"] == team["id"]
    made = cli.json("keys", "create", "lab", "--workspace", "Data team", "--user", "Ada")
    assert (made["workspace_id"], made["creator_user_id"]) == (team["id"], ada["id"])
