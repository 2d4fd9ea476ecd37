"""Sessions of programs that somebody starts: they receive the secrets of a whole workspace.

Each has an API key of its own for the gateway, made for it and revoked with it; what it spends is
the workspace's like any other key's.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import structlog

from tollhouse.identity.types import NewKey
from tollhouse.kernel.errors import NotFound, TollhouseError
from tollhouse.kernel.secret import Secret
from tollhouse.vault import policy
from tollhouse.vault.egress.service import Wanted
from tollhouse.vault.types import Recipient

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from tollhouse.identity.types import IssuedKey, Manager, Workspace
    from tollhouse.vault.context import Context
    from tollhouse.vault.egress.service import Egress

_KEY_NAME: Final = "egress run"
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


class Programs:
    """Begins and ends sessions of programs."""

    def __init__(self, context: Context, egress: Egress) -> None:
        """Take who serves sessions."""
        self._context = context
        self._egress = egress

    @asynccontextmanager
    async def running(self, who: Manager, workspace: Workspace) -> AsyncGenerator[Program]:
        """Serve a program for as long as the block runs.

        Raises:
            NotFound: The workspace may have no vault.
            Unavailable: The proxy does not start.
        """
        context = self._context
        async with context.database.reading() as read:
            policy.check_programme(await context.identity.switches(read, workspace.id))
        issued = await self._new_key(who, workspace)
        try:
            session, password = context.ids.uuid(), Secret(context.ids.key_material())
            actor = who.key_hash or "operator"
            recipient = Recipient(workspace.account_id, workspace.id, None, actor)
            wanted = Wanted(
                session, recipient, Secret(issued.text), password, plain_http=workspace.plain_http
            )
            folder = await self._egress.open(wanted)
            try:
                yield Program(session, folder, password)
            finally:
                await self._egress.close(session)
        finally:
            await self._revoke(who, issued)

    async def _new_key(self, who: Manager, workspace: Workspace) -> IssuedKey:
        until = self._context.clock.now() + _LONGEST
        wanted = NewKey(_KEY_NAME, workspace_id=workspace.id, expires_at=until)
        async with self._context.database.writing() as write:
            return await self._context.identity.create_key(write, who, workspace.account_id, wanted)

    async def _revoke(self, who: Manager, issued: IssuedKey) -> None:
        try:
            async with self._context.database.writing() as write:
                await self._context.identity.delete_key(write, who, issued.key.hash)
        except NotFound:
            return  # somebody did that already
        except TollhouseError as error:
            _log.error("egress_key_not_revoked", error=type(error).__name__)
