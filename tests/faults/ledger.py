"""The ledger of a server that was killed, and the checks of it."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from types import MappingProxyType
from typing import Any

import httpx2
import sqlalchemy as sa

from tests.faults.raw_client import Answer
from tests.support import backdoor
from tests.support.postgresql_databases import plain_url
from tests.support.server_process import ServerProcess, start_server


class SqliteLedger:
    """The SQLite file as the kill left it; SQLite recovers its WAL."""

    env: Mapping[str, str] = MappingProxyType({})

    def __init__(self, data_dir: Path) -> None:
        self._file = data_dir / "tollhouse.db"

    async def rows(self, query: str) -> list[Any]:
        with closing(sqlite3.connect(self._file)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            return connection.execute(query).fetchall()


class PostgresqlLedger:
    """The PostgreSQL database, read by another client."""

    def __init__(self, url: sa.URL) -> None:
        self.url = url
        self.env = {"TOLLHOUSE_DATABASE_URL": plain_url(url)}

    async def rows(self, query: str) -> list[Any]:
        async with backdoor.connected(self.url) as connection:
            return await connection.fetch(query)


Ledger = SqliteLedger | PostgresqlLedger


async def assert_consistent(
    ledger: Ledger, whole: list[Answer], broken: list[Answer] | None = None
) -> None:
    """Check the sums, that whole replies are charged, and that of broken ones there is a trace."""

    async def one(query: str) -> int:
        return (await ledger.rows(query))[0][0] or 0  # a sum of nothing is null

    states = {row[0]: row[1] for row in await ledger.rows("SELECT id, cost_state FROM generations")}
    booked = states.keys()
    ended = {found for found, state in states.items() if state != "interrupted"}
    missing = [answer.generation_id for answer in whole if answer.generation_id not in ended]
    assert not missing, "received whole, and not booked"
    begun = [answer.generation_id for answer in broken or () if answer.status == 200]
    assert booked >= set(begun), "cut off while a provider was at work, and no trace of it"
    charged = await one("SELECT sum(cost_nano) FROM generations")
    assert (charged > 0) == bool(ended)  # a kill may come before anything was booked
    assert await one("SELECT sum(amount_nano) FROM postings WHERE kind = 'usage'") == charged
    assert await one("SELECT sum(used_nano) FROM account_totals") == charged
    assert await one("SELECT sum(usage_nano) FROM key_totals") == charged
    assert await one("SELECT sum(usage_nano) FROM key_days") == charged
    assert await one("SELECT sum(requests) FROM key_days") == len(booked)
    own = "FROM generations WHERE is_byok"
    taken = await one(f"SELECT sum(provider_cost_nano) {own}")
    assert await one("SELECT sum(byok_usage_nano) FROM key_totals") == taken
    assert await one("SELECT sum(byok_requests) FROM account_days") == await one(
        f"SELECT count(*) {own}"
    )
    doubled = "SELECT count(*) - count(DISTINCT generation_id) FROM postings WHERE kind = 'usage'"
    assert await one(doubled) == 0


def verify(server: ServerProcess) -> dict[str, Any]:
    """Return the result of `GET /ledger/verify`."""
    transport = httpx2.HTTPTransport(uds=str(server.control_socket))
    with httpx2.Client(transport=transport, base_url="http://local/v1") as http:
        found = http.get("/ledger/verify", timeout=60).raise_for_status().json()["data"]
    return {name: found[name] for name in ("clean", "differences")}


async def recover(tmp_path: Path, config: str, ledger: Ledger) -> None:
    """Start the server, which books the charges that the kill left in the journal, and stop it."""
    with start_server(tmp_path, config=config, env=ledger.env) as server:
        assert verify(server) == {"clean": True, "differences": []}
    assert backdoor.journal_bytes(tmp_path / "data") == b""
