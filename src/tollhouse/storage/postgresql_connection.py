"""Opens connections to PostgreSQL, without SQLAlchemy."""

from __future__ import annotations

import asyncpg

from tollhouse.storage.connections import CONNECT_SECONDS, STATEMENT_SECONDS, DatabaseUnreachable


async def open_connection(
    dsn: str, statement_seconds: float | None = STATEMENT_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """Open a connection on which a statement may take so many seconds; None for ever.

    Raises:
        DatabaseUnreachable: The server cannot be reached.
        asyncpg.PostgresError: It refuses us.
        asyncpg.InterfaceError: The URL holds something that the driver does not take.
    """
    try:
        return await asyncpg.connect(
            dsn, timeout=CONNECT_SECONDS, command_timeout=statement_seconds
        )
    except OSError as error:
        raise DatabaseUnreachable(*error.args) from error
