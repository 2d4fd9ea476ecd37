"""Charges that a killed server left in its journal are booked at the next start or by a command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import msgspec
import pytest

from tests.acceptance.cli.command import tollhouse
from tests.support.builders import generation_record
from tests.support.server_process import ServerProcess, start_server
from tollhouse.accounting.settlement.journal import Journal

if TYPE_CHECKING:
    from pathlib import Path

CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "Hello"}]}
COST_NANO = 7_000_000


def ask(server: ServerProcess) -> dict[str, str]:
    """Send a request; return the facts of its generation."""
    headers = {"Authorization": f"Bearer {server.api_key}"}
    with httpx2.Client(base_url=server.origin, headers=headers, timeout=20) as http:
        reply = http.post("/v1/chat/completions", json=CHAT)
        assert reply.status_code == 200
        # At once: whoever has a reply sees its charge.
        found = http.get("/v1/generation", params={"id": reply.json()["id"]})
    assert found.status_code == 200, found.text
    return found.json()["data"]


def leave_behind(server: ServerProcess, tmp_path: Path) -> None:
    """Kill the server with one more charge in its journal, the last record cut off."""
    headers = {"Authorization": f"Bearer {server.management_key}"}
    with httpx2.Client(base_url=server.origin, headers=headers, timeout=20) as http:
        account = http.get("/v1/accounts").json()["data"][0]["id"]
        key = http.get("/v1/keys").json()["data"][0]
    server.kill()
    journal = Journal(tmp_path / "data" / "journal")
    record = generation_record(
        id="gen-left-behind",
        account_id=account,
        workspace_id=key["workspace_id"],
        key_hash=key["hash"],
        cost_nano=COST_NANO,
    )
    journal.append(msgspec.json.encode(record))
    journal.append(b'{"id":"cut off"}')
    journal.close()
    file = tmp_path / "data" / "journal" / "a.log"
    file.write_bytes(file.read_bytes().rstrip(b"\0")[:-3])


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """The journal of a server that was killed."""
    server = start_server(tmp_path)
    assert ask(server)
    leave_behind(server, tmp_path)
    return Journal(tmp_path / "data" / "journal")


def test_the_next_start_books_the_journals_charges_and_says_so(
    journal: Journal, tmp_path: Path
) -> None:
    with start_server(tmp_path) as server:
        said = server.stderr_text()
    assert "charges_recovered" in said
    assert "journal_damaged" in said
    assert journal.read_unbooked().payloads == []


def test_a_command_without_a_server_books_the_journals_charges_first(
    journal: Journal, tmp_path: Path
) -> None:
    done = tollhouse("credits", "show", "--json", "--data-dir", str(tmp_path / "data"))
    assert done.code == 0, done
    assert journal.read_unbooked().payloads == []
    assert "0.007" in done.out
