"""Sessions of programs that somebody starts: they receive the secrets of a whole workspace.

Each has an API key of its own for the gateway, made for it and revoked with it; what it spends is
the workspace's like any other key's.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.identity.admission import check_programme
from tollhouse.identity.types import NewKey
from tollhouse.kernel.errors import NotFound
from tollhouse.kernel.secret import Secret
from tollhouse.vault.egress.service import Wanted
from tollhouse.vault.service import OPERATOR
from tollhouse.vault.types import Recipient

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from tollhouse.identity.types import IssuedKey, Manager, Workspace
    from tollhouse.vault.context import Context
    from tollhouse.vault.egress.service import Egress

_KEY_NAME: Final = "egress run"
_KEY_FILE: Final = "key-hash"
"""Tells the next server which key to revoke, where this one is killed."""
_LONGEST: Final = timedelta(days=30)
"""A key that was left behind by a server that was killed ends by itself."""
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Program:
    """A session of a program."""

    session: str
    folder: Path
    """See `egress.folders`."""
    password: Secret = field(repr=False)
    """What its requests to the proxy have to show."""
    who: Manager
    """Who began it."""
    key_hash: str
    """Of its key for the gateway."""


class Programs:
    """Begins and ends sessions of programs."""

    def __init__(self, context: Context, egress: Egress) -> None:
        """Take who serves sessions."""
        self._context = context
        self._egress = egress
        self._ending: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()
        """Set once all sessions have to end."""

    async def begin(self, who: Manager, workspace: Workspace) -> Program:
        """Serve a program, until `leave`.

        Raises:
            NotFound: The workspace may have no vault.
            Unavailable: The proxy does not start.
        """
        context = self._context
        async with context.database.reading() as read:
            check_programme(await context.identity.switches(read, workspace.id))
        issued = await self._new_key(who, workspace)
        session, password = context.ids.uuid(), Secret(context.ids.key_material())
        recipient = Recipient(workspace.account_id, workspace.id, None, who.key_hash or OPERATOR)
        wanted = Wanted(
            session, recipient, Secret(issued.text), password, plain_http=workspace.plain_http
        )
        try:
            folder = await self._egress.open(wanted)
            (folder / _KEY_FILE).write_text(issued.key.hash)
        except BaseException:
            self._end_soon(self._revoke(who, issued.key.hash))
            raise
        return Program(session, folder, password, who, issued.key.hash)

    async def sweep(self, who: Manager) -> None:
        """Revoke the keys, and remove the folders, of sessions that a killed server left."""
        for folder in self._egress.left_behind():
            note = folder / _KEY_FILE
            if note.is_file():
                await self._revoke(who, note.read_text())
            shutil.rmtree(folder, ignore_errors=True)

    def leave(self, program: Program) -> None:
        """End a session; whoever says so need not wait, and may be cancelled."""
        self._end_soon(self._end(program))

    async def stop(self) -> None:
        """Have all sessions end, and wait for what is ending."""
        self.stopping.set()
        await asyncio.gather(*self._ending)

    def _end_soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _end(self, program: Program) -> None:
        await self._egress.close(program.session)
        await self._revoke(program.who, program.key_hash)

    async def _new_key(self, who: Manager, workspace: Workspace) -> IssuedKey:
        until = self._context.clock.now() + _LONGEST
        wanted = NewKey(_KEY_NAME, workspace_id=workspace.id, expires_at=until)
        async with self._context.database.writing() as write:
            return await self._context.identity.create_key(write, who, workspace.account_id, wanted)

    async def _revoke(self, who: Manager, key_hash: str) -> None:
        try:
            async with self._context.database.writing() as write:
                await self._context.identity.delete_key(write, who, key_hash)
        except NotFound:
            return  # somebody did that already
        except Exception as error:  # noqa: BLE001 - the session's end: nobody waits for it
            _log.error("egress_key_not_revoked", error=type(error).__name__)
