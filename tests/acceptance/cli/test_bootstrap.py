"""`tollhouse bootstrap`: the first account, its credits and keys, without a server."""

from pathlib import Path

import httpx2
import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.support.server_process import ServerProcess, start_server

NAMES = {"api_key", "management_key", "account_id", "workspace_id"}


@pytest.mark.sqlite
def test_json_is_the_only_thing_on_stdout_and_the_keys_work(
    tmp_path: Path, runner: CommandRunner
) -> None:
    folder = tmp_path / "data"
    done = runner.run("bootstrap", "--data-dir", folder, "--json")
    made = done.json()
    assert (made.keys(), done.out.count("\n"), done.err) == (NAMES, 1, "")
    assert folder.stat().st_mode & 0o777 == 0o700
    # A server on the same folder shows no keys any more, and takes these.
    with start_server(tmp_path) as server:
        assert server.announced["api_key"] is None
        for name in ("api_key", "management_key"):
            headers = {"Authorization": f"Bearer {made[name]}"}
            reply = httpx2.get(f"{server.base_url}/key", headers=headers)
            assert reply.json()["data"]["organization_id"] == made["account_id"]
            assert reply.json()["data"]["workspace_id"] == made["workspace_id"]


def test_a_second_bootstrap_is_refused_and_changes_nothing(
    bootstrapped: Path, runner: CommandRunner
) -> None:
    before = runner.run("keys", "list", "--data-dir", bootstrapped).out
    assert len(before.splitlines()) == 2
    refused = runner.run("bootstrap", "--data-dir", bootstrapped, "--json").error_line(2)
    assert "--new-keys" in refused
    assert runner.run("keys", "list", "--data-dir", bootstrapped).out == before


def test_new_keys_are_for_the_account_that_is_there(
    bootstrapped: Path, runner: CommandRunner
) -> None:
    here = ("--data-dir", bootstrapped, "--json")
    [account] = runner.run("accounts", "list", *here).json()
    first, second = (runner.run("bootstrap", "--new-keys", *here).json() for _ in range(2))
    assert first["account_id"] == second["account_id"] == account["id"]
    assert first["workspace_id"] == second["workspace_id"]
    assert len(runner.run("keys", "list", *here).json()) == 6
    credits_ = runner.run("credits", "show", *here).json()
    assert credits_ == {"total_credits": 1000.0, "total_usage": 0.0, "balance": 1000.0}


def test_bootstrap_prints_lines_and_heeds_the_settings(
    tmp_path: Path, runner: CommandRunner
) -> None:
    env = {
        "TOLLHOUSE_DATA_DIR": str(tmp_path / "from-environment"),
        "TOLLHOUSE_ACCOUNTING__INITIAL_GRANT": "2.5",
        "TOLLHOUSE_BASE_URL": "http://127.0.0.1:1",  # is for control commands
    }
    done = runner.run("bootstrap", "--new-keys", env=env)
    assert done.code == 0, done
    assert "sk-th-v1-" in done.out
    assert "nobody can show them again" in done.out
    folder = tmp_path / "from-environment"
    shown = runner.run("credits", "show", "--data-dir", folder, "--json", env=env)
    assert shown.json()["balance"] == 2.5


@pytest.mark.sqlite
def test_bootstrap_is_refused_while_a_server_uses_the_folder(
    server: ServerProcess, runner: CommandRunner
) -> None:
    done = runner.run("bootstrap", "--data-dir", server.data_dir, "--json", "--new-keys")
    assert server.origin in done.error_line(2)


def test_an_invalid_database_is_refused(tmp_path: Path, runner: CommandRunner) -> None:
    (tmp_path / "tollhouse.db").write_text("not a database")
    assert "tollhouse.db" in runner.run("bootstrap", "--data-dir", tmp_path).error_line(2)
    assert (tmp_path / "tollhouse.db").read_text() == "not a database"


def test_a_folder_that_was_never_bootstrapped_stays_untouched(
    tmp_path: Path, runner: CommandRunner
) -> None:
    refused = runner.run("keys", "list", "--data-dir", tmp_path / "data").error_line(2)
    assert "`tollhouse serve` or `tollhouse bootstrap`" in refused
    assert not (tmp_path / "data").exists()
