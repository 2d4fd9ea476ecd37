"""Writes while nothing can be stored: the database is locked, or the disk is full."""

import resource
import sqlite3
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.support.server_process import ServerProcess, start_server

SECRET = {"value": "a secret of a test", "hosts": ["a.example.com"]}


@contextmanager
def locked(server: ServerProcess) -> Generator[None]:
    """Another program holds the lock."""
    path = server.data_dir / "tollhouse.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


@contextmanager
def full(server: ServerProcess) -> Generator[None]:
    """No file of the server can grow beyond the size that the database's log has."""
    size = (server.data_dir / "tollhouse.db-wal").stat().st_size
    process, unlimited = server.process.pid, resource.RLIM_INFINITY
    resource.prlimit(process, resource.RLIMIT_FSIZE, (size, unlimited))
    yield
    resource.prlimit(process, resource.RLIMIT_FSIZE, (unlimited, unlimited))


@pytest.mark.soak
@pytest.mark.parametrize("away", [locked, full])
def test_writes_are_refused_with_a_503_that_may_be_tried_again(
    tmp_path: Path, away: Callable[[ServerProcess], AbstractContextManager[None]]
) -> None:
    with (
        start_server(tmp_path) as server,
        httpx2.Client(base_url=server.base_url, headers=server.authorization, timeout=30) as client,
    ):
        intern = client.post("/interns", json={"name": "ada"}).json()["id"]
        assert client.put("/vault/secrets/first", json=SECRET).status_code == 200
        with away(server):
            refused = [
                client.post("/interns", json={"name": "bob"}),
                client.patch(f"/interns/{intern}", json={"name": "eve"}),
                client.post(f"/interns/{intern}/provision"),
                client.put("/vault/secrets/second", json=SECRET),
                client.delete("/vault/secrets/first"),
            ]
        again = client.delete("/vault/secrets/first")
    assert [each.status_code for each in refused] == [503] * len(refused)
    assert all(each.json()["error"]["metadata"]["retryable"] for each in refused)
    assert again.status_code == 204
