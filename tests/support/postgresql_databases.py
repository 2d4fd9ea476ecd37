"""Databases on a PostgreSQL server: made empty, or taken migrated and given back for the next test.

Copying a database costs hundreds of files, deleting the rows of a test two milliseconds; so a
migrated database is copied from the template once and then used again.
"""

import asyncio
import os
from collections.abc import Coroutine
from itertools import count
from typing import Any

import sqlalchemy as sa

from tollhouse.storage.migrator import upgrade
from tollhouse.storage.postgresql import connect
from tollhouse.storage.revision import HEAD
from tollhouse.storage.tables import METADATA

_END_OTHERS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_FORGET_EVERYTHING = (
    *(str(sa.delete(table)) for table in reversed(METADATA.sorted_tables)),
    f"UPDATE alembic_version SET version_num = '{HEAD}'",  # noqa: S608 - our own constant
)


class PostgresqlDatabases:
    """The databases of one test process; use from where no event loop runs."""

    def __init__(self, server: sa.URL) -> None:
        self._server = server
        self._numbers = count()
        self._made: list[sa.URL] = []
        self._free: list[sa.URL] = []
        self._template: sa.URL | None = None

    def empty(self) -> sa.URL:
        """Make a database without tables."""
        return self._copy_of("template0")

    def take(self) -> sa.URL:
        """Return a migrated database without rows, for one test."""
        if self._template is None:
            self._template = self.empty()
            upgrade(self._template)
        return self._free.pop() if self._free else self._copy_of(str(self._template.database))

    def give_back(self, url: sa.URL) -> None:
        """Take back a database whose rows were changed, but not its tables."""
        _run(_statements(url, _END_OTHERS, ";".join(_FORGET_EVERYTHING)))
        self._free.append(url)

    def close(self) -> None:
        """Remove every database, whoever is connected to it."""
        drops = (f'DROP DATABASE "{url.database}" WITH (FORCE)' for url in self._made)
        _run(_statements(self._server, *drops))

    def _copy_of(self, template: str) -> sa.URL:
        url = self._server.set(database=f"tollhouse_test_{os.getpid()}_{next(self._numbers)}")
        copy = f'CREATE DATABASE "{url.database}" TEMPLATE "{template}" STRATEGY file_copy'
        _run(_statements(self._server, copy))
        self._made.append(url)
        return url


def plain_url(url: sa.URL) -> str:
    """Return a URL as an operator writes it."""
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


async def _statements(url: sa.URL, *statements: str) -> None:
    connection = await connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def _run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner() as runner:
        runner.run(work)
