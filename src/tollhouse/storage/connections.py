"""What every connection to a database has in common, for processes without SQLAlchemy too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import sqlalchemy as sa

BUSY_TIMEOUT_MS: Final = 2_000
"""How long a connection to an SQLite file waits for another one's lock.

An operation on interns or secrets has ten seconds and may stand behind two writers that wait as
long: it learns of the lock, not of its own time-out.
"""
STATEMENT_SECONDS: Final = 60.0
"""How long a statement on PostgreSQL may take."""
CONNECT_SECONDS: Final = 10.0


class DatabaseUnreachable(ConnectionError):
    """No connection to the database's server can be opened."""


def dsn(url: sa.URL) -> str:
    """Return the URL of a PostgreSQL database as asyncpg takes it, with its password."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)
