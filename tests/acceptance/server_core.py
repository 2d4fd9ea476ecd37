"""The services on the database of a server that may be running, for what no request can make."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, NamedTuple

from tests.support.builders import OPERATOR
from tollhouse.apps.core import build_core
from tollhouse.apps.startup import database_url
from tollhouse.identity.types import KeyKind, NewKey
from tollhouse.settings.sections import Settings
from tollhouse.storage.data_folder import DataFolder

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tollhouse.apps.core import Core
    from tollhouse.storage.database import Write


class ServerCore(NamedTuple):
    """The services, the settings and the data folder of a server."""

    core: Core
    settings: Settings
    folder: DataFolder

    async def new_own_key(
        self,
        write: Write,
        account_id: str,
        workspace_id: str,
        intern_id: str,
        payer_hash: str | None = None,
    ) -> str:
        """Create a key of an intern; return its text."""
        wanted = NewKey(
            "An intern's own",
            kind=KeyKind.INTERN,
            workspace_id=workspace_id,
            intern_id=intern_id,
            payer_hash=payer_hash,
        )
        return (await self.core.identity.create_key(write, OPERATOR, account_id, wanted)).text


@asynccontextmanager
async def open_core(data_dir: Path, database: str | None = None) -> AsyncGenerator[ServerCore]:
    """Open the database of a server.

    Args:
        data_dir: The server's data folder.
        database: The URL of its database, where that is not in its data folder.
    """
    settings = Settings.model_validate({"data_dir": data_dir, "database_url": database})
    folder = DataFolder(data_dir)
    core = build_core(database_url(settings, folder), settings)
    try:
        yield ServerCore(core, settings, folder)
    finally:
        await core.database.close()
