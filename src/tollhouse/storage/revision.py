"""Which revision a database's schema has, and which one this program needs.

The server compares the two and never loads the migrations, which would stay in its memory.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from tollhouse.kernel.start import StartError
from tollhouse.storage.failures import cannot_use, shown
from tollhouse.storage.urls import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    from tollhouse.storage.database import Database

HEAD: Final = "0014"
"""The newest revision in `storage.migrations`. Revisions are numbers and sort as text."""

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
    if found is None or found < HEAD:
        message = f"{shown(database.url)} is not up to date: run `tollhouse migrate` first"
        raise StartError(message)
    if found > HEAD:
        raise newer_than_program(database.url, found)


def newer_than_program(url: sa.URL, found: str) -> StartError:
    """Return the error of a schema that only a later release knows."""
    return StartError(
        f"{shown(url)} was made by a newer Tollhouse (its schema is {found}, this program knows "
        f"{HEAD}): update the program, or restore the backup made before the upgrade"
    )
