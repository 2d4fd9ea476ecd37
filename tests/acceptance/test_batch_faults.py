"""Batches while something else goes wrong: a restart, a provider that is away, a full disk."""

import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random

import httpx2
import pytest

from tests.acceptance.batch_requests import (
    batch_body,
    batch_folders,
    chat,
    chats,
    completed,
    ended,
    existing,
    listed,
    send,
    submit,
    texts_of,
    until,
)
from tests.support import backdoor
from tests.support.accounts import AccountClient, Accounts
from tests.support.server_process import TOLLHOUSE, ServerProcess, start_server

SOON = {"TOLLHOUSE_BATCHES__PART_SECONDS": "0.1"}


def first_payer(server: ServerProcess) -> AccountClient:
    http = httpx2.Client(base_url=server.base_url, timeout=20)
    return AccountClient(http, server.api_key, "", "")


# A restart


def test_a_batch_goes_on_after_a_restart_and_runs_nothing_twice(tmp_path: Path) -> None:
    with start_server(tmp_path, env=SOON) as server:
        account = first_payer(server)
        with closing(account.http):
            batch_id = submit(account, *chats(100), model="simulated/slow")["id"]
            before = completed(account, batch_id)["request_counts"]["completed"]
    assert before < 100
    with (
        start_server(tmp_path, env=SOON) as server,
        httpx2.Client(base_url=server.base_url, timeout=20) as http,
    ):
        account = AccountClient(http, account.key, "", "")
        assert existing(account, batch_id)["request_counts"]["completed"] >= before
        batch = ended(account, batch_id)
    assert batch["request_counts"] == {"total": 100, "completed": 100, "failed": 0}
    assert texts_of(batch) == {f"c-{at}": f"item {at}" for at in range(100)}
    assert len(batch["results"]) == 100
    replies = {item["response"]["request_id"] for item in batch["results"]}
    assert sorted(generations(server)) == sorted(replies)


def generations(server: ServerProcess) -> list[str]:
    """Return the ids of all booked generations."""
    return [name for (name,) in backdoor.execute(server, "SELECT id FROM generations")]


# A provider that is away


class IntermittentProvider:
    """A fake provider that can be stopped and started again on the same port."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    @contextmanager
    def running(self) -> Generator[None]:
        """Run during the block."""
        module = "tests.support.providers.openai_upstream"
        command = [sys.executable, "-m", module, "--port", str(self.port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline()
                yield
            finally:
                process.kill()

    def config(self) -> str:
        """Return a configuration that leads to it."""
        return (
            "providers:\n"
            "  - {slug: stand, kind: openai_compatible, "
            f"base_url: 'http://127.0.0.1:{self.port}/v1'}}\n"
            "models:\n"
            "  - id: stand/late\n"
            "    context_length: 8192\n"
            "    endpoints: [{provider: stand, model: 'slow-head:0.3', pricing: free}]\n"
        )


def test_requests_wait_for_a_provider_that_is_away_and_none_fails(tmp_path: Path) -> None:
    stand = IntermittentProvider()
    with start_server(tmp_path, config=stand.config(), env=SOON) as server:
        account = first_payer(server)
        with closing(account.http):
            with stand.running():
                batch_id = submit(account, *chats(120), model="stand/late")["id"]
                before = completed(account, batch_id)["request_counts"]["completed"]
            live = account.ask("stand/late")
            assert live.status_code == 502
            away = existing(account, batch_id)
            with stand.running():
                batch = ended(account, batch_id)
    assert (away["status"], away["request_counts"]["failed"]) == ("in_progress", 0)
    assert before <= away["request_counts"]["completed"] < 120
    assert batch["request_counts"] == {"total": 120, "completed": 120, "failed": 0}


# A full disk

FULL = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (1_500_000, 1_500_000))
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def full(tmp_path: Path) -> Generator[tuple[ServerProcess, Accounts]]:
    """Run a server whose files cannot grow beyond 1.5 MB."""
    program = (sys.executable, "-c", FULL, str(TOLLHOUSE))
    with start_server(tmp_path, program=program) as server, closing(Accounts(server)) as accounts:
        yield server, accounts


def test_a_batch_that_cannot_be_stored_is_a_502_and_nothing_of_it_stays(
    full: tuple[ServerProcess, Accounts],
) -> None:
    server, accounts = full
    account = accounts.create("100")
    random = Random(7)
    noise = [random.randbytes(8_000).hex() for _ in range(400)]
    reply = send(account, batch_body(*(chat(text) for text in noise), model="simulated/echo:batch"))
    assert (reply.status_code, reply.json()["error"]["code"]) == (502, 502)
    assert str(server.data_dir) not in reply.text
    until(lambda: not batch_folders(server))
    assert listed(account) == []
    assert ended(account, submit(account, chat())["id"])["status"] == "completed"
