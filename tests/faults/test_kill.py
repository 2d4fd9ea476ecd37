"""`kill -9` of the server from outside, with 100 requests under way."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from typing import TYPE_CHECKING

import pytest

from tests.acceptance.server_process import ServerProcess, start_server
from tests.faults.raw_client import Answer, chat, post_chat

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.upstream_process import UpstreamProcess

CLIENTS = 100
KILLS_IN_TEST = 2
KILLS_IN_SOAK = 10
MODELS = {"cutter/echo": "echo", "cutter/slow": "slow-chunks:5"}


async def ask_until_killed(
    server: ServerProcess, key: str, whole: list[Answer], broken: list[Answer]
) -> None:
    """Keep 100 clients busy until the server is gone; sort what they received."""
    killed = asyncio.Event()

    async def client(number: int) -> None:
        model, stream = (
            ("cutter/slow", True) if number % 4 == 0 else ("cutter/echo", number % 2 == 0)
        )
        while not killed.is_set():
            answer = await post_chat(server.base_url, key, chat(model, stream=stream))
            (whole if answer.whole else broken).append(answer)

    async def killer() -> None:
        while len(whole) < CLIENTS:
            await asyncio.sleep(0.01)
        await asyncio.sleep(random.random() * 0.2)
        server.process.kill()
        killed.set()

    await asyncio.gather(killer(), *map(client, range(CLIENTS)))
    server.kill()


def books(data_dir: Path) -> sqlite3.Connection:
    """Open the database as it was left; WAL recovery is SQLite's own."""
    return sqlite3.connect(data_dir / "tollhouse.db")


def assert_sound(connection: sqlite3.Connection, whole: list[Answer]) -> None:
    def one(query: str) -> int:
        return connection.execute(query).fetchone()[0]

    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    booked = {row[0] for row in connection.execute("SELECT id FROM generations")}
    missing = [answer.generation_id for answer in whole if answer.generation_id not in booked]
    assert not missing, "received whole, and not booked"
    charged = one("SELECT sum(cost_nano) FROM generations")
    assert charged > 0
    assert one("SELECT sum(amount_nano) FROM postings WHERE kind = 'usage'") == charged
    assert one("SELECT sum(used_nano) FROM account_totals") == charged
    assert one("SELECT sum(usage_nano) FROM key_totals") == charged
    assert one("SELECT sum(usage_nano) FROM key_days") == charged
    assert one("SELECT sum(requests) FROM key_days") == len(booked)
    doubled = "SELECT count(*) - count(DISTINCT generation_id) FROM postings WHERE kind = 'usage'"
    assert one(doubled) == 0


async def kill_repeatedly(upstream: UpstreamProcess, tmp_path: Path, kills: int) -> None:
    config, key, hit_work = upstream.config(MODELS), "", 0
    whole: list[Answer] = []
    for number in range(kills):
        server = start_server(tmp_path, config=config)
        key = key or server.api_key
        received: list[Answer] = []
        broken: list[Answer] = []
        try:
            await ask_until_killed(server, key, received, broken)
        finally:
            server.kill()
        whole.extend(received)
        assert all(answer.status == 200 for answer in received)
        hit_work += any(answer.status == 200 for answer in broken)
        with books(server.data_dir) as connection:
            assert_sound(connection, whole)
        assert len(whole) >= CLIENTS * (number + 1)
    assert hit_work, "no kill hit a reply under way: the test proved nothing"
    with start_server(tmp_path, config=config) as server:
        answer = await post_chat(server.base_url, key, chat("cutter/echo", stream=False))
        assert answer.status == 200


async def test_after_kill_9_every_reply_received_whole_is_booked_once(
    upstream: UpstreamProcess, tmp_path: Path
) -> None:
    await kill_repeatedly(upstream, tmp_path, KILLS_IN_TEST)


@pytest.mark.soak
async def test_ten_kills(upstream: UpstreamProcess, tmp_path: Path, soak_factor: int) -> None:
    await kill_repeatedly(upstream, tmp_path, KILLS_IN_SOAK * soak_factor)
