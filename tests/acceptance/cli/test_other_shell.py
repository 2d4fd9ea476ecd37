"""Commands in a shell without the variables that the server's shell had."""

from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.support.server_process import ServerProcess

BROKEN = {
    "a variable that is not set": "providers: [{slug: acme, kind: anthropic, api_key: '${GONE}'}]",
    "a setting that does not exist": "servr: {port: 1}",
    "no YAML": "providers: [",
}


@pytest.fixture(params=BROKEN)
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "tollhouse.yaml"
    path.write_text(BROKEN[request.param])
    return path


def test_a_running_server_is_reached_whatever_is_wrong_with_its_settings_here(
    broken: Path, server: ServerProcess, runner: CommandRunner
) -> None:
    on_folder = ("--data-dir", server.data_dir, "--config", broken, "--json")
    assert runner.run("accounts", "list", *on_folder).json()
    key = {"TOLLHOUSE_API_KEY": server.api_key}
    assert runner.run("key", "show", *on_folder, env=key).json()["label"]


def test_the_folder_that_a_broken_file_names_is_found(
    server: ServerProcess, tmp_path: Path, runner: CommandRunner
) -> None:
    path = tmp_path / "tollhouse.yaml"
    path.write_text(f"data_dir: {server.data_dir}\ndatabase_url: ${{GONE}}\n")
    assert runner.run("accounts", "list", "--config", path, "--json").json()


def test_without_a_server_the_mistake_is_reported(
    broken: Path, template: Path, runner: CommandRunner
) -> None:
    done = runner.run("accounts", "list", "--data-dir", template, "--config", broken)
    assert str(broken) in done.error_line(2)
