"""How a PostgreSQL connection is opened: from the URL as the operator wrote it.

`asyncpg` reads it as libpq would (`sslmode`, `application_name`, `target_session_attrs`, several
hosts, PGPASSFILE), for SQLAlchemy's engines and for the books' own connection alike.

Source: https://www.postgresql.org/docs/current/libpq-connect.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tollhouse.storage.connections import STATEMENT_SECONDS, dsn
from tollhouse.storage.postgresql_connection import open_connection

if TYPE_CHECKING:
    import asyncpg
    import sqlalchemy as sa

_SERVING = (0x746F6C6C, 0x73727665)
"""The advisory lock that every server of a database shares."""


async def connect(
    url: sa.URL, statement_seconds: float | None = STATEMENT_SECONDS
) -> asyncpg.Connection[asyncpg.Record]:
    """Open a connection on which a statement may take so many seconds; None for ever.

    Raises:
        DatabaseUnreachable: The server cannot be reached.
        asyncpg.PostgresError: It refuses us.
        asyncpg.InterfaceError: The URL holds something that the driver does not take.
    """
    return await open_connection(dsn(url), statement_seconds)


async def join_servers(url: sa.URL) -> tuple[asyncpg.Connection[asyncpg.Record], int]:
    """Say that this process serves a database, and return how many other processes say the same.

    It is said for as long as the connection, which is returned too, is open.

    Raises:
        DatabaseUnreachable: The server cannot be reached.
        asyncpg.PostgresError: It refuses us.
    """
    connection = await connect(url)
    try:
        await connection.execute("SELECT pg_advisory_lock_shared($1, $2)", *_SERVING)
        others = await connection.fetchval(
            "SELECT count(*) FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
            "WHERE datname = current_database() AND locktype = 'advisory' AND classid = $1::oid "
            "AND objid = $2::oid AND objsubid = 2 AND pid <> pg_backend_pid()",
            *_SERVING,
        )
    except BaseException:
        await connection.close()
        raise
    return connection, others


def engine(
    url: sa.URL,
    statement_seconds: float | None = STATEMENT_SECONDS,
    **options: Any,  # noqa: ANN401 - SQLAlchemy's
) -> AsyncEngine:
    """Make an engine whose connections are opened by `connect`."""

    async def open_connection() -> asyncpg.Connection[asyncpg.Record]:
        return await connect(url, statement_seconds)

    # SQLAlchemy would refuse what it does not know in the query; the creator has the whole URL.
    plain = url.set(query={})
    return create_async_engine(plain, async_creator=open_connection, **options)
