"""Resources are found by name, also where an installation has several accounts."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.cli.command import CommandResult, CommandRunner


@dataclass
class FolderCommands:
    """Commands of one user on one data folder."""

    runner: CommandRunner
    folder: Path
    env: dict[str, str]

    def run(self, *args: str, **env: str) -> CommandResult:
        return self.runner.run(*args, "--data-dir", self.folder, env=self.env | env)

    def json(self, *args: str, **env: str) -> Any:
        return self.run(*args, "--json", **env).json()


@pytest.fixture
def cli(template: Path, tmp_path: Path, runner: CommandRunner) -> FolderCommands:
    """A folder with the accounts Default and Acme."""
    folder = shutil.copytree(template, tmp_path / "data")
    cli = FolderCommands(runner, folder, {"XDG_CONFIG_HOME": str(tmp_path / "config")})
    cli.json("accounts", "create", "Acme")
    return cli


def test_an_account_is_named_by_its_name(cli: FolderCommands) -> None:
    made = cli.json("users", "create", "Ada", "--account", "Acme")
    assert made["account_id"] == cli.json("accounts", "show", "Acme")["id"]
    assert "No such account: 'Acne'" in cli.run("users", "list", "--account", "Acne").error_line(1)


def test_a_chosen_account_is_meant_until_none_is(cli: FolderCommands) -> None:
    assert "tollhouse accounts use" in cli.run("users", "list").error_line(1)
    cli.json("accounts", "use", "Acme")
    cli.json("users", "create", "Ada")
    assert [each["name"] for each in cli.json("users", "list")] == ["Ada"]
    assert cli.json("users", "list", "--account", "Default") == []
    cli.json("accounts", "use", "--none")
    cli.run("users", "list").error_line(1)


def test_the_environment_chooses_an_account_before_that(cli: FolderCommands) -> None:
    cli.json("accounts", "use", "Default")
    cli.json("users", "create", "Ada", TOLLHOUSE_ACCOUNT="Acme")
    assert cli.json("users", "list") == []
    assert len(cli.json("users", "list", TOLLHOUSE_ACCOUNT="Acme")) == 1


@pytest.mark.parametrize("part", ["hash", "name", "label"])
def test_a_key_is_found_across_accounts(cli: FolderCommands, part: str) -> None:
    made = cli.json("keys", "create", "ci", "--account", "Acme")
    name = made["hash"][:12] if part == "hash" else made[part]
    assert cli.json("keys", "show", name)["hash"] == made["hash"]
    assert cli.json("keys", "set", name, "--disabled")["disabled"] is True
    assert "No such key" in cli.run("keys", "show", name, "--account", "Default").error_line(1)


def test_of_two_keys_of_a_name_that_of_the_chosen_account_is_meant(cli: FolderCommands) -> None:
    mine = cli.json("keys", "create", "ci", "--account", "Acme")
    cli.json("keys", "create", "ci", "--account", "Default")
    assert "2 keys are called 'ci'" in cli.run("keys", "show", "ci").error_line(1)
    cli.json("accounts", "use", "Acme")
    assert cli.json("keys", "show", "ci")["hash"] == mine["hash"]


def test_users_and_workspaces_are_named_by_their_names(cli: FolderCommands) -> None:
    cli.json("accounts", "use", "Acme")
    ada = cli.json("users", "create", "Ada")
    team = cli.json("workspaces", "create", "Data team")
    assert cli.json("users", "show", "Ada")["id"] == ada["id"]
    assert cli.json("workspaces", "show", "Data team")["id"] == team["id"]
    made = cli.json("keys", "create", "ci", "--workspace", "Data team", "--user", "Ada")
    assert (made["workspace_id"], made["creator_user_id"]) == (team["id"], ada["id"])
