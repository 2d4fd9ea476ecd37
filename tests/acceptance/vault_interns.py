"""Interns as the vault sees them, made through its service: nothing else makes any yet."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tollhouse.apps.core import build_core
from tollhouse.apps.ground import database_url
from tollhouse.apps.vaulting import build_vaulting, open_keys
from tollhouse.identity.types import KeyKind, NewKey
from tollhouse.settings.sections import Settings
from tollhouse.storage.data_folder import DataFolder
from tollhouse.testing.builders import OPERATOR
from tollhouse.vault.types import VaultKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tollhouse.apps.core import Core
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
    return asyncio.run(_add_intern(_settings(folder, database), {**announced, **fields}, attached))


def delete_intern(folder: Path, intern_id: str, *, database: str | None = None) -> None:
    """Remove an intern's vault; see `add_intern`."""
    asyncio.run(_delete_intern(_settings(folder, database), intern_id))


def _settings(folder: Path, database: str | None) -> Settings:
    return Settings.model_validate({"data_dir": folder, "database_url": database})


async def _add_intern(
    settings: Settings, announced: dict[str, Any], attached: str | None
) -> VaultIntern:
    async with _services(settings) as (core, service):
        account, workspace = announced["account_id"], announced["workspace_id"]
        own = await service.new_vault(account, workspace, VaultKind.INTERN)
        intern_id = core.ids.uuid()
        wanted = NewKey(
            "An intern's own", kind=KeyKind.INTERN, workspace_id=workspace, intern_id=intern_id
        )
        async with core.database.writing() as write:
            await service.add_subject(write, intern_id, own, attached)
            issued = await core.identity.create_key(write, OPERATOR, account, wanted)
        return VaultIntern(intern_id, own.id, issued.text)


async def _delete_intern(settings: Settings, intern_id: str) -> None:
    async with _services(settings) as (core, service), core.database.writing() as write:
        await service.forget_subject(write, intern_id, "operator")


@asynccontextmanager
async def _services(settings: Settings) -> AsyncGenerator[tuple[Core, VaultService]]:
    folder = DataFolder(settings.data_dir)
    core = build_core(database_url(settings, folder), settings)
    try:
        keys = await open_keys(settings.vault, core, folder)
        yield core, build_vaulting(settings.vault, core, keys).service
    finally:
        await core.database.close()
