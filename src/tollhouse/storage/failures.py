"""How databases are named, and what is said when one, or the disk, fails.

disk full or read only, no more files, database locked or away   503: try again
anything else                                                    the program's own fault
"""

from __future__ import annotations

import errno
import re
import sqlite3
from typing import TYPE_CHECKING, Final

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tollhouse.kernel.errors import StartError, Unavailable
from tollhouse.storage.connections import DatabaseUnreachable

if TYPE_CHECKING:
    from pathlib import Path

# How SQLAlchemy begins the text of an asyncpg error.
_WRAPPED = re.compile(r"^<class '[\w.]+'>: ")
RETRY_SECONDS: Final = 5
_DISK: Final = frozenset(
    (
        *(errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO),
        *(errno.EMFILE, errno.ENFILE),
    )
)
_SQLITE: Final = frozenset(
    (
        *(sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL),
        *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN),
    )
)
"""Source: https://sqlite.org/rescode.html; the low byte is the primary code."""
_SQLSTATES: Final = ("08", "25006", "53", "55P03", "57P", "58030")
"""No connection, read only, out of resources, locked, shutting down, input or output.

Source: https://www.postgresql.org/docs/current/errcodes-appendix.html
"""


class StorageUnavailable(Unavailable):
    """Nothing can be stored or read now: the disk is full, the database locked or away."""

    def __init__(self) -> None:
        super().__init__(
            "The request cannot be stored or looked up now; try again in a few seconds.",
            retry_after=RETRY_SECONDS,
        )


def unavailable(error: BaseException) -> StorageUnavailable | None:
    """Return what a caller is told of a failure; None where it is not one of storage."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        passes = getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE
    elif isinstance(error, DBAPIError):
        state = str(getattr(cause, "sqlstate", None) or "")
        passes = error.connection_invalidated or state.startswith(_SQLSTATES)
    else:
        is_disk = isinstance(cause, OSError) and cause.errno in _DISK
        passes = is_disk or isinstance(cause, PoolTimeoutError | DatabaseUnreachable)
    return StorageUnavailable() if passes else None


def shown(url: sa.URL) -> str:
    """Return how a database is called in messages: its file, or its URL without a password."""
    if url.get_backend_name() == "sqlite":
        return f"the database {url.database}"
    # libpq takes passwords among the parameters too.
    query = {name: value for name, value in url.query.items() if "pass" not in name}
    plain = url.set(drivername="postgresql", query=query)
    return f"the database {plain.render_as_string(hide_password=True)}"


def reason(error: Exception) -> str:
    """Return the first line of what went wrong, without the statement and its values."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    lines = _WRAPPED.sub("", str(cause).strip()).splitlines()
    return lines[0] if lines else type(cause).__name__


def cannot_use(url: sa.URL, error: Exception) -> StartError:
    """Return the error of a database that cannot be reached or read."""
    if url.get_backend_name() == "sqlite":
        advice = "check that the file is a Tollhouse database and may be written"
    else:
        advice = "check the database URL and that the server runs"
    return StartError(f"{shown(url)} cannot be used ({reason(error)}): {advice}")


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
        raise StartError(
            "the database URL cannot be read; write it as postgresql://user:password@host:5432/name"
        ) from None
    drivers = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}
    driver = drivers.get(url.get_backend_name())
    if driver is None:
        raise StartError(
            f"the database {url.get_backend_name()!r} is not supported; use postgresql or sqlite"
        )
    if url.database is None and driver == "sqlite+aiosqlite":
        raise StartError("the database URL names no file; write it as sqlite:////path/to/file")
    return url.set(drivername=driver)
