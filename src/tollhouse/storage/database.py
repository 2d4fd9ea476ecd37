"""The database, SQLite or PostgreSQL, behind two verbs: `reading` and `writing`.

    async with database.reading() as read: ...      # a snapshot; cannot write
    async with database.writing() as write: ...     # commits at the end, rolls back on an error

The edge (a request, a command) opens and commits; services take a `Read` or a `Write` and commit
nothing.

On SQLite there is exactly one writer: a single connection that begins `IMMEDIATE`, taken under
`write_lock`. Whoever writes past SQLAlchemy (the settler, for the books) takes the same lock.
Readers have connections of their own that cannot write. On PostgreSQL the lock is not used.

Who remembers something of the database is told of changes: see `notifications`.

The engines are those of `sqlalchemy.ext.asyncio`, called in the same way (`greenlet_spawn`) without
that package, which loads the ORM: 70 ms and 6 MB.

Source: https://sqlite.org/wal.html, https://sqlite.org/pragma.html,
https://docs.sqlalchemy.org/en/20/orm/extensions/asyncio.html
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy import Executable, event
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.util import greenlet_spawn

from tollhouse.kernel.errors import Invalid
from tollhouse.storage.connections import BUSY_TIMEOUT_MS
from tollhouse.storage.notifications import VERSIONS, Notifications

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy.dialects import postgresql as pg
    from sqlalchemy.engine import CursorResult

    from tollhouse.storage.notifications import Topic

    Values = tuple[Any, ...] | Mapping[str, Any]
    Parameters = Values | Sequence[Values]

_T = TypeVar("_T")
_READERS: Final = 4
_POSTGRESQL_POOL: Final = 10
_POSTGRESQL_APART: Final = 2
_CHARACTER_NOT_IN_REPERTOIRE: Final = "22021"
_BEGIN: Final = "BEGIN IMMEDIATE"
_LOCKED_SECONDS: Final = BUSY_TIMEOUT_MS / 2000
"""How long a writer has waited who need not find out anew that the file is locked."""


class Read:
    """A consistent view of the database."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection

    @property
    def dialect(self) -> str:
        """The database's name: `sqlite` or `postgresql`."""
        return self._connection.dialect.name

    async def execute(self, statement: Executable) -> CursorResult[Any]:
        """Run one statement and return its buffered result.

        Raises:
            Invalid: A text holds U+0000, which PostgreSQL cannot store.
        """
        try:
            return await self._run(self._connection.execute, statement)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) == _CHARACTER_NOT_IN_REPERTOIRE:
                raise Invalid("A text must not contain the character U+0000.") from None
            raise

    async def _run(self, call: Callable[..., _T], *given: object) -> _T:
        return await greenlet_spawn(call, *given)


class Write(Read):
    """A transaction that can change things; it commits where it was opened."""

    def __init__(self, connection: sa.Connection, notifications: Notifications) -> None:
        super().__init__(connection)
        self._notifications = notifications
        self._notices: dict[Topic, dict[str, None]] = {}
        self._after_commit: list[Callable[[], None]] = []

    async def execute_raw(self, statement: str, parameters: Parameters) -> CursorResult[Any]:
        """Run a statement in the words of the database's driver, with values as it stores them.

        They are those of one row, or a list with those of each row.
        """
        return await self._run(self._connection.exec_driver_sql, statement, parameters)

    async def begin(self) -> None:
        """Begin; called by the one who opens the transaction."""
        await self._run(self._connection.begin)

    async def alone(self, purpose: int) -> None:
        """Wait until no other write transaction has the same purpose, and keep others waiting.

        The purpose is any number. On SQLite every write transaction is alone. The right ends with
        the transaction.
        """
        if self.dialect == "postgresql":
            await self.execute(sa.select(sa.func.pg_advisory_xact_lock(purpose)))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Drop what the change makes stale (a cache entry, say), once it is durable.

        The action also runs where the commit failed or its outcome is not known: it has to be
        harmless then, and must not raise.
        """
        self._after_commit.append(action)

    def notify(self, topic: Topic, ref: str) -> None:
        """Tell whoever remembers it, in any process, that something has changed.

        Here they are told when actions `after_commit` run, on the same terms.
        """
        self._notices.setdefault(topic, {})[ref] = None
        self.after_commit(partial(self._notifications.tell, topic, ref))

    async def commit(self) -> None:
        """Commit, and do what waits for that; called by the one who opened the transaction."""
        notices = self._notices
        told = await self._notifications.publish(self.execute, notices) if notices else ()
        try:
            await _to_the_end(greenlet_spawn(self._connection.commit))
        finally:
            for action in self._after_commit:
                action()
        self._notifications.sent(told)

    async def _run(self, call: Callable[..., _T], *given: object) -> _T:
        """Wait for a statement on SQLite also where the caller is cancelled.

        Its thread has it already, and a connection that is closed then keeps the file locked for as
        long as anybody has the statement's cursor: a traceback does.
        """
        if self.dialect == "sqlite":
            return await _to_the_end(greenlet_spawn(call, *given))
        return await super()._run(call, *given)


def insert(write: Write, table: sa.Table) -> pg.Insert | sqlite.Insert:
    """Return an INSERT that takes `on_conflict_do_nothing` and `on_conflict_do_update`.

    Both databases have it, and SQLAlchemy spells it once for each.
    """
    if write.dialect != "postgresql":
        return sqlite.insert(table)
    # Imported here: who has an SQLite file saves its 20 ms and 2 MB.
    from sqlalchemy.dialects import postgresql as pg  # noqa: PLC0415

    return pg.insert(table)


class Database:
    """Opened engines and the rule of who may write when."""

    def __init__(
        self, url: sa.URL, readers: sa.Engine, writer: sa.Engine, apart: sa.Engine
    ) -> None:
        self._apart = apart
        self.url = url
        self.notifications = Notifications(url)
        self.write_lock = asyncio.Lock()
        self._readers = readers
        self._writer = writer
        self._locked: tuple[float, BaseException] | None = None
        """When no transaction could begin last, and why."""

    @property
    def dialect(self) -> str:
        """The database's name: `sqlite` or `postgresql`."""
        return self.url.get_backend_name()

    @asynccontextmanager
    async def reading(self) -> AsyncGenerator[Read]:
        """Open a read transaction."""
        async with _connected(self._readers) as connection:
            yield Read(connection)

    @asynccontextmanager
    async def reading_apart(self) -> AsyncGenerator[Read]:
        """Open a read transaction that no long one keeps waiting; for short ones alone."""
        async with _connected(self._apart) as connection:
            yield Read(connection)

    @asynccontextmanager
    async def writing(self) -> AsyncGenerator[Write]:
        """Open the write transaction; commit at the end, roll back on any error.

        A commit that has begun is waited for, also by a caller that is cancelled meanwhile, so
        that what follows it (a revoked key is forgotten) cannot be skipped.

        Who has waited on SQLite while another one learnt that the file is locked waits no second
        time.
        """
        turn = self.write_lock if self.dialect == "sqlite" else nullcontext()
        loop = asyncio.get_running_loop()
        arrived = loop.time()
        async with turn, AsyncExitStack() as opened:
            waited = loop.time() - arrived
            if self._locked and arrived < self._locked[0] and waited >= _LOCKED_SECONDS:
                raise OperationalError(_BEGIN, None, self._locked[1])
            try:
                connection = await opened.enter_async_context(_connected(self._writer))
                write = Write(connection, self.notifications)
                await write.begin()
            except OperationalError as error:
                if error.orig is not None:
                    self._locked = loop.time(), error.orig
                raise
            yield write
            await write.commit()

    def hear_others(self, name: str, folder: Path | None = None) -> None:
        """Hear other processes' notifications until `close`: see `Notifications.start`."""

        async def versions() -> Mapping[str, int]:
            async with self.reading_apart() as read:
                found = await read.execute(sa.text(VERSIONS))
                return {row.name: row.version for row in found}

        self.notifications.start(name, folder, versions)

    async def ping(self) -> None:
        """Return if the database answers; raise what its driver raises if not."""
        async with self.reading() as read:
            await read.execute(sa.select(1))

    async def close(self) -> None:
        """Close every connection."""
        await self.notifications.stop()
        for engine in (self._writer, self._readers, self._apart):
            await greenlet_spawn(engine.dispose)


def open_database(url: sa.URL) -> Database:
    """Make the engines of a database; connections open when they are first needed."""
    if url.get_backend_name() == "sqlite":
        readers, apart = _sqlite_engine(url, writer=False), _sqlite_engine(url, writer=False)
        return Database(url, readers, _sqlite_engine(url, writer=True), apart)
    # Imported here: who has an SQLite file saves its driver, 40 ms and 4 MB.
    from tollhouse.storage import postgresql  # noqa: PLC0415

    engine = postgresql.engine(url, pool_size=_POSTGRESQL_POOL, pool_pre_ping=True).sync_engine
    # The same pool; a page and its total come from one snapshot.
    options: dict[str, Any] = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    apart = postgresql.engine(url, pool_size=_POSTGRESQL_APART, pool_pre_ping=True).sync_engine
    return Database(
        url, engine.execution_options(**options), engine, apart.execution_options(**options)
    )


def _sqlite_engine(url: sa.URL, *, writer: bool) -> sa.Engine:
    engine = sa.create_engine(
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
            cursor.execute("PRAGMA temp_store = MEMORY")  # sums of charges; no folder for files
        else:
            cursor.execute("PRAGMA query_only = ON")
        cursor.close()

    def begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(_BEGIN if writer else "BEGIN")

    event.listen(engine, "connect", prepare)
    event.listen(engine, "begin", begin)
    return engine


@asynccontextmanager
async def _connected(engine: sa.Engine) -> AsyncGenerator[sa.Connection]:
    """Take a connection, and give it back to the pool also where the caller is cancelled."""
    connection: sa.Connection = await greenlet_spawn(engine.connect)
    try:
        yield connection
    finally:
        await _to_the_end(greenlet_spawn(connection.close))


async def _to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
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
    return task.result()
