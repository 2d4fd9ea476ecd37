"""What writes answer while another program holds the lock of the SQLite file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.acceptance.server_process import start_server

if TYPE_CHECKING:
    from pathlib import Path

SECRET = {"value": "a secret of a test", "hosts": ["a.example.com"]}


@pytest.mark.soak
def test_writes_are_refused_with_a_503_that_may_be_tried_again(tmp_path: Path) -> None:
    with (
        start_server(tmp_path) as server,
        httpx2.Client(base_url=server.base_url, headers=server.authorization, timeout=30) as client,
        closing(sqlite3.connect(tmp_path / "data/tollhouse.db", isolation_level=None)) as other,
    ):
        intern = client.post("/interns", json={"name": "ada"}).json()["id"]
        assert client.put("/vault/secrets/first", json=SECRET).status_code == 200
        other.execute("BEGIN EXCLUSIVE")
        refused = [
            client.post("/interns", json={"name": "bob"}),
            client.patch(f"/interns/{intern}", json={"name": "eve"}),
            client.post(f"/interns/{intern}/provision"),
            client.put("/vault/secrets/second", json=SECRET),
            client.delete("/vault/secrets/first"),
        ]
        other.execute("ROLLBACK")
        again = client.delete("/vault/secrets/first")
    assert [each.status_code for each in refused] == [503] * len(refused)
    assert all(each.json()["error"]["metadata"]["retryable"] for each in refused)
    assert again.status_code == 204
