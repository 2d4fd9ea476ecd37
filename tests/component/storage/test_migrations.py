"""Migrations, on both databases: what they make, and what they leave behind when they fail."""

import asyncio
import os
import shutil
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tollhouse.kernel.errors import StartError
from tollhouse.storage import revision
from tollhouse.storage.database import open_database
from tollhouse.storage.failures import sqlite_url
from tollhouse.storage.migrator import MIGRATIONS, upgrade
from tollhouse.storage.revision import (
    HEAD,
    create_schema,
    current,
    require_head,
    upgrade_in_child,
)
from tollhouse.storage.tables import METADATA

ROOT = Path(__file__).parents[3]
BREAKS = """
import sqlalchemy as sa
from alembic import op

revision = "r9999"
down_revision = "{head}"


def upgrade():
    op.create_table("half_made", sa.Column("id", sa.Text))
    op.add_column("accounts", sa.Column("half_made", sa.Text))
    {then}
"""
T = TypeVar("T")


def inside(url: sa.URL, work: Callable[[sa.Connection], T]) -> T:
    """Run something in a transaction on a database, from a test without an event loop."""

    async def run() -> T:
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.begin() as connection:
            return await connection.run_sync(work)

    return asyncio.run(run())


def execute(url: sa.URL, statement: str) -> None:
    inside(url, lambda connection: connection.execute(sa.text(statement)).close())


def set_revision(url: sa.URL, revision: str) -> None:
    execute(url, f"UPDATE alembic_version SET version_num = '{revision}'")  # noqa: S608 - our own


def tables(url: sa.URL) -> set[str]:
    return inside(url, lambda connection: set(sa.inspect(connection).get_table_names()))


def schema(url: sa.URL) -> dict[str, Any]:
    """Describe a schema as the database itself sees it, checks and partial indexes included."""

    def describe(connection: sa.Connection) -> dict[str, Any]:
        inspector = sa.inspect(connection)
        return {
            name: {
                "columns": {
                    column["name"]: (repr(column["type"]), column["nullable"], column["default"])
                    for column in inspector.get_columns(name)
                },
                "checks": {c["name"]: c["sqltext"] for c in inspector.get_check_constraints(name)},
                "foreign keys": sorted(map(repr, inspector.get_foreign_keys(name))),
                "unique": sorted(map(repr, inspector.get_unique_constraints(name))),
                "indexes": {
                    index["name"]: (
                        index["column_names"],
                        index["unique"],
                        {k: str(v) for k, v in index.get("dialect_options", {}).items()},
                    )
                    for index in inspector.get_indexes(name)
                },
                "primary key": inspector.get_pk_constraint(name),
            }
            for name in inspector.get_table_names()
            if name != "alembic_version"
        }

    return inside(url, describe)


def migrations_with(folder: Path, then: str) -> Path:
    """Return the migrations and one more, which makes two things and then does `then`."""
    copy = shutil.copytree(MIGRATIONS, folder / "migrations")
    (copy / "versions" / "9999_breaks.py").write_text(BREAKS.format(head=HEAD, then=then))
    return copy


async def required(url: sa.URL) -> None:
    database = open_database(url)
    try:
        await require_head(database)
    finally:
        await database.close()


async def found(url: sa.URL) -> str | None:
    database = open_database(url)
    try:
        return await current(database)
    finally:
        await database.close()


class TestUpgrade:
    def test_makes_the_same_constraints_as_the_tables(
        self, new_empty: Callable[[], sa.URL]
    ) -> None:
        migrated, created = new_empty(), new_empty()
        upgrade(migrated)
        inside(created, METADATA.create_all)
        assert schema(migrated) == schema(created)

    def test_twice_changes_nothing(self, empty_url: sa.URL) -> None:
        upgrade(empty_url)
        execute(empty_url, "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)")
        before = schema(empty_url)
        upgrade(empty_url)
        assert schema(empty_url) == before
        kept = sa.text("SELECT id FROM accounts")
        assert inside(empty_url, lambda c: c.execute(kept).scalars().all()) == ["a"]

    @pytest.mark.parametrize(
        ("revision", "undo"),
        [("0015", None), ("0014", "ALTER TABLE batches DROP COLUMN compress_at")],
    )
    def test_of_the_last_schemas_before_the_baseline_keeps_their_rows(
        self, empty_url: sa.URL, revision: str, undo: str | None
    ) -> None:
        upgrade(empty_url)
        execute(empty_url, "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)")
        before = schema(empty_url)
        dropped = (
            *("batches is_byok", "batches only_own_keys", "reservations with_own_nano"),
            *("account_days byok_requests", "generations estimate_nano"),
        )
        made = (
            *("TABLE budgets", "TABLE leases", "TABLE rates", "TABLE holders"),
            *("TABLE topics", "TABLE intern_channel_events", "TABLE intern_channels"),
            *("TABLE provider_keys", "INDEX ix_generations_interrupted"),
        )
        gone = [f"ALTER TABLE {each.replace(' ', ' DROP COLUMN ')}" for each in dropped]
        for each in (*(f"DROP {each}" for each in made), *gone, undo):
            if each is not None:
                execute(empty_url, each)
        set_revision(empty_url, revision)
        upgrade(empty_url)
        assert asyncio.run(found(empty_url)) == HEAD
        assert schema(empty_url) == before
        kept = sa.text("SELECT id FROM accounts")
        assert inside(empty_url, lambda c: c.execute(kept).scalars().all()) == ["a"]

    async def test_may_be_started_twice_at_once(self, empty_url: sa.URL) -> None:
        await asyncio.gather(*(upgrade_in_child(empty_url) for _ in range(2)))
        await required(empty_url)

    def test_leaves_an_sqlite_file_in_wal_mode(self, sqlite_template: Path) -> None:
        assert sqlite_template.read_bytes()[18:20] == b"\x02\x02"

    def test_finds_its_files_whatever_the_folder_is_called(
        self, empty_url: sa.URL, tmp_path: Path
    ) -> None:
        odd = shutil.copytree(MIGRATIONS, tmp_path / "100% odd: folder")
        upgrade(empty_url, odd)
        assert "accounts" in tables(empty_url)


class TestFailedUpgrade:
    def test_of_an_empty_database_leaves_nothing_and_can_be_tried_again(
        self, empty_url: sa.URL, tmp_path: Path
    ) -> None:
        broken = migrations_with(tmp_path, "raise ValueError('it broke')")
        with pytest.raises(StartError, match=r"is as it was \(it broke\)"):
            upgrade(empty_url, broken)
        assert tables(empty_url) == set()
        upgrade(empty_url)
        asyncio.run(required(empty_url))

    def test_of_a_migrated_database_leaves_it_as_it_was(
        self, empty_url: sa.URL, tmp_path: Path
    ) -> None:
        upgrade(empty_url)
        before = schema(empty_url)
        broken = migrations_with(tmp_path, "op.execute('SELECT * FROM no_such_table')")
        with pytest.raises(StartError, match="no_such_table") as refused:
            upgrade(empty_url, broken)
        assert "\n" not in str(refused.value)
        assert schema(empty_url) == before
        asyncio.run(required(empty_url))

    def test_is_one_that_leaves_rows_without_what_they_refer_to(
        self, empty_url: sa.URL, tmp_path: Path
    ) -> None:
        upgrade(empty_url)
        execute(empty_url, "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)")
        execute(
            empty_url,
            "INSERT INTO users (id, account_id, name, created_at) VALUES ('u', 'a', 'U', 0)",
        )
        broken = migrations_with(tmp_path, "op.execute('DELETE FROM accounts')")
        with pytest.raises(StartError, match="is as it was"):
            upgrade(empty_url, broken)
        assert "half_made" not in tables(empty_url)

    def test_of_a_newer_database_touches_nothing(self, empty_url: sa.URL) -> None:
        upgrade(empty_url)
        set_revision(empty_url, "r9999")
        with pytest.raises(StartError, match="made by a newer Tollhouse"):
            upgrade(empty_url)
        with pytest.raises(StartError, match="made by a newer Tollhouse"):
            asyncio.run(required(empty_url))

    @pytest.mark.parametrize("before_the_baseline", ["0001", "0013"])
    def test_of_a_database_from_before_the_baseline_touches_nothing(
        self, empty_url: sa.URL, before_the_baseline: str
    ) -> None:
        upgrade(empty_url)
        set_revision(empty_url, before_the_baseline)
        told = f"its schema is {before_the_baseline}.*of commit b11b2ce.* or begin with an empty"
        for refusing in (upgrade, lambda url: asyncio.run(required(url))):
            with pytest.raises(StartError, match=told):
                refusing(empty_url)
        assert asyncio.run(found(empty_url)) == before_the_baseline


class TestNewFile:
    """Its whole schema comes from `storage/schema.sql`; `make schema` writes that anew."""

    def test_is_what_the_migrations_make(self, sqlite_template: Path, tmp_path: Path) -> None:
        file = tmp_path / "new.db"
        assert created(file)
        assert contents(file) == contents(sqlite_template)
        assert file.read_bytes()[16:24] == sqlite_template.read_bytes()[16:24]

    def test_may_be_there_already_if_it_is_empty(self, tmp_path: Path) -> None:
        (tmp_path / "new.db").touch()
        assert created(tmp_path / "new.db")
        asyncio.run(required(sqlite_url(tmp_path / "new.db")))

    def test_is_none_that_holds_a_table(self, tmp_path: Path) -> None:
        with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
            connection.execute("CREATE TABLE theirs (id)")
        assert not created(tmp_path / "other.db")
        assert tables(sqlite_url(tmp_path / "other.db")) == {"theirs"}

    def test_that_could_not_be_finished_holds_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        script = tmp_path / "schema.sql"
        whole = (ROOT / "src/tollhouse/storage/schema.sql").read_text()
        script.write_text(whole.replace("COMMIT;", "SELECT * FROM no_such_table; COMMIT;"))
        monkeypatch.setattr(revision, "_SCHEMA", script)
        with pytest.raises(StartError, match=r"cannot be used \(no such table: no_such_table\)"):
            created(tmp_path / "new.db")
        assert contents(tmp_path / "new.db") == ([], {})

    def test_that_cannot_be_made_is_refused_in_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(StartError, match=r"cannot be used \(unable to open database file\)"):
            created(tmp_path / "none" / "t.db")


def created(file: Path) -> bool:
    async def create() -> bool:
        database = open_database(sqlite_url(file))
        try:
            return await create_schema(database)
        finally:
            await database.close()

    return asyncio.run(create())


def contents(file: Path) -> tuple[list[tuple[str, ...]], dict[str, list[tuple[Any, ...]]]]:
    """Return how every table and index was made, and all rows."""
    with closing(sqlite3.connect(file)) as connection:
        made = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
        schema = connection.execute(made).fetchall()
        names = [name for kind, name, *_ in schema if kind == "table"]
        return schema, {
            name: connection.execute(f"SELECT * FROM {name}").fetchall()  # noqa: S608 - our own
            for name in names
        }


class TestUnusable:
    def test_file_is_refused_in_one_line(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("this is no database, and it is longer than a header" * 20)
        with pytest.raises(StartError, match=r"cannot be used \(file is not a database\)"):
            upgrade(sqlite_url(tmp_path / "file"))

    @pytest.mark.parametrize("use", [upgrade, lambda url: asyncio.run(required(url))])
    def test_server_is_refused_in_one_line(self, use: Callable[[sa.URL], None]) -> None:
        nobody = sa.make_url("postgresql+asyncpg://u:hunter2@127.0.0.1:1/d")
        with pytest.raises(StartError, match="check the database URL") as refused:
            use(nobody)
        assert "hunter2" not in str(refused.value)


class TestRequiredRevision:
    def test_refuses_a_database_without_tables(self, empty_url: sa.URL) -> None:
        with pytest.raises(StartError, match="run `tollhouse migrate` first"):
            asyncio.run(required(empty_url))

    def test_refuses_an_older_database(self, database_url: sa.URL) -> None:
        set_revision(database_url, "0015")
        with pytest.raises(StartError, match="run `tollhouse migrate` first"):
            asyncio.run(required(database_url))

    def test_does_not_make_the_file_that_it_looks_for(self, tmp_path: Path) -> None:
        with pytest.raises(StartError):
            asyncio.run(required(sqlite_url(tmp_path / "t.db")))
        assert list(tmp_path.iterdir()) == []


class TestChild:
    async def test_tells_why_it_could_not(self, tmp_path: Path) -> None:
        with pytest.raises(StartError, match=r"cannot be used \(unable to open database file\)"):
            await upgrade_in_child(sqlite_url(tmp_path / "none" / "t.db"))

    async def test_that_breaks_off_is_not_taken_for_a_success(
        self, empty_url: sa.URL, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(StartError, match=r"broke off \(exit code 1\)"):
            await upgrade_in_child(empty_url)

    async def test_does_not_outlive_its_parents_patience(
        self, empty_url: sa.URL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        slow = tmp_path / "slow"
        slow.write_text(f'#!/bin/sh\necho $$ > "{tmp_path}/pid"\nexec sleep 100\n')
        slow.chmod(0o700)
        monkeypatch.setattr(sys, "executable", str(slow))
        upgrading = asyncio.create_task(upgrade_in_child(empty_url))
        pid = tmp_path / "pid"
        while not (pid.exists() and pid.read_text().strip()):
            await asyncio.sleep(0.01)
        upgrading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upgrading
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid.read_text()), 0)

    async def test_shows_the_url_in_no_argument_and_no_variable(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: list[object] = []
        start = asyncio.create_subprocess_exec

        async def record(
            *arguments: str,
            **options: Any,
        ) -> asyncio.subprocess.Process:
            started.extend([arguments, options, dict(os.environ)])
            return await start(*arguments, **options)

        monkeypatch.setattr(asyncio, "create_subprocess_exec", record)
        nobody = sa.make_url("postgresql+asyncpg://u:hunter2@127.0.0.1:1/d")
        with pytest.raises(StartError):
            await upgrade_in_child(nobody)
        assert started
        assert "hunter2" not in repr(started)


class TestProgram:
    def test_ends_with_2_and_one_line_where_it_cannot_migrate(self) -> None:
        command = [sys.executable, "-m", "tollhouse.storage.migrator"]
        ended = subprocess.run(
            command, input="mysql://u:hunter2@h/d\n", capture_output=True, text=True, check=False
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr == ("the database 'mysql' is not supported; use postgresql or sqlite\n")

    def test_stays_out_of_the_servers_memory(self) -> None:
        program = (
            "import sys, tollhouse.storage.database, tollhouse.storage.revision\n"
            "import tollhouse.storage.revision\n"
            "print(sorted(name for name in sys.modules if name.split('.')[0] == 'alembic'))"
        )
        command = [sys.executable, "-c", program]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert said == "[]\n"


def test_the_wheel_holds_the_migrations_and_the_schema(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    files = [*MIGRATIONS.rglob("*.py"), MIGRATIONS.with_name("schema.sql")]
    expected = [path.relative_to(ROOT / "src") for path in files]
    assert len(expected) > 2
    assert {str(path) for path in expected} <= names
