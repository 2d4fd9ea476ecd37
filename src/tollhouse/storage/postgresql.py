"""How a PostgreSQL connection is opened: from the URL as the operator wrote it.

`asyncpg` reads it as libpq would (`sslmode`, `application_name`, `target_session_attrs`, several
hosts, PGPASSFILE), for SQLAlchemy's engines and for the books' own connection alike.

Source: https://www.postgresql.org/docs/current/libpq-connect.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from zlib import crc32

from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tollhouse.storage.connections import STATEMENT_SECONDS, dsn
from tollhouse.storage.postgresql_connection import open_connection

if TYPE_CHECKING:
    import asyncpg
    import sqlalchemy as sa

_SERVING = (0x746F6C6C, 0x73727665)
"""The advisory lock that every server of a database shares."""
_JOINING = (0x746F6C6C, 0x6A6F696E)
"""The one that is held by who looks whether others are there."""
_FILES = 0x746F6C66
"""The class of those that name where a server's files are."""
_LOST_SECONDS = (20, 5, 4)
"""When PostgreSQL asks a silent server whether it is there, how long between two questions, and
after how many it is gone: a machine that lost its power keeps its successor out for 40 seconds."""


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


async def join_servers(
    url: sa.URL, files: str | None = None
) -> tuple[asyncpg.Connection[asyncpg.Record], int, int]:
    """Say that this process serves a database, and return how many other processes say the same.

    The second number is how many of them have their files elsewhere: `files` names the place of
    ours, None one that nobody else can reach. It is said for as long as the connection, which is
    returned too, is open. Of two that join at once the second sees the first.

    Raises:
        DatabaseUnreachable: The server cannot be reached.
        asyncpg.PostgresError: It refuses us.
    """
    connection = await connect(url)
    place = 0 if files is None else crc32(files.encode()) >> 1 or 1
    try:
        for name, value in zip(("idle", "interval", "count"), _LOST_SECONDS, strict=True):
            await connection.execute(f"SET tcp_keepalives_{name} = {value}")
        await connection.execute("SELECT pg_advisory_lock($1, $2)", *_JOINING)
        await connection.execute("SELECT pg_advisory_lock_shared($1, $2)", *_SERVING)
        await connection.execute("SELECT pg_advisory_lock_shared($1, $2)", _FILES, place)
        [found] = await connection.fetch(
            "SELECT count(*) FILTER (WHERE classid = $1::oid AND objid = $2::oid), "
            "count(*) FILTER (WHERE classid = $3::oid AND (objid <> $4::oid OR $4::oid = 0::oid)) "
            "FROM pg_locks JOIN pg_database ON pg_database.oid = pg_locks.database "
            "WHERE datname = current_database() AND locktype = 'advisory' AND granted "
            "AND objsubid = 2 AND pid <> pg_backend_pid()",
            *_SERVING,
            _FILES,
            place,
        )
        await connection.execute("SELECT pg_advisory_unlock($1, $2)", *_JOINING)
    except BaseException:
        await connection.close()
        raise
    return connection, int(found[0]), int(found[1])


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
