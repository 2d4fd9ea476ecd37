"""Databases for the tests: migrated once and new for each test, on SQLite and on PostgreSQL.

`database_url` and `database` run a test once on each. PostgreSQL is our own, or the server that
`TOLLHOUSE_TEST_DATABASE_URL` names; that user has to be allowed to create databases.
"""

import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.util import LRUCache

from tests.support.postgresql_databases import PostgresqlDatabases
from tollhouse.storage.database import Database, open_database
from tollhouse.storage.failures import sqlite_url
from tollhouse.storage.migrator import upgrade


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> Iterator[None]:
    """Let the engines of all tests share the SQL that SQLAlchemy compiles.

    Every test opens engines of its own; to compile what they all send was half of its time.
    """
    begin = sa.Engine.__init__

    def sharing(engine: sa.Engine, *args: Any, **options: Any) -> None:
        begin(engine, *args, **options)
        cache = compiled.get(type(engine.dialect))
        if cache is not None:
            engine._compiled_cache = cache  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]

    def alike(one: object, other: object) -> bool:
        return type(one) is type(other)

    def kind(one: object) -> int:
        return hash(type(one))

    dialects: tuple[type[Any], ...] = (PGDialect_asyncpg, SQLiteDialect_aiosqlite)
    compiled: dict[type[Any], Any] = {each: LRUCache[Any, Any](5_000) for each in dialects}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sa.Engine, "__init__", sharing)
        for dialect in dialects:  # a part of the cache's keys
            patched.setattr(dialect, "__eq__", alike)
            patched.setattr(dialect, "__hash__", kind)
        yield


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated, empty SQLite file; copy it."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade(sqlite_url(path))
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def new_empty(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], sa.URL]:
    """Makes databases without tables."""
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql").empty
    numbers = count()
    return lambda: sqlite_url(tmp_path / f"empty-{next(numbers)}.db")


@pytest.fixture
def empty_url(new_empty: Callable[[], sa.URL]) -> sa.URL:
    """A database without tables."""
    return new_empty()


@pytest.fixture
def migrated_sqlite(sqlite_template: Path, tmp_path: Path) -> sa.URL:
    """A migrated SQLite database without rows."""
    return sqlite_url(Path(shutil.copyfile(sqlite_template, tmp_path / "tollhouse.db")))


@pytest.fixture
def migrated_postgresql(postgresql: PostgresqlDatabases) -> Iterator[sa.URL]:
    """A migrated PostgreSQL database without rows; a test may change those, not the tables."""
    url = postgresql.take()
    yield url
    postgresql.give_back(url)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def database_url(request: pytest.FixtureRequest) -> sa.URL:
    """A migrated database without rows."""
    return request.getfixturevalue(f"migrated_{request.param}")


@pytest.fixture
async def database(database_url: sa.URL) -> AsyncIterator[Database]:
    """A migrated database without rows, open."""
    opened = open_database(database_url)
    yield opened
    await opened.close()
