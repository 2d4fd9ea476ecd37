"""Databases of an earlier release, for the tests of single migrations."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tollhouse.storage.migrator import MIGRATIONS, upgrade

if TYPE_CHECKING:
    from pathlib import Path

INTERN = (
    "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)",
    (
        "INSERT INTO workspaces (id, account_id, is_default, name, slug, preferences, created_at)"
        " VALUES ('w', 'a', true, 'W', 'w', '{}', 0)"
    ),
    (
        "INSERT INTO interns (id, account_id, workspace_id, creator, name, status, desired, number,"
        " idempotency_key, request_digest, created_at, updated_at)"
        " VALUES ('i', 'a', 'w', '', 'ada', 'awaiting_chat_install', 'idle', 1, 'k', 'd', 0, 0)"
    ),
)
"""Rows of an intern, as revisions after the baseline have them."""


def upgrade_to_before(url: sa.URL, number: str, folder: Path) -> None:
    """Bring a database to the schema that it had before a migration."""
    earlier = shutil.copytree(MIGRATIONS, folder / "earlier")
    for each in (earlier / "versions").glob("*.py"):
        if each.name >= number:
            each.unlink()
    upgrade(url, earlier)


def execute(url: sa.URL, *statements: str) -> list[Any]:
    """Run statements, and return what the last one has found, if it looks for something."""

    async def run() -> list[Any]:
        engine = create_async_engine(url, poolclass=NullPool)
        found: list[Any] = []
        async with engine.begin() as connection:
            if url.get_backend_name() == "sqlite":
                await connection.execute(sa.text("PRAGMA foreign_keys = ON"))
            for each in statements:
                result = await connection.execute(sa.text(each))
                found = list(result.scalars()) if result.returns_rows else []
        return found

    return asyncio.run(run())


def check_takes_once(url: sa.URL, number: str, folder: Path, insert: str) -> None:
    """Upgrade a database with an intern: it stays, and takes one row beside it, nobody else any.

    `insert` has a place for the intern's id.
    """
    upgrade_to_before(url, number, folder)
    execute(url, *INTERN)
    upgrade(url)
    execute(url, insert.format("i"))
    assert execute(url, "SELECT name FROM interns") == ["ada"]
    for refused in ("i", "nobody"):
        with pytest.raises(IntegrityError):
            execute(url, insert.format(refused))
