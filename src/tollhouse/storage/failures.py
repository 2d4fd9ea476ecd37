"""Failures of a database in one line for the person who starts the program."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from tollhouse.kernel.start import StartError

if TYPE_CHECKING:
    import sqlalchemy as sa

# How SQLAlchemy begins the text of an asyncpg error.
_WRAPPED = re.compile(r"^<class '[\w.]+'>: ")


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
