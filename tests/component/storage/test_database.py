"""Who may write when, what is seen meanwhile, and what follows a commit."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.util import await_only

from tests.support.clock import START
from tests.support.waiting import take_turns
from tollhouse.kernel.errors import Invalid
from tollhouse.storage import postgresql
from tollhouse.storage.database import Database, Read, open_database
from tollhouse.storage.failures import StorageUnavailable, unavailable
from tollhouse.storage.tables.identity import accounts, users

SLOW = sa.text(
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 400000)"
    " SELECT count(*) FROM n"
)
"""A tenth of a second."""


def account(name: str) -> sa.Insert:
    return sa.insert(accounts).values(id=name, name=name, created_at=START)


async def names(read: Read) -> list[str]:
    rows = await read.execute(sa.select(accounts.c.name).order_by(accounts.c.name))
    return list(rows.scalars())


async def write_and_fail(
    database: Database, statement: sa.Insert, afterwards: Callable[[], None] | None = None
) -> None:
    async with database.writing() as write:
        if afterwards is not None:
            write.after_commit(afterwards)
        await write.execute(statement)
        raise RuntimeError


async def stored(database: Database) -> list[str]:
    async with database.reading() as read:
        return await names(read)


@pytest.fixture
async def on_sqlite(migrated_sqlite: sa.URL) -> AsyncIterator[Database]:
    opened = open_database(migrated_sqlite)
    yield opened
    await opened.close()


@pytest.fixture
async def on_postgresql(migrated_postgresql: sa.URL) -> AsyncIterator[Database]:
    opened = open_database(migrated_postgresql)
    yield opened
    await opened.close()


class TestReading:
    async def test_cannot_write(self, database: Database) -> None:
        with pytest.raises(DBAPIError):
            async with database.reading() as read:
                await read.execute(account("a"))
        assert await stored(database) == []

    async def test_sees_one_state_from_its_first_statement_on(self, database: Database) -> None:
        async with database.reading() as read:
            assert await names(read) == []
            async with database.writing() as write:
                await write.execute(account("a"))
            assert await names(read) == []
        assert await stored(database) == ["a"]

    async def test_does_not_wait_for_a_writer(self, database: Database) -> None:
        async with database.writing() as write:
            await write.execute(account("a"))
            assert await stored(database) == []

    async def test_gives_the_connections_of_cancelled_readers_back(
        self, database: Database
    ) -> None:
        async def read_for_ever() -> None:
            async with database.reading() as read:
                await names(read)
                reading.release()
                await asyncio.Event().wait()

        for _ in range(3):
            reading = asyncio.Semaphore(0)
            tasks = [asyncio.create_task(read_for_ever()) for _ in range(4)]
            for _ in tasks:
                await reading.acquire()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(5):
            await database.ping()

    async def test_gives_many_readers_their_turn(self, database: Database) -> None:
        assert await asyncio.gather(*(stored(database) for _ in range(30))) == [[]] * 30


class TestWriting:
    async def test_goes_on_after_an_error(self, database: Database) -> None:
        with pytest.raises(RuntimeError):
            await write_and_fail(database, account("a"))
        async with database.writing() as write:
            await write.execute(account("b"))
        assert await stored(database) == ["b"]

    async def test_keeps_foreign_keys(self, database: Database) -> None:
        orphan = sa.insert(users).values(id="u", account_id="x", name="U", created_at=START)
        with pytest.raises(IntegrityError):
            async with database.writing() as write:
                await write.execute(orphan)

    async def test_many_at_once_wait_for_each_other(self, database: Database) -> None:
        async def add(name: str) -> None:
            async with database.writing() as write:
                await names(write)
                await asyncio.sleep(0)
                await write.execute(account(name))

        wanted = [f"{number:02}" for number in range(30)]
        await asyncio.gather(*map(add, wanted))
        assert await stored(database) == wanted

    @pytest.mark.postgresql
    async def test_refuses_u0000_where_the_database_cannot_store_it(
        self, on_postgresql: Database
    ) -> None:
        with pytest.raises(Invalid, match=r"U\+0000"):
            async with on_postgresql.writing() as write:
                await write.execute(account("a\0"))

    async def test_leaves_no_lock_behind_when_it_is_cancelled(self, database: Database) -> None:
        """Between two statements and in the middle of one, whoever keeps the traceback."""
        for statement in (None, SLOW):
            begun = asyncio.Event()

            async def write_and_wait(statement: sa.TextClause | None, begun: asyncio.Event) -> None:
                async with database.writing() as write:
                    await write.execute(account("a"))
                    begun.set()
                    await (
                        asyncio.Event().wait() if statement is None else write.execute(statement)
                    )

            task = asyncio.create_task(write_and_wait(statement, begun))
            await begun.wait()
            await take_turns()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with database.writing() as write:
                await write.execute(account("b" if statement is None else "c"))
        assert await stored(database) == ["b", "c"]


class TestAfterCommit:
    async def test_runs_once_the_change_is_durable(self, database: Database) -> None:
        calls: list[str] = []
        async with database.writing() as write:
            write.after_commit(lambda: calls.append("done"))
            await write.execute(account("a"))
            assert calls == []
        assert calls == ["done"]

    async def test_does_not_run_after_a_rollback(self, database: Database) -> None:
        calls: list[str] = []
        with pytest.raises(RuntimeError):
            await write_and_fail(database, account("a"), lambda: calls.append("done"))
        assert calls == []

    async def test_runs_although_the_caller_is_cancelled_during_the_commit(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        calls: list[str] = []
        committing, go_on = asyncio.Event(), asyncio.Event()
        commit = sa.Connection.commit

        def slow_commit(connection: sa.Connection) -> None:
            committing.set()
            await_only(go_on.wait())
            commit(connection)

        monkeypatch.setattr(sa.Connection, "commit", slow_commit)

        async def change() -> None:
            async with database.writing() as write:
                write.after_commit(lambda: calls.append("done"))
                await write.execute(account("a"))

        task = asyncio.create_task(change())
        await committing.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert calls == ["done"]
        assert await stored(database) == ["a"]

    async def test_runs_where_nobody_knows_whether_the_commit_succeeded(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lost(_: object) -> None:
            raise ConnectionResetError

        calls: list[str] = []

        async def change() -> None:
            async with database.writing() as write:
                write.after_commit(lambda: calls.append("done"))
                await write.execute(account("a"))

        monkeypatch.setattr(sa.Connection, "commit", lost)
        with pytest.raises(ConnectionResetError):
            await change()
        assert calls == ["done"]


class TestSqlite:
    async def test_a_file_serves_two_connections_of_one_process(self, on_sqlite: Database) -> None:
        path = str(on_sqlite.url.database)
        other = sqlite3.connect(path)
        async with on_sqlite.reading() as read:
            assert await names(read) == []
            with other:
                other.execute("INSERT INTO accounts (id, name, created_at) VALUES ('a', 'a', 0)")
            other.close()
        assert await stored(on_sqlite) == ["a"]

    async def test_a_writer_keeps_other_processes_from_writing_from_its_first_read_on(
        self, on_sqlite: Database
    ) -> None:
        async with on_sqlite.writing() as write:
            assert await names(write) == []
            other = sqlite3.connect(str(on_sqlite.url.database), timeout=0)
            with pytest.raises(sqlite3.OperationalError, match="database is locked"):
                other.execute("INSERT INTO accounts (id, name, created_at) VALUES ('b', 'b', 0)")
            other.close()
            await write.execute(account("a"))
        assert await stored(on_sqlite) == ["a"]

    async def test_a_closed_database_leaves_one_file(
        self, on_sqlite: Database, migrated_sqlite: sa.URL
    ) -> None:
        async with on_sqlite.writing() as write:
            await write.execute(account("a"))
        await on_sqlite.close()
        path = Path(str(migrated_sqlite.database))
        assert [file.name for file in path.parent.iterdir()] == [path.name]

    async def test_a_commit_is_durable(self, on_sqlite: Database) -> None:
        async with on_sqlite.writing() as write:
            synchronous = await write.execute(sa.text("PRAGMA synchronous"))
            assert synchronous.scalar_one() == 2


@pytest.mark.postgresql
async def test_postgresql_takes_the_parameters_of_libpq(migrated_postgresql: sa.URL) -> None:
    url = migrated_postgresql.update_query_dict(
        {"sslmode": "disable", "application_name": "toll gate"}
    )
    database = open_database(url)
    async with database.reading() as read:
        shown = await read.execute(sa.text("SHOW application_name"))
        assert shown.scalar_one() == "toll gate"
    await database.close()


@pytest.mark.postgresql
async def test_a_connection_that_postgresql_ended_is_replaced(
    on_postgresql: Database, migrated_postgresql: sa.URL
) -> None:
    assert await stored(on_postgresql) == []
    aside = await postgresql.connect(migrated_postgresql)
    await aside.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await aside.close()
    assert await stored(on_postgresql) == []
    async with on_postgresql.writing() as write:
        await write.execute(account("a"))
    assert await stored(on_postgresql) == ["a"]


async def test_writers_that_wait_learn_together_that_the_file_is_locked(
    on_sqlite: Database,
) -> None:
    async with on_sqlite.writing() as write:
        await write.execute(account("before"))
    begun: list[str] = []
    sa.event.listen(on_sqlite._writer, "before_cursor_execute", lambda *of: begun.append(of[2]))  # noqa: SLF001
    with closing(sqlite3.connect(str(on_sqlite.url.database))) as other:
        other.execute("BEGIN IMMEDIATE")
        writers = [write_and_fail(on_sqlite, account(f"a{at}")) for at in range(30)]
        ended = await asyncio.gather(*writers, return_exceptions=True)
        other.rollback()
    assert {type(unavailable(each)) for each in ended if each} == {StorageUnavailable}
    assert begun == ["BEGIN IMMEDIATE"]
    async with on_sqlite.writing() as write:
        await write.execute(account("after"))
