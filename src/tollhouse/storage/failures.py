"""Failures of what stores things: what a caller is told, and a line for whoever runs the program.

disk full or read only, no more files, database locked or away   503: try again
anything else                                                    the program's own fault
"""

from __future__ import annotations

import errno
import re
import sqlite3
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from tollhouse.kernel.errors import Unavailable
from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    import sqlalchemy as sa

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


class DatabaseUnreachable(ConnectionError):
    """No connection to the database's server can be opened."""


class StorageUnavailable(Unavailable):
    """Nothing can be stored or read now: the disk is full, the database locked or away."""

    def __init__(self) -> None:
        """Tell the caller to come back."""
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
