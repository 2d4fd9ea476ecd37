"""State that no request can make, and state that none shows: SQL on the tables, and files.

A server may be running meanwhile. Everything else goes through its front door.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, Final

import asyncpg
import sqlalchemy as sa

from tests.support.server_process import ServerProcess

_WAIT_SECONDS: Final = 30
_ADD_INTERNS_KEY: Final = """
    INSERT INTO api_keys (hash, secret_hash, kind, operator, account_id, workspace_id, intern_id,
                          payer_hash, name, label, disabled, created_at)
    SELECT ?, ?, 'intern', false, account_id, id, ?, ?,
           'An intern''s own', 'sk-th-v1-abc...xyz', false, created_at
    FROM workspaces WHERE id = ?"""


def execute(server: ServerProcess, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    """Run a statement in which each `?` stands for a parameter; return the rows that it yields."""
    database = server.database
    if isinstance(database, Path):
        connecting = sqlite3.connect(database, timeout=_WAIT_SECONDS, isolation_level=None)
        with closing(connecting) as connection:
            return connection.execute(statement, parameters).fetchall()
    numbers = count(1)
    numbered = re.sub(r"\?", lambda _: f"${next(numbers)}", statement)
    return asyncio.run(_fetch(sa.make_url(database), numbered, *parameters))


@asynccontextmanager
async def connected(url: sa.URL) -> AsyncGenerator[asyncpg.Connection[Any]]:
    """Be a client of PostgreSQL of one's own."""
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


def new_own_key(
    server: ServerProcess, workspace_id: str, intern_id: str, *, payer_hash: str | None = None
) -> str:
    """Return a new key of an intern: a boot gives its key to the egress proxy alone.

    Args:
        server: The server.
        workspace_id: Where the intern is.
        intern_id: Its id.
        payer_hash: The key that answers for it.
    """
    key = f"sk-th-v1-{secrets.token_hex(32)}"
    key_hash = sha256(key.encode()).hexdigest()
    execute(server, _ADD_INTERNS_KEY, key_hash, key_hash, intern_id, payer_hash, workspace_id)
    return key


def journal_bytes(data_dir: Path) -> bytes:
    """Return the charges that servers' journals hold; nothing if all are booked and forgotten."""
    files = sorted((data_dir / "journal").rglob("?.log"))
    return b"".join(file.read_bytes().rstrip(b"\0") for file in files)


def cut_journal(data_dir: Path, count: int) -> None:
    """Cut the last bytes off a file of the journal, as a kill in the middle of a record would."""
    files = sorted((data_dir / "journal").rglob("?.log"))
    file = next(each for each in files if any(each.read_bytes()))
    file.write_bytes(file.read_bytes().rstrip(b"\0")[:-count])


async def _fetch(url: sa.URL, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
    async with connected(url) as connection:
        return [tuple(row) for row in await connection.fetch(statement, *parameters)]
