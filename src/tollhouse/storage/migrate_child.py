"""Runs the migrator in a child process, so that Alembic never enters the server's memory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tollhouse.kernel.start import StartError
from tollhouse.kernel.subprocesses import kill, own_module, start
from tollhouse.storage.failures import shown

if TYPE_CHECKING:
    import sqlalchemy as sa


async def upgrade_in_child(url: sa.URL) -> None:
    """Apply the migrations that a database lacks, in a process of its own.

    Raises:
        StartError: The database cannot be used, is newer than this program, or a migration
            failed. The database is as it was.
    """
    child = await start(
        *own_module("tollhouse.storage.migrator"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        # On standard input: others can read arguments and environment, and it holds a password.
        _, said = await child.communicate(url.render_as_string(hide_password=False).encode())
    except asyncio.CancelledError:
        await kill(child)
        raise
    if child.returncode == 0:
        return
    text = said.decode(errors="replace").strip()
    if child.returncode == StartError.exit_code and text:
        raise StartError(text)
    last = text.splitlines()[-1] if text else f"exit code {child.returncode}"
    message = (
        f"the migration of {shown(url)} broke off ({last}): run `tollhouse migrate` to see why"
    )
    raise StartError(message)
