"""Charges that a killed server left in its journal are booked at the next start or by a command."""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.acceptance.cli.command import tollhouse
from tests.support import backdoor
from tests.support.failpoints import Failpoints
from tests.support.server_process import ServerProcess, start_server
from tests.support.waiting import wait_until

CHAT = {"model": "simulated/echo", "messages": [{"role": "user", "content": "Hello"}]}


def ask(server: ServerProcess) -> str:
    """Send a request; return the id of its generation."""
    url = f"{server.base_url}/chat/completions"
    reply = httpx2.post(url, headers=server.authorization, json=CHAT, timeout=20)
    assert reply.status_code == 200, reply.text
    return reply.json()["id"]


def booked(
    server: ServerProcess, generation: str, headers: dict[str, str] | None = None
) -> dict[str, Any]:
    """Return the facts of a generation; at once: whoever has a reply sees its charge."""
    found = httpx2.get(
        f"{server.base_url}/generation",
        headers=headers or server.authorization,
        params={"id": generation},
        timeout=20,
    )
    assert found.status_code == 200, found.text
    return found.json()["data"]


@pytest.fixture
def cost(tmp_path: Path) -> float:
    """What a request cost on a server that was killed with two in its journal, one cut off."""
    stops = Failpoints(tmp_path / "stops")
    server = start_server(tmp_path, env=stops.env)
    cost = booked(server, ask(server))["total_cost"]
    stops.stop_at("books.read")
    ask(server)
    ask(server)
    wait_until(stops.reached)
    server.kill()
    backdoor.cut_journal(server.data_dir, 3)
    return cost


def test_the_next_start_books_the_journals_charges_and_says_so(cost: float, tmp_path: Path) -> None:
    with start_server(tmp_path) as server:
        said = server.stderr_text()
    assert cost > 0
    assert "charges_recovered" in said
    assert "journal_damaged" in said
    assert backdoor.journal_bytes(tmp_path / "data") == b""


def test_what_a_kill_cuts_off_at_a_provider_is_told_with_its_estimate(tmp_path: Path) -> None:
    stops = Failpoints(tmp_path / "stops")
    stream = {**CHAT, "model": "simulated/slow", "stream": True, "max_tokens": 100}
    with (
        start_server(tmp_path, env=stops.env) as server,
        httpx2.stream(
            "POST",
            f"{server.base_url}/chat/completions",
            headers=server.authorization,
            json=stream,
            timeout=20,
        ) as reply,
    ):
        headers, cut_off = server.authorization, reply.headers["X-Generation-Id"]
        server.kill()
    with start_server(tmp_path) as server:
        found = booked(server, cut_off, headers)
        told = tollhouse("ledger", "interrupted", "--json", "--data-dir", server.data_dir).json()
    assert (found["cost_state"], found["total_cost"]) == ("interrupted", 0)
    assert found["estimated_cost"] > 0
    assert [each["id"] for each in told] == [cut_off]


@pytest.mark.sqlite
def test_a_command_without_a_server_books_the_journals_charges_first(
    cost: float, tmp_path: Path
) -> None:
    shown = tollhouse("credits", "show", "--json", "--data-dir", tmp_path / "data").json()
    assert shown["total_usage"] == pytest.approx(2 * cost)
    assert backdoor.journal_bytes(tmp_path / "data") == b""
