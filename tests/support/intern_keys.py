"""Creates interns' own keys for tests: a boot gives its key to the proxy alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.acceptance.server_core import open_core

if TYPE_CHECKING:
    from tests.support.server_process import ServerProcess


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
    account = server.announced["account_id"]
    async with (
        open_core(server.data_dir, database) as opened,
        opened.core.database.writing() as write,
    ):
        return await opened.new_own_key(write, account, workspace_id, intern_id, payer_hash)
