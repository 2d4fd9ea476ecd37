"""Subjects of the vault, made through its service, for tests that need no running intern."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.acceptance.server_core import open_core
from tollhouse.apps.vault import build_vault, open_keys
from tollhouse.vault.types import VaultKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tests.acceptance.server_core import ServerCore
    from tollhouse.vault.service import VaultService


@dataclass(frozen=True, slots=True)
class VaultIntern:
    """An intern with a vault and a key of its own."""

    id: str
    vault_id: str
    key: str


def add_intern(
    folder: Path,
    announced: dict[str, Any],
    *,
    attached: str | None = None,
    database: str | None = None,
    **fields: Any,
) -> VaultIntern:
    """Make an intern in the database of a server that may be running.

    Args:
        folder: The server's data folder.
        announced: What the server said of its first start.
        attached: The vault that it borrows.
        database: The URL of the server's database, where that is not in its data folder.
        fields: Another `workspace_id`.
    """
    return asyncio.run(_add_intern(folder, database, {**announced, **fields}, attached))


def delete_intern(folder: Path, intern_id: str, *, database: str | None = None) -> None:
    """Remove an intern's vault; see `add_intern`."""
    asyncio.run(_delete_intern(folder, database, intern_id))


async def _add_intern(
    folder: Path, database: str | None, announced: dict[str, Any], attached: str | None
) -> VaultIntern:
    async with _vault(folder, database) as (opened, service):
        account, workspace = announced["account_id"], announced["workspace_id"]
        own = await service.new_vault(account, workspace, VaultKind.INTERN)
        intern_id = opened.core.ids.uuid()
        async with opened.core.database.writing() as write:
            await service.add_subject(write, intern_id, own, attached)
            key = await opened.new_own_key(write, account, workspace, intern_id)
        return VaultIntern(intern_id, own.id, key)


async def _delete_intern(folder: Path, database: str | None, intern_id: str) -> None:
    async with (
        _vault(folder, database) as (opened, service),
        opened.core.database.writing() as write,
    ):
        await service.forget_subject(write, intern_id, "operator")


@asynccontextmanager
async def _vault(
    folder: Path, database: str | None
) -> AsyncGenerator[tuple[ServerCore, VaultService]]:
    async with open_core(folder, database) as opened:
        vault = opened.settings.vault
        keys = await open_keys(vault, opened.core, opened.folder)
        yield opened, build_vault(vault, opened.core, keys).service
