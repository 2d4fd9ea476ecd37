"""How a database is named; light enough for a process that only migrates one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    from pathlib import Path

BUSY_TIMEOUT_MS = 2_000
"""How long a connection to an SQLite file waits for another one's lock.

An operation on interns or secrets has ten seconds and may stand behind two writers that wait as
long: it learns of the lock, not of its own time-out.
"""


def sqlite_url(path: Path) -> sa.URL:
    """Return the URL of an SQLite file."""
    return sa.URL.create("sqlite+aiosqlite", database=str(path))


def parse_database_url(text: str) -> sa.URL:
    """Return the URL of a database as an operator writes it.

    Raises:
        StartError: It is no URL, or of a database that we do not support.
    """
    try:
        url = sa.make_url(text)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        message = (
            "the database URL cannot be read; write it as postgresql://user:password@host:5432/name"
        )
        raise StartError(message) from None
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
    driver = drivers.get(url.get_backend_name())
    if driver is None:
        message = (
            f"the database {url.get_backend_name()!r} is not supported; use postgresql or sqlite"
        )
        raise StartError(message)
    if url.database is None and driver == "sqlite+aiosqlite":
        message = "the database URL names no file; write it as sqlite:////path/to/file"
        raise StartError(message)
    return url.set(drivername=driver)
