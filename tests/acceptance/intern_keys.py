"""Keys of interns' own, for tests that do not run one: a boot gives its key to the proxy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tollhouse.apps.core import build_core
from tollhouse.apps.ground import database_url
from tollhouse.identity.types import KeyKind, NewKey
from tollhouse.settings.sections import Settings
from tollhouse.storage.data_folder import DataFolder
from tollhouse.testing.builders import OPERATOR

if TYPE_CHECKING:
    from tests.acceptance.server_process import ServerProcess


async def new_own_key(
    server: ServerProcess,
    workspace_id: str,
    intern_id: str,
    *,
    payer_hash: str | None = None,
    database: str | None = None,
) -> str:
    """Make a key of an intern in the database of a server that may be running.

    Args:
        server: The server.
        workspace_id: Where the intern is.
        intern_id: Its id.
        payer_hash: The key that answers for it.
        database: The URL of the server's database, where that is not in its data folder.
    """
    settings = Settings.model_validate({"data_dir": server.data_dir, "database_url": database})
    core = build_core(database_url(settings, DataFolder(server.data_dir)), settings)
    wanted = NewKey(
        "own",
        kind=KeyKind.INTERN,
        workspace_id=workspace_id,
        intern_id=intern_id,
        payer_hash=payer_hash,
    )
    try:
        async with core.database.writing() as write:
            account = server.announced["account_id"]
            return (await core.identity.create_key(write, OPERATOR, account, wanted)).text
    finally:
        await core.database.close()
