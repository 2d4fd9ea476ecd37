"""`kill -9` of the server from outside, with 100 requests under way."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from contextlib import closing
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.acceptance.server_process import ServerProcess, start_server
from tests.faults.raw_client import Answer, chat, post_chat
from tests.integration.postgresql_databases import plain_url
from tollhouse.accounting.settlement.journal import Journal
from tollhouse.storage.postgresql import connect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import sqlalchemy as sa

    from tests.faults.upstream_process import UpstreamProcess
    from tests.integration.postgresql_databases import PostgresqlDatabases

CLIENTS = 100
KILLS_IN_TEST = 2
KILLS_IN_SOAK = 10
MODELS = {"cutter/echo": "echo", "cutter/slow": "slow-chunks:5"}


async def ask_until_killed(
    server: ServerProcess,
    key: str,
    whole: list[Answer],
    broken: list[Answer],
    until: Callable[[], bool],
) -> None:
    """Keep 100 clients busy until the server is killed; sort what they received."""
    killed = asyncio.Event()

    async def client(number: int) -> None:
        model, stream = (
            ("cutter/slow", True) if number % 4 == 0 else ("cutter/echo", number % 2 == 0)
        )
        while not killed.is_set():
            answer = await post_chat(server.base_url, key, chat(model, stream=stream))
            (whole if answer.whole else broken).append(answer)

    async def killer() -> None:
        async with asyncio.timeout(60):
            while not until():
                await asyncio.sleep(0.01)
        await asyncio.sleep(random.random() * 0.2)
        server.process.kill()
        killed.set()

    await asyncio.gather(killer(), *map(client, range(CLIENTS)))
    server.kill()


def _enough(received: list[Answer]) -> bool:
    return len(received) >= CLIENTS


class SqliteBooks:
    """The file as it was left; WAL recovery is SQLite's own."""

    env: Mapping[str, str] = MappingProxyType({})

    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / "tollhouse.db"

    async def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self._file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return connection.execute(query).fetchall()


class PostgresqlBooks:
    """The database, as another client sees it."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self.env = {"TOLLHOUSE_DATABASE_URL": plain_url(url)}

    async def rows(self, query: str) -> list[Any]:
        connection = await connect(self._url)
        try:
            return await connection.fetch(query)
        finally:
            await connection.close()


Books = SqliteBooks | PostgresqlBooks


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def books(request: pytest.FixtureRequest, tmp_path: Path) -> Books:
    """The database of the server under test."""
    if request.param == "sqlite":
        return SqliteBooks(tmp_path / "data")
    databases: PostgresqlDatabases = request.getfixturevalue("postgresql")
    return PostgresqlBooks(databases.take())


async def assert_sound(books: Books, whole: list[Answer]) -> None:
    async def one(query: str) -> int:
        return (await books.rows(query))[0][0]

    booked = {row[0] for row in await books.rows("SELECT id FROM generations")}
    missing = [answer.generation_id for answer in whole if answer.generation_id not in booked]
    assert not missing, "received whole, and not booked"
    charged = await one("SELECT sum(cost_nano) FROM generations")
    assert charged > 0
    assert await one("SELECT sum(amount_nano) FROM postings WHERE kind = 'usage'") == charged
    assert await one("SELECT sum(used_nano) FROM account_totals") == charged
    assert await one("SELECT sum(usage_nano) FROM key_totals") == charged
    assert await one("SELECT sum(usage_nano) FROM key_days") == charged
    assert await one("SELECT sum(requests) FROM key_days") == len(booked)
    doubled = "SELECT count(*) - count(DISTINCT generation_id) FROM postings WHERE kind = 'usage'"
    assert await one(doubled) == 0


def verify(server: ServerProcess) -> dict[str, Any]:
    """Return what the server finds wrong in its books."""
    transport = httpx2.HTTPTransport(uds=str(server.control_socket))
    with httpx2.Client(transport=transport, base_url="http://local/v1") as http:
        found = http.get("/ledger/verify", timeout=60).raise_for_status().json()["data"]
    return {name: found[name] for name in ("clean", "differences")}


async def recovered(tmp_path: Path, config: str, books: Books) -> None:
    """Start the server and stop it: the start books what the kill left in the journal."""
    with start_server(tmp_path, config=config, env=books.env) as server:
        assert verify(server) == {"clean": True, "differences": []}
    assert Journal(tmp_path / "data" / "journal").leftovers().payloads == []


async def kill_repeatedly(
    upstream: UpstreamProcess, tmp_path: Path, books: Books, kills: int
) -> None:
    config, key, hit_work, hit_journal = upstream.config(MODELS), "", 0, 0
    journal = tmp_path / "data" / "journal"
    whole: list[Answer] = []
    for number in range(kills):
        server = start_server(tmp_path, config=config, env=books.env)
        key = key or server.api_key
        received: list[Answer] = []
        broken: list[Answer] = []
        try:
            await ask_until_killed(server, key, received, broken, partial(_enough, received))
        finally:
            server.kill()
        whole.extend(received)
        assert all(answer.status == 200 for answer in received)
        hit_work += any(answer.status == 200 for answer in broken)
        hit_journal += bool(Journal(journal).leftovers().payloads)
        await recovered(tmp_path, config, books)
        await assert_sound(books, whole)
        assert len(whole) >= CLIENTS * (number + 1)
    assert hit_work, "no kill hit a reply under way: the test proved nothing"
    assert hit_journal, "no kill hit a charge in the journal: the test proved nothing"
    with start_server(tmp_path, config=config, env=books.env) as server:
        answer = await post_chat(server.base_url, key, chat("cutter/echo", stream=False))
        assert answer.status == 200


async def test_after_kill_9_every_reply_received_whole_is_booked_once(
    upstream: UpstreamProcess, tmp_path: Path, books: Books
) -> None:
    await kill_repeatedly(upstream, tmp_path, books, KILLS_IN_TEST)


@pytest.mark.soak
async def test_ten_kills(
    upstream: UpstreamProcess, tmp_path: Path, books: Books, soak_factor: int
) -> None:
    await kill_repeatedly(upstream, tmp_path, books, KILLS_IN_SOAK * soak_factor)
