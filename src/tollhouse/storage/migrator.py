"""Brings a database to the schema of this program; a process of its own, since Alembic is large.

    <database URL on standard input> | python -m tollhouse.storage.migrator
        exit 0   the schema is up to date
        exit 2   it is not and nothing was changed; one line on standard error says why

    python -m tollhouse.storage.migrator --schema
        prints `schema.sql`, which makes a new SQLite file; `make schema` writes it

An upgrade is one transaction on both databases, taken so that a second migrator waits for the
first: `BEGIN IMMEDIATE` on SQLite, an advisory lock on PostgreSQL.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import event
from sqlalchemy.pool import NullPool

from tollhouse.kernel.errors import StartError
from tollhouse.storage.connections import BUSY_TIMEOUT_MS
from tollhouse.storage.failures import (
    cannot_use,
    parse_database_url,
    reason,
    shown,
    sqlite_url,
)
from tollhouse.storage.revision import BASELINE, BEFORE_BASELINE, unknown

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_ADVISORY_LOCK: Final = 0x746F6C6C  # "toll"; any number that nobody else takes


def upgrade(url: sa.URL, migrations: Path = MIGRATIONS) -> None:
    """Apply the migrations that a database lacks.

    Blocks, on PostgreSQL in an event loop of its own: not for use inside a running one.

    Raises:
        StartError: The database cannot be used, is newer than this program, or a migration
            failed. The database is as it was.
    """
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    try:
        if url.get_backend_name() == "sqlite":
            _upgrade_sqlite(url, config)
        else:
            asyncio.run(_upgrade_postgresql(url, config))
    except StartError:
        raise
    except Exception as error:  # an edge: whatever the driver could not do stops the start
        raise cannot_use(url, error) from error


def main() -> int:
    """Upgrade the database whose URL stands on standard input; return the exit code."""
    if sys.argv[1:] == ["--schema"]:
        sys.stdout.write(schema_script())
        return 0
    try:
        upgrade(parse_database_url(sys.stdin.read().strip()))
    except StartError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def schema_script() -> str:
    """Return the SQL of a new SQLite file: all tables, and the revision that they have."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "new.db"
        upgrade(sqlite_url(file))
        with closing(sqlite3.connect(file)) as connection:
            return "".join(f"{line}\n" for line in connection.iterdump())


def _upgrade_sqlite(url: sa.URL, config: Config) -> None:
    timeout = BUSY_TIMEOUT_MS / 1000
    # Without the driver's own BEGIN, which comes too late for DDL. Foreign keys stay unchecked
    # until the end, so that a migration may rebuild a table that others refer to.
    engine = sa.create_engine(
        url.set(drivername="sqlite+pysqlite"),
        poolclass=NullPool,
        connect_args={"isolation_level": None, "timeout": timeout},
    )
    event.listen(engine, "begin", _begin_immediate)
    with engine.begin() as connection:
        _upgrade_schema(connection, url, config)
    # A property of the file, which no transaction can change; so it comes last. SQLite does not
    # wait for a lock here: where another migrator holds it, that one does the same in a moment,
    # and so does the server when it connects.
    with (
        closing(sqlite3.connect(str(url.database), timeout=timeout)) as connection,
        suppress(sqlite3.OperationalError),
    ):
        connection.execute("PRAGMA journal_mode = WAL")


def _begin_immediate(connection: sa.Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


async def _upgrade_postgresql(url: sa.URL, config: Config) -> None:
    # Loaded here: the first start on an SQLite file waits for this process, and needs none of it.
    from tollhouse.storage import postgresql  # noqa: PLC0415

    engine = postgresql.engine(url, statement_seconds=None, poolclass=NullPool)
    async with engine.begin() as connection:
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
        await connection.run_sync(_upgrade_schema, url, config)


def _upgrade_schema(connection: sa.Connection, url: sa.URL, config: Config) -> None:
    scripts = ScriptDirectory.from_config(config)
    found = MigrationContext.configure(connection).get_current_revision()
    if found in BEFORE_BASELINE:
        lacking = BEFORE_BASELINE[found]
        if lacking is not None:
            connection.execute(sa.text(lacking))
        baseline = sa.text("UPDATE alembic_version SET version_num = :baseline")
        connection.execute(baseline, {"baseline": BASELINE})
        found = BASELINE
    if found is not None and found not in {script.revision for script in scripts.walk_revisions()}:
        raise unknown(url, found)
    if found == scripts.get_current_head():
        return
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, "head")
        _check_foreign_keys(connection)
    except Exception as error:
        raise StartError(
            f"{shown(url)} could not be upgraded and is as it was ({reason(error)}): "
            "report this, and go on with the release that you had"
        ) from error


def _check_foreign_keys(connection: sa.Connection) -> None:
    if connection.dialect.name != "sqlite":
        return
    dangling = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if dangling is not None:
        raise ValueError(f"a row of {dangling[0]} refers to a row of {dangling[2]} that is missing")


if __name__ == "__main__":
    sys.exit(main())
