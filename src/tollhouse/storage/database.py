"""The database, SQLite or PostgreSQL, behind two verbs: `reading` and `writing`.

On SQLite there is exactly one writer: a single connection that begins `IMMEDIATE`, taken under
`write_lock`. Whoever writes past SQLAlchemy (the settler's plain `sqlite3`) takes the same lock.
Readers have connections of their own that cannot write. On PostgreSQL the lock is not used.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from tollhouse.storage import postgresql
from tollhouse.storage.transaction import Read, Write
from tollhouse.storage.urls import BUSY_TIMEOUT_MS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine
    from contextlib import AbstractAsyncContextManager

_READERS = 4
_POSTGRESQL_POOL = 10
_POSTGRESQL_APART = 2


class Database:
    """Opened engines and the rule of who may write when."""

    def __init__(
        self, url: sa.URL, readers: AsyncEngine, writer: AsyncEngine, apart: AsyncEngine
    ) -> None:
        """Take engines that `open_database` made."""
        self._apart = apart
        self.url = url
        self.write_lock = asyncio.Lock()
        self._readers = readers
        self._writer = writer

    @property
    def dialect(self) -> str:
        """The database's name: `sqlite` or `postgresql`."""
        return self.url.get_backend_name()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Read]:
        """Open a read transaction."""
        async with self._readers.connect() as connection:
            yield Read(connection)

    @asynccontextmanager
    async def reading_apart(self) -> AsyncGenerator[Read]:
        """Open a read transaction that no long one keeps waiting; for short ones alone."""
        async with self._apart.connect() as connection:
            yield Read(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[Write]:
        """Open the write transaction; commit at the end, roll back on any error.

        A commit that has begun is waited for, also by a caller that is cancelled meanwhile, so
        that what follows it (a revoked key is forgotten) cannot be skipped.
        """
        async with self._turn(), self._writer.connect() as connection:
            await connection.begin()
            write = Write(connection)
            yield write
            try:
                await _to_the_end(connection.commit())
            finally:
                write.committed()

    def _turn(self) -> AbstractAsyncContextManager[object]:
        return self.write_lock if self.dialect == "sqlite" else nullcontext()

    async def ping(self) -> None:
        """Return if the database answers.

        Raises:
            Exception: It does not.
        """
        async with self.reading() as read:
            await read.execute(sa.select(1))

    async def close(self) -> None:
        """Close every connection."""
        await self._writer.dispose()
        await self._readers.dispose()
        await self._apart.dispose()


def open_database(url: sa.URL) -> Database:
    """Make the engines of a database; connections open when they are first needed."""
    if url.get_backend_name() == "sqlite":
        readers, apart = _sqlite_engine(url, writer=False), _sqlite_engine(url, writer=False)
        return Database(url, readers, _sqlite_engine(url, writer=True), apart)
    engine = postgresql.engine(url, pool_size=_POSTGRESQL_POOL, pool_pre_ping=True)
    # The same pool; a page and its total come from one snapshot.
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    apart = postgresql.engine(url, pool_size=_POSTGRESQL_APART, pool_pre_ping=True)
    return Database(
        url,
        engine.execution_options(**options),
        engine,
        apart.execution_options(**options),
    )


def _sqlite_engine(url: sa.URL, *, writer: bool) -> AsyncEngine:
    engine = create_async_engine(
        url,
        pool_size=1 if writer else _READERS,
        max_overflow=0,
        connect_args={"isolation_level": None, "timeout": BUSY_TIMEOUT_MS / 1000},
    )

    def prepare(connection: Any, _record: object) -> None:  # noqa: ANN401 - DBAPI is untyped
        cursor = connection.cursor()
        cursor.execute("PRAGMA foreign_keys = ON")
        if writer:
            cursor.execute("PRAGMA journal_mode = WAL")
            cursor.execute("PRAGMA synchronous = FULL")
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writer else "BEGIN")

    event.listen(engine.sync_engine, "connect", prepare)
    event.listen(engine.sync_engine, "begin", begin)
    return engine


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    interrupted: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            interrupted = error
    if interrupted is not None:
        _ = task.cancelled() or task.exception()  # looked at, so that nobody logs it as lost
        raise interrupted
    task.result()
