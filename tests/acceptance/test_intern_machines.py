"""Two servers with sandboxes on one PostgreSQL: each shows the state of the other's interns."""

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.fake_s3 import blobs_at, s3_beside
from tests.support.intern_client import InternClient, until_nothing_runs
from tests.support.postgresql_databases import PostgresqlDatabases, plain_url
from tests.support.server_process import ServerProcess, start_server

pytestmark = [pytest.mark.sandbox, pytest.mark.postgresql]
PACES = {
    "TOLLHOUSE_INTERNS__LEASE_SECONDS": "3",
    "TOLLHOUSE_INTERNS__AWAY_SECONDS": "6",
    "TOLLHOUSE_INTERNS__ROUND_SECONDS": "0.2",
    "TOLLHOUSE_VAULT__KEYS": "settings",
    "TOLLHOUSE_VAULT__KEY": "A" * 43 + "=",
}


@pytest.fixture(scope="module", autouse=True)
def store() -> Generator[None]:
    """Have all servers keep their files in one store."""
    with s3_beside() as store:
        PACES.update({f"TOLLHOUSE_BLOBS__{k.upper()}": str(v) for k, v in blobs_at(store).items()})
        yield


@pytest.fixture
def database(postgresql: PostgresqlDatabases) -> Generator[str]:
    """A migrated database without rows."""
    url = postgresql.take()
    yield plain_url(url)
    postgresql.give_back(url)


def started(folder: Path, database: str) -> ServerProcess:
    folder.mkdir(exist_ok=True)
    return start_server(folder, env={**PACES, "TOLLHOUSE_DATABASE_URL": database})


def test_an_intern_of_a_server_that_is_gone_has_failed_and_can_be_deleted(
    tmp_path_factory: pytest.TempPathFactory, database: str
) -> None:
    folder = tmp_path_factory.mktemp("m")
    with started(folder / "a", database) as first:
        here = InternClient(first)
        intern = here.run()
        with started(folder / "b", database) as second:
            there = InternClient(second, first.api_key)
            told = there.request("GET", f"/interns/{intern}/daemon")
            assert told.status_code == 409
            assert told.json()["error"]["metadata"]["reason"] == "intern_unreachable"
            there.suspend(intern)
            assert there.request("POST", f"/interns/{intern}/provision").status_code == 202
            there.until(intern, {"running"})
            assert here.request("GET", f"/interns/{intern}/daemon").status_code == 200
            first.kill()
            until_nothing_runs(first.data_dir)
            failed = there.until(intern, {"failed"})
            assert failed is not None
            assert "does not answer" in failed["last_failure_message"]
            again = there.request("POST", f"/interns/{intern}/provision")
            assert again.status_code == 502
            assert again.json()["error"]["metadata"]["reason"] == "upstream_unavailable"
            assert there.request("DELETE", f"/interns/{intern}").status_code == 202
            kept = there.until(intern, {"destroy_failed"})
            assert kept is not None
            assert "workspace_archive_failed" in kept["last_failure_message"]
            loss = {"acknowledge_workspace_loss": True}
            assert there.request("DELETE", f"/interns/{intern}", loss).status_code == 202
            there.until(intern, {None})
            with started(folder / "a", database) as back:
                InternClient(back, first.api_key).request("GET", "/interns")  # once recovered
                assert not (back.data_dir / "interns" / "files" / intern).exists()
