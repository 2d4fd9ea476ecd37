"""The command line on PostgreSQL, where the operator migrates."""

from pathlib import Path

import pytest

from tests.acceptance.cli.command import CommandRunner
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url

pytestmark = pytest.mark.postgresql


def test_migrate_bootstrap_and_the_nouns_without_a_server(
    tmp_path: Path, postgresql: PostgresqlDatabases, runner: CommandRunner
) -> None:
    url = plain_url(postgresql.empty())
    env = {"TOLLHOUSE_DATABASE_URL": url, "TOLLHOUSE_DATA_DIR": str(tmp_path / "data")}
    for args in (["bootstrap", "--json"], ["accounts", "list"], ["serve", "--port", "0"]):
        assert "run `tollhouse migrate` first" in runner.run(*args, env=env).error_line(2)
    assert runner.run("migrate", "--check", env=env).code == 1
    assert runner.run("migrate", "--json", env=env).json()["migrated"] is True
    assert "bootstrap" in runner.run("accounts", "list", env=env).error_line(2)
    made = runner.run("bootstrap", "--json", env=env).json()
    [account] = runner.run("accounts", "list", "--json", env=env).json()
    assert account["id"] == made["account_id"]
    assert len(runner.run("keys", "list", "--json", env=env).json()) == 2
    assert "--new-keys" in runner.run("bootstrap", env=env).error_line(2)
    assert not (tmp_path / "data" / "tollhouse.db").exists()
