"""Which revision a database's schema has, which one this program needs, and the way there.

The server compares the two and never loads the migrations nor Alembic, which would stay in its
memory: they run in a child process. A new SQLite file gets the schema that all of them together
make, from `schema.sql`, since a first start would wait most of a second for that child.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from tollhouse.kernel.errors import StartError
from tollhouse.kernel.subprocesses import kill, own_module, start
from tollhouse.storage.connections import BUSY_TIMEOUT_MS
from tollhouse.storage.failures import cannot_use, shown

if TYPE_CHECKING:
    from tollhouse.storage.database import Database

HEAD: Final = "r0010"
"""The newest revision in `storage.migrations`. Revisions sort as text.

The `r` sets them apart from `0001` to `0015`, which databases of checkouts had before the baseline.
"""

BASELINE: Final = "r0001"
BEFORE_BASELINE: Final = {"0014": "ALTER TABLE batches ADD COLUMN compress_at BIGINT", "0015": None}
"""The last revisions before the baseline, with what each schema lacks of the baseline's."""

_SCHEMA: Final = Path(__file__).with_name("schema.sql")
_SELECT = "SELECT version_num FROM alembic_version"


async def current(database: Database) -> str | None:
    """Return the revision of a database's schema; None where it has none yet.

    Raises:
        StartError: The database cannot be reached or read.
    """
    try:
        if database.dialect == "sqlite":
            return await asyncio.to_thread(_of_file, Path(str(database.url.database)))
        return await _of_server(database)
    except Exception as error:  # an edge: whatever the driver could not do stops the start
        raise cannot_use(database.url, error) from error


def _of_file(path: Path) -> str | None:
    # Plain sqlite3: a connection of aiosqlite that fails to open leaves a thread with a traceback.
    if not path.exists():
        return None
    with closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_MS / 1000)) as connection:
        named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
        if connection.execute(named).fetchone() is None:
            return None
        row = connection.execute(_SELECT).fetchone()
        return None if row is None else row[0]


async def _of_server(database: Database) -> str | None:
    async with database.reading() as read:
        named = sa.text("SELECT 1 WHERE to_regclass('alembic_version') IS NOT NULL")
        if (await read.execute(named)).first() is None:
            return None
        return (await read.execute(sa.text(_SELECT))).scalar_one_or_none()


async def require_head(database: Database) -> None:
    """Make sure that a database has the schema that this program needs.

    Raises:
        StartError: It is older or newer, or it cannot be read.
    """
    found = await current(database)
    if is_behind(database.url, found):
        raise StartError(f"{shown(database.url)} is not up to date: run `tollhouse migrate` first")


def is_behind(url: sa.URL, found: str | None) -> bool:
    """Tell whether migrations have to bring a database to the schema of this program.

    Raises:
        StartError: They cannot.
    """
    if found is None or found in BEFORE_BASELINE:
        return True
    if not BASELINE <= found <= HEAD:
        raise unknown(url, found)
    return found < HEAD


def unknown(url: sa.URL, found: str) -> StartError:
    """Return the error of a schema that this program cannot bring to its own."""
    if found < BASELINE:
        return StartError(
            f"{shown(url)} was made by a Tollhouse from before the first release (its schema is "
            f"{found}): run `tollhouse migrate` of commit b11b2ce, the last that can upgrade it, "
            "or begin with an empty database"
        )
    return StartError(
        f"{shown(url)} was made by a newer Tollhouse (its schema is {found}, this program knows "
        f"{HEAD}): update the program, or restore the backup made before the upgrade"
    )


async def create_schema(database: Database) -> bool:
    """Give an SQLite file its whole schema; tell whether there was nothing in it, nor a file.

    Raises:
        StartError: The file cannot be written; it is as it was.
    """
    try:
        return await asyncio.to_thread(_create, Path(str(database.url.database)))
    except (OSError, sqlite3.Error) as error:
        raise cannot_use(database.url, error) from error


def _create(path: Path) -> bool:
    timeout = BUSY_TIMEOUT_MS / 1000
    with closing(sqlite3.connect(path, timeout, isolation_level=None)) as connection:
        if connection.execute("SELECT 1 FROM sqlite_master").fetchone() is not None:
            return False
        connection.execute("PRAGMA journal_mode = WAL")
        # One transaction, which is rolled back if the connection closes before its end.
        connection.executescript(_SCHEMA.read_text(encoding="utf-8"))
        return True


async def upgrade_in_child(url: sa.URL) -> None:
    """Apply the migrations that a database lacks, in a process of its own.

    Raises:
        StartError: The database cannot be used, is newer than this program, or a migration
            failed. The database is as it was.
    """
    child = await start(
        *own_module("tollhouse.storage.migrator"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        # On standard input: others can read arguments and environment, and it holds a password.
        _, said = await child.communicate(url.render_as_string(hide_password=False).encode())
    except asyncio.CancelledError:
        await kill(child)
        raise
    if child.returncode == 0:
        return
    text = said.decode(errors="replace").strip()
    if child.returncode == StartError.exit_code and text:
        raise StartError(text)
    last = text.splitlines()[-1] if text else f"exit code {child.returncode}"
    raise StartError(
        f"the migration of {shown(url)} broke off ({last}): run `tollhouse migrate` to see why"
    )
