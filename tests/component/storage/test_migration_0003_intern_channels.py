"""An upgrade to interns in chat services: interns of before stay, and each may have a service."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tollhouse.storage.migrator import MIGRATIONS, upgrade

if TYPE_CHECKING:
    from pathlib import Path

_BEFORE = (
    "INSERT INTO accounts (id, name, created_at) VALUES ('a', 'A', 0)",
    "INSERT INTO workspaces (id, account_id, is_default, name, slug, preferences, created_at)"
    " VALUES ('w', 'a', true, 'W', 'w', '{}', 0)",
    "INSERT INTO interns (id, account_id, workspace_id, creator, name, status, desired, number,"
    " idempotency_key, request_digest, created_at, updated_at) VALUES ('i', 'a', 'w', '', 'ada',"
    " 'awaiting_chat_install', 'idle', 1, 'k', 'd', 0, 0)",
)
_CHANNEL = (
    "INSERT INTO intern_channels (intern_id, service, settings, updated_at)"
    " VALUES ('{}', 'slack', '{{}}', 0)"
)


def execute(url: sa.URL, *statements: str) -> list[str]:
    async def run() -> list[str]:
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.begin() as connection:
            if url.get_backend_name() == "sqlite":
                await connection.execute(sa.text("PRAGMA foreign_keys = ON"))
            for each in statements:
                await connection.execute(sa.text(each))
            found = await connection.execute(sa.text("SELECT name FROM interns"))
            return list(found.scalars())

    return asyncio.run(run())


def test_keeps_interns_and_takes_their_services(empty_url: sa.URL, tmp_path: Path) -> None:
    earlier = shutil.copytree(MIGRATIONS, tmp_path / "earlier")
    for each in (earlier / "versions").glob("*.py"):
        if each.name >= "0003":
            each.unlink()
    upgrade(empty_url, earlier)
    execute(empty_url, *_BEFORE)
    upgrade(empty_url)
    assert execute(empty_url, _CHANNEL.format("i")) == ["ada"]
    for refused in ("i", "nobody"):
        with pytest.raises(IntegrityError):
            execute(empty_url, _CHANNEL.format(refused))
