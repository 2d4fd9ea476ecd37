"""State that no request can make, and state that none shows: SQL on the tables, and files.

A server may be running meanwhile. Everything else goes through its front door.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from contextlib import asynccontextmanager, closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import asyncpg
import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

_WAIT_SECONDS: Final = 30
_ADD_INTERNS_KEY: Final = """
    INSERT INTO api_keys (hash, secret_hash, kind, operator, account_id, workspace_id, intern_id,
                          payer_hash, name, label, disabled, created_at)
    SELECT '{hash}', '{hash}', 'intern', false, account_id, id, '{intern}', {payer},
           'An intern''s own', 'sk-th-v1-abc...xyz', false, created_at
    FROM workspaces WHERE id = '{workspace}'"""


def execute(database: Path | sa.URL, statement: str, *parameters: object) -> None:
    """Change rows of an SQLite file, with `?`, or of a PostgreSQL database, with `$1`."""
    if isinstance(database, Path):
        connecting = sqlite3.connect(database, timeout=_WAIT_SECONDS, isolation_level=None)
        with closing(connecting) as connection:
            connection.execute(statement, parameters)
    else:
        asyncio.run(_execute(database, statement, *parameters))


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
    data_dir: Path,
    workspace_id: str,
    intern_id: str,
    *,
    payer_hash: str | None = None,
    database: str | None = None,
) -> str:
    """Return a new key of an intern: a boot gives its key to the egress proxy alone.

    Args:
        data_dir: The server's data folder.
        workspace_id: Where the intern is.
        intern_id: Its id.
        payer_hash: The key that answers for it.
        database: The URL of the server's database, where that is not in its data folder.
    """
    key = f"sk-th-v1-{secrets.token_hex(32)}"
    statement = _ADD_INTERNS_KEY.format(
        hash=sha256(key.encode()).hexdigest(),
        intern=intern_id,
        payer="NULL" if payer_hash is None else f"'{payer_hash}'",
        workspace=workspace_id,
    )
    file = data_dir / "tollhouse.db"
    execute(file if database is None else sa.make_url(database), statement)
    return key


def journal_bytes(data_dir: Path) -> bytes:
    """Return the charges that a server's journal holds; nothing if all are booked and forgotten."""
    files = sorted((data_dir / "journal").glob("?.log"))
    return b"".join(file.read_bytes().rstrip(b"\0") for file in files)


def cut_journal(data_dir: Path, count: int) -> None:
    """Cut the last bytes off a file of the journal, as a kill in the middle of a record would."""
    files = sorted((data_dir / "journal").glob("?.log"))
    file = next(each for each in files if any(each.read_bytes()))
    file.write_bytes(file.read_bytes().rstrip(b"\0")[:-count])


async def _execute(url: sa.URL, statement: str, *parameters: object) -> None:
    async with connected(url) as connection:
        await connection.execute(statement, *parameters)
