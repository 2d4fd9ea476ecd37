"""`kill -9` of the server from outside, with 100 requests under way."""

import asyncio
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx2
import pytest

from tests.faults.ledger import Ledger, assert_consistent, recover
from tests.faults.raw_client import Answer, chat, post_chat
from tests.support import backdoor
from tests.support.server_process import ServerProcess, start_server
from tests.support.upstream_process import UpstreamProcess

CLIENTS = 100
KILLS_IN_TEST = 2
KILLS_IN_SOAK = 5
MODELS = {"cutter/echo": "echo", "cutter/own": "echo", "cutter/slow": "slow-chunks:5"}
OWN = ["cutter/own", "cutter/slow"]
"""What an own key serves."""
FREE_OWN = 10
FEE = f"byok: {{fee_percent: '5', free_requests_a_month: {FREE_OWN}}}\n"


def bring_own_key(server: ServerProcess) -> None:
    body = {"provider": "cutter", "key": "of-the-customer", "allowed_models": OWN}
    headers = {"authorization": f"Bearer {server.management_key}"}
    made = httpx2.post(f"{server.base_url}/byok", json=body, headers=headers)
    assert made.status_code == 201, made.text


def kill_server(server: ServerProcess) -> None:
    server.process.kill()


async def ask_until_killed(
    server: ServerProcess,
    key: str,
    whole: list[Answer],
    broken: list[Answer],
    until: Callable[[], bool],
    kill: Callable[[ServerProcess], None] = kill_server,
) -> None:
    """Keep 100 clients busy until something is killed; sort what they received."""
    killed = asyncio.Event()

    async def client(number: int) -> None:
        model, stream = [
            *(("cutter/slow", True), ("cutter/own", False)),
            *(("cutter/echo", True), ("cutter/echo", False)),
        ][number % 4]
        while not killed.is_set():
            answer = await post_chat(server.base_url, key, chat(model, stream=stream))
            (whole if answer.whole else broken).append(answer)

    async def killer() -> None:
        async with asyncio.timeout(60):
            while not until():
                await asyncio.sleep(0.01)
        await asyncio.sleep(random.random() * 0.2)
        kill(server)
        killed.set()

    await asyncio.gather(killer(), *map(client, range(CLIENTS)))


def _enough(received: list[Answer]) -> bool:
    return len(received) >= CLIENTS


async def kill_repeatedly(
    upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger, kills: int
) -> None:
    config, key, hit_work, hit_journal = upstream.config(MODELS, FEE), "", 0, 0
    whole: list[Answer] = []
    for number in range(kills):
        server = start_server(tmp_path, config=config, env=ledger.env)
        if not key:
            key = server.api_key
            bring_own_key(server)
        received: list[Answer] = []
        broken: list[Answer] = []
        try:
            await ask_until_killed(server, key, received, broken, partial(_enough, received))
        finally:
            server.kill()
        whole.extend(received)
        assert all(answer.status == 200 for answer in received)
        hit_work += any(answer.status == 200 for answer in broken)
        hit_journal += bool(backdoor.journal_bytes(tmp_path / "data"))
        await recover(tmp_path, config, ledger)
        await assert_consistent(ledger, whole, broken)
        assert len(whole) >= CLIENTS * (number + 1)
    taken = "SELECT count(*) FROM generations WHERE is_byok AND cost_state = 'exact' AND cost_nano "
    free, paid = [(await ledger.rows(taken + which))[0][0] for which in ("= 0", "> 0")]
    assert 0 < free <= FREE_OWN < free + paid
    assert hit_work, "no kill hit a reply under way: the test proved nothing"
    assert hit_journal, "no kill hit a charge in the journal: the test proved nothing"
    with start_server(tmp_path, config=config, env=ledger.env) as server:
        answer = await post_chat(server.base_url, key, chat("cutter/echo", stream=False))
        assert answer.status == 200


@pytest.mark.parametrize("ledger", ["sqlite"], indirect=True)
async def test_after_kill_9_every_reply_received_whole_is_booked_once(
    upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger
) -> None:
    await kill_repeatedly(upstream, tmp_path, ledger, KILLS_IN_TEST)


@pytest.mark.soak
async def test_many_kills_lose_no_booked_reply(
    upstream: UpstreamProcess, tmp_path: Path, ledger: Ledger, soak_factor: int
) -> None:
    await kill_repeatedly(upstream, tmp_path, ledger, KILLS_IN_SOAK * soak_factor)
