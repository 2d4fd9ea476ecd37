import errno
import os
import sqlite3
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, OperationalError

from tollhouse.storage.database import open_database
from tollhouse.storage.failures import unavailable


def raised_by(connection: sqlite3.Connection, *statements: str) -> sqlite3.Error:
    *before, last = statements
    for statement in before:
        connection.execute(statement)
    with pytest.raises(sqlite3.Error) as caught:
        connection.execute(last)
    return caught.value


def locked(folder: Path) -> sqlite3.Error:
    path = folder / "locked.db"
    with closing(sqlite3.connect(path)) as other, closing(sqlite3.connect(path, timeout=0)) as mine:
        other.execute("BEGIN EXCLUSIVE")
        return raised_by(mine, "CREATE TABLE a (b)")


def full(folder: Path) -> sqlite3.Error:
    with closing(sqlite3.connect(folder / "full.db")) as mine:
        mine.execute("PRAGMA max_page_count = 2")
        return raised_by(mine, "CREATE TABLE a (b)", "INSERT INTO a VALUES (zeroblob(100000))")


def read_only(folder: Path) -> sqlite3.Error:
    path = folder / "read.db"
    sqlite3.connect(path).close()
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as mine:
        return raised_by(mine, "CREATE TABLE a (b)")


@pytest.mark.parametrize("failing", [locked, full, read_only])
def test_a_database_that_cannot_be_written_now_is_a_503(failing, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    error = failing(tmp_path)
    for each in (error, OperationalError("INSERT", {}, error)):
        found = unavailable(each)
        assert found is not None
        assert (found.kind, found.retry_after) == ("unavailable", 5)
        assert str(tmp_path) not in found.message


def test_a_database_that_refuses_what_it_is_told_is_none() -> None:
    with closing(sqlite3.connect(":memory:")) as mine:
        syntax = raised_by(mine, "SELEC 1")
        double = raised_by(mine, "CREATE TABLE a (b UNIQUE)", *["INSERT INTO a VALUES (1)"] * 2)
    assert unavailable(OperationalError("SELEC 1", {}, syntax)) is None
    assert unavailable(IntegrityError("INSERT", {}, double)) is None


class Refusal(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


@pytest.mark.parametrize("sqlstate", ["08006", "25006", "53100", "53300", "55P03", "57P03"])
def test_a_postgresql_that_cannot_now_is_a_503(sqlstate: str) -> None:
    assert unavailable(OperationalError("INSERT", {}, Refusal(sqlstate))) is not None


@pytest.mark.parametrize("sqlstate", ["42601", "23505", None])
def test_a_postgresql_that_refuses_what_it_is_told_is_none(sqlstate: str | None) -> None:
    assert unavailable(OperationalError("INSERT", {}, Refusal(sqlstate))) is None


@pytest.mark.parametrize("name", ["ENOSPC", "EDQUOT", "EFBIG", "EROFS", "EIO", "EMFILE", "ENFILE"])
def test_a_disk_that_cannot_now_is_a_503(name: str) -> None:
    number = getattr(errno, name)
    assert unavailable(OSError(number, os.strerror(number), "/data/file")) is not None


async def test_a_postgresql_that_cannot_be_reached_is_a_503() -> None:
    database = open_database(sa.make_url("postgresql+asyncpg://u:pw@127.0.0.1:1/d"))
    for use in (database.reading, database.writing):
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its type is the driver's affair
            await _enter(use())
        assert unavailable(caught.value) is not None
    await database.close()


async def _enter(opened: AbstractAsyncContextManager[object]) -> None:
    async with opened:
        pass


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "?"),
        ConnectionResetError("a client's"),
        ConnectionRefusedError("a provider's"),
        BrokenPipeError("a worker's"),
        ValueError(),
        RuntimeError("full"),
    ],
)
def test_anything_else_is_none(error: Exception) -> None:
    assert unavailable(error) is None
